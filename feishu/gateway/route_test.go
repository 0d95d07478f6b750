package gateway

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	const a = "/open-apis/"
	for route, want := range map[string]call{
		"POST im/v1/messages":                       {op: opCreate},
		"GET im/v1/messages":                        {}, // a chat's history
		"POST im/v1/messages/om_1/reply":            {op: opReply, message: "om_1"},
		"POST im/v1/messages/":                      {op: opCreate},
		"POST im/v1/messages/om_1/reply/":           {op: opReply, message: "om_1"},
		"PUT im/v1/messages/om_1":                   {op: opEdit, message: "om_1"},
		"PATCH im/v1/messages/om_1":                 {op: opPatch, message: "om_1"},
		"DELETE im/v1/messages/om_1":                {op: opRecall, message: "om_1"},
		"GET im/v1/messages/om_1":                   {op: opMessage, message: "om_1"},
		"GET im/v1/messages/mget":                   {op: opMessages},
		"POST im/v1/messages/om_1/forward":          {op: opForward, message: "om_1"},
		"POST im/v1/messages/merge_forward":         {op: opMergeForward, message: ""},
		"POST im/v1/threads/omt_1/forward":          {op: opForward},
		"POST im/v1/messages/om_1/reactions":        {op: opReact, message: "om_1"},
		"GET im/v1/messages/om_1/reactions":         {},
		"DELETE im/v1/messages/om_1/reactions/re_1": {op: opUnreact, message: "om_1", reaction: "re_1"},
		"GET im/v1/messages/om_1/resources/file_1":  {},
		"POST im/v1/images":                         {},
		"POST im/v1/files":                          {},
		"GET im/v1/chats/oc_1":                      {op: opChat, chat: "oc_1"},
		"PUT im/v1/chats/oc_1":                      {},
		"GET im/v1/chats/oc_1/members":              {},
		"GET im/v1/chats/oc_1/members/bots":         {op: opChatBots, chat: "oc_1"},
		"POST cardkit/v1/cards":                     {op: opCardCreate},
		"POST cardkit/v1/cards/id_convert":          {op: opCardConvert},
		"PUT cardkit/v1/cards/7":                    {op: opCardReplace, card: "7"},
		"PATCH cardkit/v1/cards/7/settings":         {op: opCardSettings, card: "7"},
		"POST cardkit/v1/cards/7/batch_update":      {op: opCardBatch, card: "7"},
		"POST cardkit/v1/cards/7/elements":          {op: opElementAdd, card: "7"},
		"PUT cardkit/v1/cards/7/elements/e":         {op: opElementReplace, card: "7", element: "e"},
		"PATCH cardkit/v1/cards/7/elements/e":       {op: opElementPatch, card: "7", element: "e"},
		"DELETE cardkit/v1/cards/7/elements/e":      {op: opElementDelete, card: "7", element: "e"},
		"GET cardkit/v1/cards/7/elements/e":         {},
		"PUT cardkit/v1/cards/7/elements/e/content": {op: opElementContent, card: "7", element: "e"},
		"POST auth/v3/tenant_access_token/internal": {op: opToken},
		"POST auth/v3/app_access_token/internal":    {op: opToken},
		"POST auth/v3/tenant_access_token":          {},
		"GET bot/v3/info":                           {op: opBotInfo},
		"POST bot/v1/openclaw_bot/ping":             {op: opBotPing},
		"GET bot/v3/bots/basic_batch":               {op: opBots},
		"GET contact/v3/users/ou_1":                 {op: opUser, user: "ou_1"},
		"GET contact/v3/users/ou_1/x":               {},
		"GET drive/v1/files":                        {},
	} {
		method, path, _ := strings.Cut(route, " ")
		if got := match(method, a+path); got != want {
			t.Errorf("%s: %+v, want %+v", route, got, want)
		}
		if got := match(method, "//open-apis//"+path); got != want {
			t.Errorf("%s with doubled slashes: %+v, want %+v", route, got, want)
		}
		if got := match(method, "/x/"+path); got != (call{}) {
			t.Errorf("%s elsewhere: %+v", route, got)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("POST", "/open-apis/im/v1/messages/om_1/reply")
	f.Add("PUT", "//open-apis/cardkit/v1/cards/7/elements/e/content")
	f.Fuzz(func(t *testing.T, method, path string) {
		if c := match(method, path); c.op == opNone && c != (call{}) {
			t.Errorf("%q %q: nothing to watch, and yet %+v", method, path, c)
		}
	})
}

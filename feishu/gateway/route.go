package gateway

import (
	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// op is what a watched call does (docs/feishu.md 4, 5, 6).
type op int

const (
	opNone op = iota
	opToken
	opBotInfo
	opBotPing
	opChat
	opChatBots
	opBots
	opUser
	opUsers
	opMessage
	opMessages

	// From here on the request's body is read too.
	opCreate
	opReply
	opForward
	opMergeForward
	opEdit
	opPatch
	opRecall
	opReact
	opUnreact
	opCardCreate
	opCardReplace
	opCardSettings
	opCardBatch
	opCardConvert
	opElementAdd
	opElementContent
	opElementReplace
	opElementPatch
	opElementDelete
)

func (o op) readsRequest() bool { return o >= opCreate || o == opToken }

// call is a watched call with the ids of its path.
type call struct {
	op       op
	message  relay.MessageID
	mail     relay.MessageID // what is in the path for message: a direct message of another agent, about it
	chat     relay.ChatID
	card     string
	element  string
	user     string
	reaction string
}

// routes are the watched calls.
var routes = feishu.NewRoutes(map[string]op{
	"POST auth/v3/tenant_access_token/internal":              opToken,
	"POST auth/v3/app_access_token/internal":                 opToken,
	"GET bot/v3/info":                                        opBotInfo,
	"POST bot/v1/openclaw_bot/ping":                          opBotPing,
	"GET bot/v3/bots/basic_batch":                            opBots,
	"GET contact/v3/users/batch":                             opUsers,
	"GET contact/v3/users/{user}":                            opUser,
	"GET im/v1/chats/{chat}":                                 opChat,
	"GET im/v1/chats/{chat}/members/bots":                    opChatBots,
	"GET im/v1/messages/mget":                                opMessages,
	"GET im/v1/messages/{message}":                           opMessage,
	"POST im/v1/messages":                                    opCreate,
	"POST im/v1/messages/merge_forward":                      opMergeForward,
	"PUT im/v1/messages/{message}":                           opEdit,
	"PATCH im/v1/messages/{message}":                         opPatch,
	"DELETE im/v1/messages/{message}":                        opRecall,
	"POST im/v1/messages/{message}/reply":                    opReply,
	"POST im/v1/messages/{message}/forward":                  opForward,
	"POST im/v1/threads/{thread}/forward":                    opForward,
	"POST im/v1/messages/{message}/reactions":                opReact,
	"DELETE im/v1/messages/{message}/reactions/{reaction}":   opUnreact,
	"POST cardkit/v1/cards":                                  opCardCreate, // CardKit: docs/feishu.md 5.2
	"POST cardkit/v1/cards/id_convert":                       opCardConvert,
	"PUT cardkit/v1/cards/{card}":                            opCardReplace,
	"PATCH cardkit/v1/cards/{card}/settings":                 opCardSettings,
	"POST cardkit/v1/cards/{card}/batch_update":              opCardBatch,
	"POST cardkit/v1/cards/{card}/elements":                  opElementAdd,
	"PUT cardkit/v1/cards/{card}/elements/{element}":         opElementReplace,
	"PATCH cardkit/v1/cards/{card}/elements/{element}":       opElementPatch,
	"DELETE cardkit/v1/cards/{card}/elements/{element}":      opElementDelete,
	"PUT cardkit/v1/cards/{card}/elements/{element}/content": opElementContent,
})

// match finds what a call is, by method and path; opNone for all that passes unread.
func match(method, path string) call {
	op, ids, _ := routes.Match(method, path)
	c := call{op: op, message: relay.MessageID(ids["message"]), chat: relay.ChatID(ids["chat"]), card: ids["card"],
		element: ids["element"], user: ids["user"], reaction: ids["reaction"]}
	if op == opReply || op == opReact || op == opUnreact {
		if about, ok := feishu.AboutMail(c.message); ok {
			c.mail, c.message = c.message, about
		}
	}
	return c
}

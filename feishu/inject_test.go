package feishu_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

func injected() feishu.Injected {
	return feishu.Injected{
		EventID: "ev1", AppID: "cli_receiver", TenantKey: "ten", Token: "tok", SenderType: "bot",
		Sender: feishu.Bot{OpenID: "ou_a", Name: "BotA", Agent: "agent_a"}, Self: feishu.Bot{OpenID: "ou_self", Name: "BotB"},
		Message: "om_1", ChatID: "oc_1", Text: "请看", CreateTime: 1609073151345,
	}
}

func parse(t testing.TB, in feishu.Injected) (feishu.Event, string) {
	t.Helper()
	data, err := in.JSON()
	if err != nil {
		t.Fatal(err)
	}
	e, err := feishu.ParseEvent(data)
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	var content struct{ Text string }
	if err := json.Unmarshal([]byte(e.Message.Content), &content); err != nil {
		t.Fatal(err)
	}
	return e, content.Text
}

func TestInjectedIsWhatFeishuWouldSend(t *testing.T) {
	in := injected()
	in.MentionsSelf, in.RootID, in.ParentID = true, "om_r", "om_p"
	in.Text = "a<b> & \\u2028 中"
	data, err := in.JSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"2.0","header":{"event_id":"ev1","event_type":"im.message.receive_v1","create_time":"1609073151345","token":"tok","app_id":"cli_receiver","tenant_key":"ten"},` +
		`"event":{"sender":{"sender_id":{"open_id":"ou_a"},"sender_type":"bot","tenant_key":"ten"},` +
		`"message":{"message_id":"om_1","create_time":"1609073151345","update_time":"1609073151345","chat_id":"oc_1","chat_type":"group","message_type":"text",` +
		`"content":"{\"text\":\"@_user_1 a<b> & \\\\u2028 中\"}",` +
		`"mentions":[{"key":"@_user_1","id":{"open_id":"ou_self"},"mentioned_type":"bot","name":"BotB","tenant_key":"ten"}]}}}`
	if diff := cmp.Diff(string(data), want); diff != "" {
		t.Errorf("event (-got +want):\n%s", diff)
	}
	var sdk larkim.P2MessageReceiveV1
	if err := json.Unmarshal(data, &sdk); err != nil || *sdk.Event.Message.Mentions[0].Id.OpenId != "ou_self" || sdk.Event.Message.ParentId != nil {
		t.Errorf("the SDK reads %+v, %v", sdk.Event, err)
	}
}

func TestInjectedInATopic(t *testing.T) {
	in := injected()
	in.ThreadID, in.RootID, in.ParentID, in.SenderType = "omt_1", "om_r", "om_p", ""
	e, _ := parse(t, in)
	want := &feishu.Message{ID: "om_1", RootID: "om_r", ParentID: "om_p", ThreadID: "omt_1", ChatID: "oc_1", ChatType: "group", Type: "text",
		Content: `{"text":"请看"}`, CreateTime: 1609073151345,
		Sender: feishu.Sender{Type: "bot", OpenID: "ou_a", Tenant: "ten"}}
	if diff := cmp.Diff(e.Message, want); diff != "" {
		t.Errorf("message (-got +want):\n%s", diff)
	}
}

func TestInjectedText(t *testing.T) {
	others := []feishu.Mention{{Key: "@_user_7", OpenID: "ou_c", Name: "BotC", Type: "bot"},
		{OpenID: "ou_cc", Name: "BotCC"}, {OpenID: "ou_m", Name: "小明"}, {OpenID: "", Name: "Nobody"},
		{OpenID: "ou_self", Name: "Again"}, {OpenID: "ou_x"}}
	prefixes := map[string]string{"bot": "[BotA] ", "posing": "[<at id=all>\n@_all] @"}
	datadriven.RunTest(t, "testdata/texts/injected.txt", func(t *testing.T, d *datadriven.TestData) string {
		in, prefix := injected(), ""
		d.MaybeScanArgs(t, "prefix", &prefix)
		in.MentionsSelf, in.Prefix, in.Mentions = d.HasArg("self"), prefixes[prefix], others
		var err error
		if in.Text, err = strconv.Unquote(`"` + strings.ReplaceAll(d.Input, `"`, `\"`) + `"`); err != nil {
			t.Fatal(err)
		}
		e, text := parse(t, in)
		quoted := strconv.QuoteToGraphic(text)
		var out strings.Builder
		out.WriteString(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`) + "\n")
		for _, m := range e.Message.Mentions {
			out.WriteString(m.Key + "=" + string(m.OpenID) + " ")
		}
		return strings.TrimRight(out.String(), " \n")
	})
}

func TestInjectedWithoutAName(t *testing.T) {
	in := injected()
	in.Self.Name, in.MentionsSelf, in.Text = "", true, "@ hi"
	if _, text := parse(t, in); text != "@_user_1 @ hi" {
		t.Errorf("text %q", text)
	}
}

func TestInjectedSender(t *testing.T) {
	standIn := feishu.StandIn("cli_receiver", "agent_a")
	if ok, _ := regexp.MatchString(`^ou_[0-9a-f]{32}$`, string(standIn)); !ok {
		t.Errorf("stand-in %s", standIn)
	}
	if standIn != feishu.StandIn("cli_receiver", "agent_a") || standIn == feishu.StandIn("cli_other", "agent_a") || standIn == feishu.StandIn("cli_receiver", "agent_b") {
		t.Error("a stand-in is not each agent's own")
	}
	for _, tt := range []struct {
		name   string
		sender feishu.Bot
		want   relay.OpenID
	}{
		{"known", feishu.Bot{OpenID: "ou_a", Agent: "agent_a"}, "ou_a"},
		{"unknown", feishu.Bot{Agent: "agent_a", AppID: "cli_a"}, standIn},
		{"seems the receiver itself", feishu.Bot{OpenID: "ou_self", Agent: "agent_a"}, standIn},
		{"by app", feishu.Bot{AppID: "cli_a", Name: "A"}, feishu.StandIn("cli_receiver", "cli_a")},
		{"by name", feishu.Bot{Name: "A"}, feishu.StandIn("cli_receiver", "A")},
	} {
		in := injected()
		in.Sender = tt.sender
		if e, _ := parse(t, in); e.Message.Sender.OpenID != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, e.Message.Sender.OpenID, tt.want)
		}
	}
}

func TestInjectedRefuses(t *testing.T) {
	for name, change := range map[string]func(*feishu.Injected){
		"no event id":      func(in *feishu.Injected) { in.EventID = "" },
		"no app":           func(in *feishu.Injected) { in.AppID = "" },
		"no message":       func(in *feishu.Injected) { in.Message = "" },
		"no chat":          func(in *feishu.Injected) { in.ChatID = "" },
		"own id not known": func(in *feishu.Injected) { in.Self.OpenID, in.MentionsSelf = "", true },
	} {
		in := injected()
		change(&in)
		if data, err := in.JSON(); err == nil {
			t.Errorf("%s: %s", name, data)
		}
	}
}

func TestInjectedIsFreshWithoutATime(t *testing.T) {
	in := injected()
	in.CreateTime = 0
	before := relay.MillisOf(time.Now())
	e, _ := parse(t, in)
	if e.Message.CreateTime < before || e.Message.CreateTime != e.CreateTime {
		t.Errorf("%d, before %d", e.Message.CreateTime, before)
	}
}

// keyLike is what any framework could take for a mention.
var keyLike = regexp.MustCompile(`(?i)@_user_[0-9]+|@_all|</?at[\s>/]`)

func checkInjected(t testing.TB, in feishu.Injected) {
	t.Helper()
	data, err := in.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(data, "\n") || !json.Valid(data) {
		t.Fatalf("not one line of JSON: %q", data)
	}
	e, text := parse(t, in)
	if e.ID != in.EventID || e.AppID != in.AppID || e.ChatID != in.ChatID || e.Message.ID != in.Message || e.Token != in.Token {
		t.Fatalf("other ids: %+v", e)
	}
	given := len(in.Mentions)
	if in.MentionsSelf {
		given++
	}
	if len(e.Message.Mentions) > given {
		t.Fatalf("%d mentions of %d", len(e.Message.Mentions), given)
	}
	known := map[string]bool{}
	for _, m := range e.Message.Mentions {
		if known[m.Key] || !strings.Contains(text, m.Key) {
			t.Fatalf("key %q in %q", m.Key, text)
		}
		known[m.Key] = true
	}
	for _, key := range keyLike.FindAllString(text, -1) {
		if !known[key] {
			t.Fatalf("%q poses as a mention in %q", key, text)
		}
	}
	if strings.HasPrefix(in.Prefix, "[") && !strings.HasPrefix(text, "[") {
		t.Fatalf("the prefix is not in front: %q", text)
	}
	if regexp.MustCompile(`^(@_user_\d+|\s)*/\pL`).MatchString(text) {
		t.Fatalf("a command: %q", text)
	}
}

func TestMailIDLeadsToWhatItIsAbout(t *testing.T) {
	for _, about := range []relay.MessageID{"om_x100baf54d8db0ef09feeb957620344b0", "om_1", "om_mail0123456789abcdef"} {
		id := feishu.MailID("msg_1_coder_x", about)
		if got, ok := feishu.AboutMail(id); !ok || got != about {
			t.Errorf("%s: leads to %q %v, want %q", id, got, ok, about)
		}
		if id != feishu.MailID("msg_1_coder_x", about) || id == feishu.MailID("msg_2_coder_x", about) {
			t.Errorf("%s is not the id of one message", id)
		}
	}
	for _, id := range []relay.MessageID{"", "om_", "om_dc13264520392913993dd051dba21dcf", "om_x100baf54d8db0ef09feeb957620344b0",
		feishu.MailID("msg_1_coder_x", ""), "om_1mail0123456789abcdeg", "mail0123456789abcdef"} {
		if got, ok := feishu.AboutMail(id); ok {
			t.Errorf("%s leads to %q, want nowhere", id, got)
		}
	}
}

// What a bot refuses for good is not tried again; anything else that is no success is.
func TestIsRefusal(t *testing.T) {
	for code, want := range map[int]bool{200: false, 302: false, 400: true, 404: true, 408: false, 422: true, 429: false, 500: false, 503: false} {
		if got := feishu.IsRefusal(code); got != want {
			t.Errorf("%d: got %t", code, got)
		}
	}
}

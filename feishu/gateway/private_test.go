package gateway

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/test/logtest"
)

// Whatever goes wrong, a log above debug level shows no text, token, secret or query.
func TestTheLogKeepsSecrets(t *testing.T) {
	log := &logtest.Buffer{}
	r := newRig(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		o.Webhook = &webhook.Options{BotURL: "http://127.0.0.1:1/s3cret", VerificationToken: "s3cret-token"}
	}).knowGroup()
	const send = "/open-apis/im/v1/messages?receive_id_type=chat_id&q=s3cret"
	body := `{"receive_id":"oc_group","msg_type":"text","content":"{\"text\":\"s3cret\"}"}`
	r.call("POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"`+r.app+`","app_secret":"s3cret"}`)
	for _, trouble := range []func() error{
		func() error { return errTest },
		func() error { panic("s3cret") },
		func() error { panic(errors.New("s3cret")) },
		func() error { var none []error; return none[len(os.Args)] },
	} {
		r.host.sent = func(context.Context, Sent) error { return trouble() }
		r.host.native = func(feishu.Message, bool) error { return trouble() }
		r.host.heard = func(feishu.Message) error { return trouble() }
		r.call("POST", send, body)
		r.tapEvent([]byte(eventOf(r.app, "bot", "ou_b", "om_b", group, "group", "s3cret")))
		r.tapEvent([]byte(eventOf(r.app, "user", "ou_u", "om_u", group, "group", "s3cret")))
	}
	for _, answer := range []string{"s3cret", `{"code":0,"data":{"message_id":"s3cret\u0000"}}`, `{"code":19,"msg":"s3cret"}`} {
		r.up.say("POST /open-apis/im/v1/messages", 200, answer)
		r.call("POST", send, body)
	}
	r.as("t-s3cret", "POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"cli_other","app_secret":"s3cret"}`)
	r.as("u-s3cret", "POST", send, body)
	r.call("PATCH", "/open-apis/cardkit/v1/cards/7/settings", `{"settings":"s3cret"}`)
	r.call("POST", "/webhook/event", `{"token":"s3cret"}`)
	r.up.CloseClientConnections()
	r.up.Close()
	r.call("POST", send, body)
	r.call("POST", "/callback/ws/endpoint?s3cret", `{"AppID":"`+r.app+`","AppSecret":"s3cret"}`)
	if r.counts.of("upstream_error") == 0 || r.counts.of("panic") == 0 || r.counts.of("unreadable") == 0 {
		t.Error("the trouble did not come")
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "s3cret") {
			t.Errorf("the log shows it: %s", line)
		}
	}
}

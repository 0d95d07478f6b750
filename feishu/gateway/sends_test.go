package gateway

import (
	"context"
	"testing"

	"feishu-relay/relay"
)

func TestIdentityIsLearned(t *testing.T) {
	for name, learn := range map[string]func(r *rig){
		"from a token call": func(r *rig) {
			r.call("POST", "/open-apis/auth/v3/tenant_access_token/internal", js(map[string]string{"app_id": r.app, "app_secret": "s"}))
		},
		"from a send": func(r *rig) { r.text("x") },
		"from a bootstrap": func(r *rig) {
			r.up.say("POST /callback/ws/endpoint", 200, `{"code":0,"data":{"URL":"ws://127.0.0.1:1/ws?fpid=1&device_id=d&service_id=1","ClientConfig":{}}}`)
			r.call("POST", "/callback/ws/endpoint", js(map[string]string{"AppID": r.app, "AppSecret": "s"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Book.Forget() })
			learn(r)
			waitFor(t, func() bool { return r.book.Self().OpenID != "" })
			if self := r.book.Self(); self.AppID != r.app || self.OpenID != relay.OpenID("ou_self_"+r.app) {
				t.Errorf("learned %+v", self)
			}
			r.as("t-x", "POST", "/open-apis/auth/v3/tenant_access_token/internal", `{"app_id":"cli_other","app_secret":"s"}`)
			if r.book.Self().AppID != r.app {
				t.Error("a second app took its place")
			}
		})
	}
}

// The bot's answer is what Feishu said, whatever the host does.
func TestHostTroubleIsNotTheBots(t *testing.T) {
	for name, sent := range map[string]func(context.Context, Sent) error{
		"panics": func(context.Context, Sent) error { panic("boom") },
		"fails":  func(context.Context, Sent) error { return errTest },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil).knowGroup()
			calls := 0
			r.host.sent = func(ctx context.Context, m Sent) error {
				if calls++; calls == 1 {
					return sent(ctx, m)
				}
				return nil
			}
			r.text("hello") // fatal if the answer is not Feishu's
			if m := r.said(); m.Text != "hello" {
				t.Errorf("published %q", m.Text)
			}
			waitFor(t, func() bool { n := r.drafts.waiting(); return n == 0 })
		})
	}
}

func TestHangingHost(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	goOn := make(chan struct{})
	r.host.sent = func(context.Context, Sent) error { <-goOn; return nil }
	r.text("hello.")
	if r.counts.of("tap_slow") != 1 {
		t.Error("the slow host was not counted")
	}
	r.call("GET", "/open-apis/other", "") // is not served behind it
	close(goOn)
	r.said()
}

func TestSendsWhileClosing(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.text("last words")
	if m := r.said(); m.Text != "last words" {
		t.Errorf("published %q", m.Text)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error("closed twice:", err)
	}
}

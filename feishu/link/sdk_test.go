package link_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

// sdkBot is a bot with the official SDK.
type sdkBot struct {
	client *larkws.Client
	events chan string // what its handler was given
	fails  chan error  // what it returns; empty: nil
	ended  chan error
}

func (r *rig) sdkBot(options ...larkws.ClientOption) *sdkBot {
	r.t.Helper()
	b := &sdkBot{events: make(chan string, 1000), fails: make(chan error, 10), ended: make(chan error, 1)}
	d := dispatcher.NewEventDispatcher("", "")
	d.OnCustomizedEvent("im.message.receive_v1", func(_ context.Context, req *larkevent.EventReq) error {
		b.events <- string(req.Body)
		select {
		case err := <-b.fails:
			return err
		default:
			return nil
		}
	})
	b.client = larkws.NewClient(app, secret, append([]larkws.ClientOption{
		larkws.WithDomain("http://" + r.front), larkws.WithEventHandler(d), larkws.WithLogger(mute{}),
	}, options...)...)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { b.ended <- b.client.Start(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		<-b.ended
	})
	return b
}

type mute struct{}

func (mute) Debug(context.Context, ...any) {}
func (mute) Info(context.Context, ...any)  {}
func (mute) Warn(context.Context, ...any)  {}
func (mute) Error(context.Context, ...any) {}

var _ larkcore.Logger = mute{}

func TestSDKReceivesAndAcknowledges(t *testing.T) {
	r := newRig(t, tcp(t), with(func(event string) (feishu.Verdict, []byte) { return feishu.Pass, nil }))
	bot := r.sdkBot()
	feishu := r.feishu.next()
	feishu.want(pingFrame())
	if got := r.feishu.requests()[0].header.Get("User-Agent"); !strings.HasPrefix(got, "oapi-sdk-go/") {
		t.Errorf("Feishu saw User-Agent %q", got)
	}

	feishu.write(eventFrame("m1", event("e1")))
	if got := <-bot.events; got != event("e1") {
		t.Errorf("got %s", got)
	}
	ack := feishu.frame()
	if messageID(ack) != "m1" || !strings.Contains(string(ack.Payload), `"code":200`) || larkws.Headers(ack.Headers).GetString("instance_id") != "opaque" {
		t.Errorf("acknowledged with %v", ack)
	}

	bot.fails <- errors.New("no")
	feishu.write(eventFrame("m2", event("e2")))
	<-bot.events
	if ack := feishu.frame(); messageID(ack) != "m2" || !strings.Contains(string(ack.Payload), `"code":500`) {
		t.Errorf("acknowledged with %v", ack)
	}

	if err := <-r.inject(t.Context(), event("ours")); err != nil {
		t.Error(err)
	}
	if got := <-bot.events; got != event("ours") {
		t.Errorf("got %s", got)
	}
}

func TestSDKGivesUpWhereFeishuSaysSo(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	r.feishu.refuses(func(w http.ResponseWriter) {
		w.Header().Set("Handshake-Status", "514")
		w.Header().Set("Handshake-Autherrcode", "1000040350")
		w.WriteHeader(http.StatusForbidden)
	})
	bot := r.sdkBot()
	err := <-bot.ended
	if e, ok := errors.AsType[*larkws.ClientError](err); !ok || e.Code != 514 {
		t.Errorf("got %v", err)
	}
	bot.ended <- err
}

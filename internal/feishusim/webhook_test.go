package feishusim

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/larksuite/oapi-sdk-go/v3/core/httpserverext"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

// TestWebhook brings events to the SDK's own dispatcher, which checks token,
// encryption and signature.
func TestWebhook(t *testing.T) {
	for _, key := range []string{"", "an encrypt key"} {
		t.Run("key "+key, func(t *testing.T) {
			r := newRoom(t, quick, App{Name: "BotA", EncryptKey: key, VerificationToken: "token"})
			got := make(chan string, 10)
			d := dispatcher.NewEventDispatcher("token", key).OnP2MessageReceiveV1(func(_ context.Context, e *larkim.P2MessageReceiveV1) error {
				got <- *e.Event.Message.MessageId
				return nil
			})
			hook := httptest.NewServer(http.HandlerFunc(httpserverext.NewEventHandlerFunc(d, larkevent.WithLogger(quiet{}))))
			t.Cleanup(hook.Close)
			if _, err := r.UpdateApp(App{ID: r.apps[0].ID, WebhookURL: hook.URL}); err != nil {
				t.Fatal(err)
			}
			id := r.say("@BotA 你好 <hello> & so on")
			select {
			case g := <-got:
				if g != id {
					t.Errorf("got %s, want %s", g, id)
				}
			case <-r.soon().Done():
				t.Fatal("nothing came")
			}
			d2, err := r.WaitDelivery(r.soon(), func(d Delivery) bool { return d.MessageID == id && d.Acked == 200 })
			if err != nil || d2.Attempt != 1 {
				t.Errorf("delivery: %+v %v", d2, err)
			}
		})
	}
}

func TestAWebhookThatFailsGetsItAgain(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	var calls atomic.Int32
	bodies := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		bodies <- string(b)
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(hook.Close)
	if _, err := r.UpdateApp(App{ID: r.apps[0].ID, WebhookURL: hook.URL}); err != nil {
		t.Fatal(err)
	}
	id := r.say("hello")
	d, err := r.WaitDelivery(r.soon(), func(d Delivery) bool { return d.MessageID == id && d.Acked == 200 })
	if err != nil || d.Attempt != 3 {
		t.Errorf("got %+v %v", d, err)
	}
	if one, two := <-bodies, <-bodies; one != two {
		t.Errorf("the event changed: %s, %s", one, two)
	}
	hook.Close()
	id = r.say("nobody is there")
	if err := r.until(r.soon(), func() bool { return len(r.Server.apps[r.apps[0].ID].pending) == 0 }); err != nil {
		t.Error(err)
	}
	if slices.ContainsFunc(r.Deliveries(), func(d Delivery) bool { return d.MessageID == id && d.Acked != 0 }) {
		t.Error("acknowledged by nobody")
	}
}

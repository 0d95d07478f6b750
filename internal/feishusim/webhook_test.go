package feishusim

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
)

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

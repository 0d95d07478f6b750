package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What was held of a call is free when it has ended, however it ended.
func TestWhatWasHeldIsReleased(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	large := strings.Repeat("x", 200<<10)
	r.up.say("GET /open-apis/im/v1/messages/om_large", 200, `{"code":0,"data":{"items":[],"x":"`+large+`"}}`)
	for range 20 {
		r.call("GET", "/open-apis/im/v1/messages/om_large", "")
		r.call("POST", "/open-apis/im/v1/messages/om_1/reactions", `{"x":"`+large+`"}`)
		r.call("POST", "/open-apis/other", large[:60<<10])
	}
	waitFor(t, func() bool {
		free := r.memory.TryAcquire(maxHeld)
		if free {
			r.memory.Release(maxHeld)
		}
		return free
	})
}

// Answers of Feishu that together are too large to hold pass unread, whole, and small calls are read meanwhile.
func TestLargeAnswersPassWithinABudget(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	large := []byte(`{"code":0,"x":"` + strings.Repeat("x", 3<<20) + `"}`)
	half, release := make(chan struct{}, 16), make(chan struct{})
	r.up.on("GET /open-apis/im/v1/messages/om_large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(large[:len(large)-1])
		_ = http.NewResponseController(w).Flush()
		half <- struct{}{}
		<-release
		_, _ = w.Write(large[len(large)-1:])
	})
	got := make(chan error, 8)
	for range cap(got) {
		go func() {
			resp, err := r.client.Get(r.url + "/open-apis/im/v1/messages/om_large")
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && !bytes.Equal(body, large) {
					err = fmt.Errorf("the answer has %d bytes, want %d", len(body), len(large))
				}
			}
			got <- err
		}()
	}
	for range cap(got) {
		<-half
	}
	waitFor(t, func() bool { return r.counts.of("untapped_busy") > 0 })
	r.text("hello.")
	if m := r.said(); m.Text != "hello." {
		t.Errorf("published %q", m.Text)
	}
	close(release)
	for range cap(got) {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
)

const messages = "/v1/stream"

func lastEventID(id string) func(*http.Request) { return apitest.Header("Last-Event-ID", id) }

// leave hangs up and waits apitest.Until the server has noticed.
func (r *rig) leave(s *subscriber) {
	r.t.Helper()
	s.hangUp()
	apitest.Until(r.t, "the reader is gone", func() bool { return !r.stream.Connected() })
}

func names(from, to int) (ids []string) {
	for i := from; i <= to; i++ {
		ids = append(ids, fmt.Sprintf("m%d", i))
	}
	return ids
}

func TestWhatAnOfferComesTo(t *testing.T) {
	r := newRig(t)
	for query, want := range map[string]error{"": httpapi.ErrUnconfirmed, "?ack=false": nil, "?ack=true": errWaits} {
		s := r.listen(messages + query)
		if err := r.offer(names(1, 3)...); err != want {
			t.Errorf("%s: got %v, want %v", query, err, want)
		}
		s.want(names(1, 3)...)
		gone := r.stream.Conn()
		r.leave(s)
		if err := r.stream.Offer(t.Context(), gone, "m4", inbound("m4"), nil); err != httpapi.ErrNoReader {
			t.Errorf("offer to a reader that has gone: %v", err)
		}
	}
	apitest.WantError(t, ask(r.fakes, "GET", messages+"?ack=perhaps", ""), 400, "invalid_request")
}

func TestWhatAReaderHas(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		path, header string
		want         string
		confirms     bool
	}{
		{"", "", "", false},
		{"", "m1", "m1", true},
		{"?last_event_id=m2", "", "m2", true},
		{"?ack=true", "m3", "m3", false},
		{"?ack=false", "m4", "m4", true},
	} {
		s := r.listen(messages+tt.path, lastEventID(tt.header))
		apitest.Until(t, "the reader is there", r.stream.Connected)
		if conn, last, confirms := r.stream.Reader(); conn == 0 || string(last) != tt.want || confirms != tt.confirms {
			t.Errorf("%s %s: got %d, %q, %v", tt.path, tt.header, conn, last, confirms)
		}
		r.leave(s)
	}
	if conn, _, _ := r.stream.Reader(); conn != 0 {
		t.Errorf("connection %d without a reader", conn)
	}
}

func TestStopTellsTheReader(t *testing.T) {
	r := newRig(t)
	s := r.listen(messages)
	_ = r.offer("m1")
	conn := r.stream.Conn()
	r.stream.Stop()
	r.stream.Stop()
	s.want("m1")
	s.wantEnd("stopping")
	if err := r.stream.Offer(t.Context(), conn, "m2", inbound("m2"), nil); err != httpapi.ErrNoReader {
		t.Errorf("offer after Stop: %v", err)
	}
	if s := r.listen(messages); s.status != http.StatusServiceUnavailable {
		t.Errorf("a new reader: got %d, want 503", s.status)
	}
}

// A HEAD request would be given the bot's messages and throw them away.
func TestALookAtTheStreamTakesNothing(t *testing.T) {
	r := newRig(t)
	s := r.listen(messages)
	for _, path := range []string{messages, "/v1/events"} {
		resp, err := http.Head(r.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: got %d, %s", path, resp.StatusCode, resp.Header)
		}
	}
	_ = r.offer("m1")
	s.want("m1")
}

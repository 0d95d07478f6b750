package httpapi_test

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// Readers that take over from each other while messages come: whoever names
// the last one it got misses none.
func TestTakeoversLoseNothing(t *testing.T) {
	r := newRig(t)
	ids := names(1, 60)
	done := make(chan struct{})
	go func() { r.deliver(ids...); close(done) }()
	var got []string
	last := ""
	for len(got) < len(ids) {
		s := r.listen(messages, lastEventID(last))
		for range 7 {
			if len(got) == len(ids) {
				break
			}
			e, ok := s.next()
			if !ok || e.kind != "message" {
				break
			}
			if e.id == last {
				t.Fatalf("%s came twice", e.id)
			}
			got, last = append(got, e.id), e.id
		}
	}
	<-done
	if !slices.Equal(got, ids) {
		t.Errorf("got %v", got)
	}
}

func TestReplay(t *testing.T) {
	for _, tt := range []struct {
		name string
		from string // the path of the first reader; "": messages
		path string
		last string
		want []string
	}{
		{"after the last one it got", "", messages, "m2", names(3, 5)},
		{"named in the query", "", messages + "?last_event_id=m4", "", names(5, 5)},
		{"nothing after the newest", "", messages, "m5", nil},
		{"everything after an unknown one", "", messages, "m0", names(1, 5)},
		{"everything that it has not confirmed", "", messages, "", names(1, 5)},
		{"nothing if what was written is confirmed", messages + "?ack=false", messages, "", nil},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", tt.name, restart), func(t *testing.T) {
				r := newRig(t)
				s := r.listen(cmp.Or(tt.from, messages))
				r.deliver(names(1, 5)...)
				s.want(names(1, 5)...)
				r.leave(s)
				if restart {
					r.restart()
				}
				s = r.listen(tt.path, lastEventID(tt.last))
				s.want(tt.want...)
				r.deliver("m6")
				s.want("m6")
				r.leave(s)
				if tt.last == "" {
					return
				}
				r.restart() // what it confirmed by naming a later one does not come again
				s = r.listen(messages)
				s.want(append(tt.want, "m6")...)
			})
		}
	}
}

func TestWhatIsTooOldIsNotReplayed(t *testing.T) {
	r := newRig(t)
	line := func(id string, at time.Time) string {
		return fmt.Sprintf(`{"id":%q,"at":%d,"data":{"content":"x"}}`+"\n", id, at.UnixMilli())
	}
	if err := r.stream.Close(); err != nil {
		t.Fatal(err)
	}
	text := line("old", time.Now().Add(-2*time.Hour)) + "not JSON\n{}\n" + line("m1", time.Now()) + line("m2", time.Now()) + `{"id":"to`
	if err := r.root.WriteFile("stream.jsonl", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	s := r.listen(messages, lastEventID("unknown"))
	s.want("m1", "m2")
	r.deliver("m3")
	s.want("m3")
	r.leave(s)
	r.restart() // the torn line has swallowed nothing
	s = r.listen(messages, lastEventID("m2"))
	s.want("m3")
}

func TestTheJournalIsBounded(t *testing.T) {
	r := newRig(t)
	if err := r.stream.Close(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `{"id":"m%d","at":%d,"data":{}}`+"\n", i+1, time.Now().UnixMilli())
	}
	if err := r.root.WriteFile("stream.jsonl", []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	s := r.listen(messages, lastEventID("m2995"))
	s.want(names(2996, 3000)...)
	r.deliver("m3001")
	s.want("m3001")
	data, err := r.root.ReadFile("stream.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(data), "\n"); got > 2000 { // it was rewritten
		t.Errorf("%d lines, want the last 1001, and which were confirmed since", got)
	}
	r.leave(s)
	r.restart()
	s = r.listen(messages, lastEventID("unknown"))
	s.want(names(2002, 3001)...)
}

// A reader that stops reading and dies has confirmed nothing.
func TestAReaderThatDiesMidway(t *testing.T) {
	r := newRig(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", messages)
	if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	const count = 35 // of a tenth of a megabyte each: more than a socket holds, and less than is kept
	var delivered atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, id := range names(1, count) {
			in := inbound(id)
			in.Content = strings.Repeat("x", 100<<10)
			if err := r.stream.Deliver(t.Context(), in); err != nil {
				t.Error(err)
			}
			delivered.Add(1)
		}
	}()
	apitest.Until(t, "the first is delivered", func() bool { return delivered.Load() > 0 })
	conn.Close()
	apitest.Until(t, "the reader is gone", func() bool { return !r.stream.Connected() })
	s := r.listen(messages)
	s.want(names(1, count)...)
	<-done
}

func TestStopTellsTheReader(t *testing.T) {
	r := newRig(t)
	s := r.listen(messages)
	r.deliver("m1")
	r.stream.Stop()
	r.stream.Stop()
	s.want("m1")
	s.wantEnd("stopping")
	if err := r.stream.Deliver(t.Context(), inbound("m2")); err == nil {
		t.Error("delivered after Stop")
	}
	if s := r.listen(messages); s.status != http.StatusServiceUnavailable {
		t.Errorf("a new reader: got %d, want 503", s.status)
	}
	for range 2 {
		if err := r.stream.Close(); err != nil {
			t.Error(err)
		}
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
	r.deliver("m1")
	s.want("m1")
}

package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

const watching = "/v1/events"

func (r *rig) publish(from, to int) {
	for i := from; i <= to; i++ {
		r.Events.Publish(httpapi.Event{Type: httpapi.EventMessage, ChatID: "oc_x", Content: fmt.Sprint(i), RelayMsgID: relay.MessageID(fmt.Sprint(i))})
	}
}

// wantEvents expects the events of publish and returns the last id.
func (s *subscriber) wantEvents(from, to int) (last string) {
	s.t.Helper()
	for i := from; i <= to; i++ {
		e, ok := s.next()
		if !ok || e.kind != httpapi.EventMessage || apitest.Object(s.t, []byte(e.data))["content"] != fmt.Sprint(i) {
			s.t.Fatalf("got %+v (open: %v), want event %d", e, ok, i)
		}
		last = e.id
	}
	return last
}

// A watcher that comes back gets what is kept since, also when the sidecar was restarted meanwhile: the ids of a new
// process lie beyond those of the old one.
func TestAWatcherThatComesBack(t *testing.T) {
	r := newRig(t)
	w := r.listen(watching)
	r.publish(1, 3)
	last := w.wantEvents(1, 3)
	w.hangUp()
	r.publish(4, 600)
	r.listen(watching, lastEventID(last)).wantEvents(101, 600) // the last 500
	w = r.listen(watching, lastEventID("no number"))
	r.publish(601, 601)
	last = w.wantEvents(601, 601)
	r.Events.Close()
	w.wantEnd("")
	if w := r.listen(watching); w.status != http.StatusServiceUnavailable {
		t.Errorf("a new one: got %d, want 503", w.status)
	}
	r.publish(602, 602) // without watchers
	r.fakes.Events = &httpapi.Events{}
	r.open()
	r.publish(603, 604)
	r.listen(watching, lastEventID(last)).wantEvents(603, 604)
}

// Deliveries and stops are counted by the minute, for an hour.
func TestLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events httpapi.Events
		began := relay.MillisOf(time.Now())
		for _, kind := range []string{httpapi.EventDelivery, httpapi.EventStop, httpapi.EventDelivery, httpapi.EventMessage} {
			events.Publish(httpapi.Event{Type: kind})
		}
		time.Sleep(59 * time.Minute)
		events.Publish(httpapi.Event{Type: httpapi.EventStop})
		first, last := httpapi.Minute{At: began, Delivered: 2, Stopped: 1}, httpapi.Minute{At: began + 59*60_000, Stopped: 1}
		if got := events.LastHour(); !slices.Equal(got, []httpapi.Minute{first, last}) {
			t.Errorf("got %v", got)
		}
		time.Sleep(time.Minute)
		if got := events.LastHour(); !slices.Equal(got, []httpapi.Minute{last}) {
			t.Errorf("after an hour: %v", got)
		}
	})
}

// one is a listener with one connection.
type one chan net.Conn

func (l one) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l one) Close() error   { return nil }
func (l one) Addr() net.Addr { return &net.TCPAddr{} }

// A stream that was quiet for longer than a write may take ends with an end: a browser reports
// anything else as an error of the page.
func TestAQuietStreamEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakes()
		server, listener := &http.Server{Handler: httpapi.New(f.Options)}, make(one, 1)
		near, far := net.Pipe()
		listener <- near
		go func() { _ = server.Serve(listener) }()
		if _, err := io.WriteString(far, "GET "+watching+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(far), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(web.WriteTimeout+time.Second, f.Events.Close)
		if text, err := io.ReadAll(answer.Body); err != nil {
			t.Errorf("after %q: %v", text, err)
		}
		close(listener)
		_ = far.Close()
		_ = server.Close()
	})
}

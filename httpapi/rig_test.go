package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/sse"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// fakes are the functions behind the API, which a test may replace.
type fakes struct {
	httpapi.Options
	chats   func() ([]transcript.Chat, error)
	tail    func(channel, chatID string, n int) ([]transcript.Entry, error)
	page    func(transcript.Query) transcript.Page // nil: tail
	sent    []relay.Outbound
	heard   []relay.Heard
	decided []relay.Question
}

func (f *fakes) Chats() ([]transcript.Chat, error) { return f.chats() }
func (f *fakes) Tail(channel, chatID string, n int) ([]transcript.Entry, error) {
	return f.tail(channel, chatID, n)
}

func newFakes() *fakes {
	f := &fakes{}
	f.Options = httpapi.Options{
		Send: func(_ context.Context, out relay.Outbound) (relay.Sent, error) {
			f.sent = append(f.sent, out)
			return relay.Sent{RelayMsgID: "r1", Relayed: true}, nil
		},
		Hear: func(_ context.Context, h relay.Heard, _ bool) (relay.Sent, error) {
			f.heard = append(f.heard, h)
			return relay.Sent{RelayMsgID: "u1"}, nil
		},
		Decide: func(_ context.Context, q relay.Question) (policy.Decision, error) {
			f.decided = append(f.decided, q)
			return policy.Decision{Allow: true, Tier: "threshold", Depth: 1}, nil
		},
		Status:      func() any { return map[string]string{"agent": "agent_a"} },
		Ready:       func() error { return nil },
		Visible:     func(channel string, chat relay.ChatID) bool { return channel == "feishu" && chat == "oc_x" },
		Transcripts: f,
		Events:      &httpapi.Events{},
		Metrics:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "sent_total 1") }),
	}
	f.chats = func() ([]transcript.Chat, error) {
		return []transcript.Chat{{Channel: "feishu", ChatID: "oc_x", Size: 5, Modified: time.UnixMilli(7)}, {Channel: "feishu", ChatID: "oc_secret"}}, nil
	}
	f.tail = func(_, chatID string, n int) ([]transcript.Entry, error) {
		return []transcript.Entry{{Role: "user", Content: fmt.Sprintf("last %d of %s", n, chatID)}}, nil
	}
	return f
}

func ask(f *fakes, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return apitest.Ask(httpapi.New(f.Options), method, path, body, change...)
}

func call(t *testing.T, f *fakes, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	return apitest.Call(t, httpapi.New(f.Options), method, path, body, change...)
}

// rig is an API on a real server, with a stream.
type rig struct {
	*fakes
	t        *testing.T
	stream   *httpapi.Stream
	url      string
	receipts chan relay.MessageID
}

func newRig(t *testing.T) *rig {
	r := &rig{fakes: newFakes(), t: t, receipts: make(chan relay.MessageID, 100)}
	r.open()
	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.stream = httpapi.NewStream(func(id relay.MessageID) { r.receipts <- id })
	stream := r.stream
	r.fakes.Stream = stream
	r.fakes.Logger = slog.New(slog.DiscardHandler)
	server := httptest.NewServer(httpapi.New(r.Options))
	r.url = server.URL
	r.t.Cleanup(func() {
		stream.Stop()
		r.Events.Close()
		server.CloseClientConnections()
		server.Close()
	})
}

func inbound(id string) relay.Inbound {
	return relay.Inbound{Channel: "feishu", SenderID: "ou_a", ChatID: "oc_x", Content: "text of " + id + "\n<at>",
		Metadata: map[string]any{"relay_msg_id": relay.MessageID(id)}}
}

// offer offers the reader messages until each is written, and returns what became of the last one.
func (r *rig) offer(ids ...string) (err error) {
	r.t.Helper()
	apitest.Until(r.t, "the reader is there", r.stream.Connected)
	for _, id := range ids {
		written, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- r.stream.Offer(r.t.Context(), r.stream.Conn(), relay.MessageID(id), inbound(id), func() { close(written) })
		}()
		select {
		case <-written:
			err = errWaits
		case err = <-ended:
		}
	}
	return err
}

// errWaits means that the reader has to acknowledge what was offered.
var errWaits = errors.New("the offer waits for an acknowledgement")

// event is one server-sent event.
type event struct{ kind, id, data string }

// subscriber is a client that reads server-sent events.
type subscriber struct {
	t      *testing.T
	events chan event
	status int
	hangUp context.CancelFunc
}

// listen connects and returns when the server has answered.
func (r *rig) listen(path string, change ...func(*http.Request)) *subscriber {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range change {
		c(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &subscriber{t: r.t, events: make(chan event, 10_000), status: resp.StatusCode, hangUp: cancel}
	go s.read(resp.Body)
	return s
}

func (s *subscriber) read(body io.ReadCloser) {
	defer body.Close()
	defer close(s.events)
	for e, err := range sse.Read(body) {
		if err == nil {
			s.events <- event{e.Kind, e.ID, string(e.Data)}
		}
	}
}

// next is the next event; ok is false when the server has ended the stream.
func (s *subscriber) next() (e event, ok bool) {
	s.t.Helper()
	select {
	case e, ok = <-s.events:
		return e, ok
	case <-time.After(apitest.Patience):
		s.t.Fatal("nothing comes")
		return e, false
	}
}

// want expects messages with these ids, and nothing else between them.
func (s *subscriber) want(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		if e, ok := s.next(); !ok || e.kind != "message" || e.id != id {
			s.t.Fatalf("got %+v (open: %v), want message %s", e, ok, id)
		}
	}
}

// wantEnd expects the stream to end with an event of kind, or "" without.
func (s *subscriber) wantEnd(kind string) {
	s.t.Helper()
	e, ok := s.next()
	if kind != "" {
		if !ok || e.kind != kind {
			s.t.Fatalf("got %+v (open: %v), want event %s", e, ok, kind)
		}
		e, ok = s.next()
	}
	if ok {
		s.t.Fatalf("got %+v, want the end", e)
	}
}

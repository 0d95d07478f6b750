package httpapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

func newStream(t *testing.T) *Stream {
	t.Helper()
	root, err := safefile.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStream(StreamOptions{Root: root, Name: "stream.jsonl", MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		root.Close()
	})
	return s
}

// bot is a reader whose writes end when the test lets them.
type bot struct {
	writing, release chan struct{}
	got              chan relay.MessageID
}

func (s *Stream) connect(t *testing.T, ctx context.Context) bot {
	t.Helper()
	b := bot{make(chan struct{}, 10), make(chan struct{}), make(chan relay.MessageID, 10)}
	turn, r, again, err := s.attach(ctx, connection{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.serve(turn, r, again, func(m *delivered) error {
			b.writing <- struct{}{}
			<-b.release
			b.got <- m.ID
			return nil
		}, func() error { return nil })
	}()
	t.Cleanup(func() { r.gone(web.ErrStopping); <-done })
	return b
}

func (s *Stream) deliverID(t *testing.T, id relay.MessageID) (delivered chan error) {
	delivered = make(chan error, 1)
	go func() {
		delivered <- s.Deliver(t.Context(), relay.Inbound{Metadata: map[string]any{"relay_msg_id": id}})
	}()
	return delivered
}

// Nobody knows what becomes of a write that a takeover overlaps, so the new
// reader gets the message too.
func TestAWriteThatATakeoverOverlapsIsRepeated(t *testing.T) {
	s := newStream(t)
	first := s.connect(t, t.Context())
	delivered := s.deliverID(t, "m1")
	<-first.writing
	second := s.connect(t, t.Context())
	close(second.release)
	close(first.release)
	if err := <-delivered; err != nil {
		t.Fatal(err)
	}
	if got := <-second.got; got != "m1" {
		t.Errorf("got %q, want m1", got)
	}
}

// A delivery that finds the reader gone does not run in circles until the
// reader's last write has failed.
func TestADeliveryDetachesAReaderThatIsGone(t *testing.T) {
	s := newStream(t)
	ctx, hangUp := context.WithCancel(t.Context())
	first := s.connect(t, ctx)
	s.deliverID(t, "m1")
	<-first.writing
	hangUp()
	m2 := s.deliverID(t, "m2")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.Connected() {
		<-tick.C
	}
	second := s.connect(t, t.Context())
	close(second.release)
	if err := <-m2; err != nil {
		t.Fatal(err)
	}
	close(first.release)
	got := map[relay.MessageID]bool{<-second.got: true, <-second.got: true}
	if !got["m1"] || !got["m2"] {
		t.Errorf("the second reader got %v, want both", got)
	}
}

// What is offered reaches the reader that is there, and waits for none.
func TestAnOfferWaitsForNoReader(t *testing.T) {
	s := newStream(t)
	m := relay.Inbound{Metadata: map[string]any{"relay_msg_id": relay.MessageID("m1")}}
	if err := s.Offer(t.Context(), "m1", m, nil); !errors.Is(err, ErrNoReader) {
		t.Errorf("without a reader: %v", err)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	first := s.connect(t, ctx)
	offered := make(chan error, 1)
	go func() { offered <- s.Offer(t.Context(), "m1", m, nil) }()
	<-first.writing
	second := s.connect(t, t.Context())
	close(first.release)
	if err := <-offered; !errors.Is(err, ErrNoReader) {
		t.Errorf("to a reader that was replaced: %v", err)
	}
	hangUp()
	close(second.release)
	if err := s.Offer(t.Context(), "m1", m, nil); err != nil || <-second.got != "m1" {
		t.Errorf("to the next: %v", err)
	}
}

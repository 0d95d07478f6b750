package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/coder/websocket"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/relay"
)

// socket is a bot on a WebSocket.
type socket struct {
	r    *rig
	conn *websocket.Conn
}

func (r *rig) dial(query string) *socket {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), apitest.Patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, r.url+messages+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetReadLimit(8 << 20)
	r.t.Cleanup(func() { conn.CloseNow() })
	return &socket{r, conn}
}

func (s *socket) read() (id string, err error) {
	ctx, cancel := context.WithTimeout(s.r.t.Context(), apitest.Patience)
	defer cancel()
	_, data, err := s.conn.Read(ctx)
	if err != nil {
		return "", err
	}
	var in relay.Inbound
	if err := json.Unmarshal(data, &in); err != nil {
		return "", err
	}
	return fmt.Sprint(in.Metadata["relay_msg_id"]), nil
}

func (s *socket) want(ids ...string) {
	s.r.t.Helper()
	for _, id := range ids {
		if got, err := s.read(); err != nil || got != id {
			s.r.t.Fatalf("got %q, %v; want %s", got, err, id)
		}
	}
}

func (s *socket) say(text string) {
	s.r.t.Helper()
	if err := s.conn.Write(s.r.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		s.r.t.Fatal(err)
	}
}

// ack acknowledges and waits for the receipts.
func (s *socket) ack(ids ...string) {
	s.r.t.Helper()
	for _, id := range ids {
		s.say(fmt.Sprintf(`{"ack":%q}`, id))
		if got := <-s.r.receipts; string(got) != id {
			s.r.t.Fatalf("receipt of %q, want %s", got, id)
		}
	}
}

// connected waits apitest.Until the server has made s the reader: a WebSocket is
// accepted first.
func (s *socket) connected() *socket {
	s.r.t.Helper()
	apitest.Until(s.r.t, "the reader is there", s.r.stream.Connected)
	return s
}

func TestAcknowledgements(t *testing.T) {
	r := newRig(t)
	s := r.dial("?ack=true")
	if err := r.offer(names(1, 3)...); err != errWaits {
		t.Errorf("got %v", err)
	}
	s.want(names(1, 3)...)
	for _, text := range []string{"", "hello", "[]", `{"ack":7}`, `{"ack":""}`, `{"ack":"a\u0000"}`, `{"nack":"m1"}`} {
		s.say(text) // means nothing
	}
	s.ack(names(1, 3)...)
}

func TestAnOfferEndsWithItsReader(t *testing.T) {
	r := newRig(t)
	s, ended := r.listen(messages+"?ack=true"), make(chan error)
	apitest.Until(t, "the reader is there", r.stream.Connected)
	go func() { ended <- r.stream.Offer(t.Context(), r.stream.Conn(), "m1", inbound("m1"), func() {}) }()
	s.want("m1")
	s.hangUp()
	if err := <-ended; err != httpapi.ErrReaderGone {
		t.Errorf("got %v", err)
	}
}

func TestTakeoverOfAWebSocket(t *testing.T) {
	r := newRig(t)
	first := r.dial("").connected()
	_ = r.offer("m1")
	first.want("m1")
	second := r.listen(messages, lastEventID("m1"))
	if _, err := first.read(); websocket.CloseStatus(err) != 4001 {
		t.Errorf("the old one: got %v, want code 4001", err)
	}
	third := r.dial("?last_event_id=m1")
	second.wantEnd("replaced")
	_ = r.offer("m2")
	third.want("m2")
}

func TestStopClosesAWebSocket(t *testing.T) {
	r := newRig(t)
	s := r.dial("").connected()
	r.stream.Stop()
	if _, err := s.read(); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("got %v, want going away", err)
	}
}

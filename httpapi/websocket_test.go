package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/coder/websocket"

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

func (s *socket) leave() {
	s.r.t.Helper()
	s.conn.CloseNow()
	apitest.Until(s.r.t, "the reader is gone", func() bool { return !s.r.stream.Connected() })
}

// connected waits apitest.Until the server has made s the reader: a WebSocket is
// accepted first.
func (s *socket) connected() *socket {
	s.r.t.Helper()
	apitest.Until(s.r.t, "the reader is there", s.r.stream.Connected)
	return s
}

// Connect, acknowledge 3, reconnect, get 3 more, die, reconnect: those come again,
// also over a restart, and to a reader of server-sent events.
func TestABotThatEverAcknowledgedAcknowledges(t *testing.T) {
	r := newRig(t)
	s := r.dial("")
	r.deliver(names(1, 3)...)
	s.want(names(1, 3)...)
	for _, text := range []string{"", "hello", "[]", `{"ack":7}`, `{"ack":""}`, `{"ack":"a\u0000"}`, `{"nack":"m1"}`} {
		s.say(text) // means nothing
	}
	s.ack(names(1, 3)...)
	s.leave()
	s = r.dial("")
	r.deliver(names(4, 6)...)
	s.want(names(4, 6)...)
	s.leave() // on a connection that acknowledged nothing
	events := r.listen(messages)
	events.want(names(4, 6)...)
	r.stream.Acknowledge("m5")
	r.leave(events)
	events = r.listen(messages)
	events.want("m4", "m6")

	r.restart()
	s = r.dial("").connected()
	r.unanswered("m7")
	s.want("m4", "m6", "m7")
}

func TestAReaderMaySayThatItAcknowledges(t *testing.T) {
	r := newRig(t)
	s := r.listen(messages + "?ack=true")
	r.unanswered("m1")
	s.want("m1")
	r.leave(s)
	s = r.listen(messages)
	s.want("m1")
	r.stream.Withdraw("m1") // it timed out
	r.leave(s)
	s = r.listen(messages)
	r.deliver("m2")
	s.want("m2")
	apitest.WantError(t, ask(r.fakes, "GET", messages+"?ack=perhaps", ""), 400, "invalid_request")
}

// unanswered offers a message to a reader that has to acknowledge it.
func (r *rig) unanswered(id string) {
	r.t.Helper()
	written, ended := r.stream.Start(r.t.Context(), inbound(id))
	select {
	case <-written:
	case err := <-ended:
		r.t.Fatalf("%s counts as delivered before it is acknowledged: %v", id, err)
	}
}

func TestTakeoverOfAWebSocket(t *testing.T) {
	r := newRig(t)
	first := r.dial("").connected()
	r.deliver("m1")
	first.want("m1")
	second := r.listen(messages, lastEventID("m1"))
	if _, err := first.read(); websocket.CloseStatus(err) != 4001 {
		t.Errorf("the old one: got %v, want code 4001", err)
	}
	third := r.dial("?last_event_id=m1")
	second.wantEnd("replaced")
	r.deliver("m2")
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

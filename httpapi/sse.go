package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// stream serves GET /v1/stream: server-sent events, or a WebSocket if the
// request asks for an upgrade.
func (a *api) stream(w http.ResponseWriter, r *http.Request) {
	if a.Stream == nil {
		a.fail(w, r, relay.Errorf(web.CodeOtherDoor,
			"messages are delivered to INJECT_URL; unset it to read them here, or watch /v1/events"))
		return
	}
	query := r.URL.Query()
	c := connection{lastID: relay.MessageID(r.Header.Get("Last-Event-ID"))}
	if c.lastID == "" { // for clients that cannot set a header
		c.lastID = relay.MessageID(query.Get("last_event_id"))
	}
	if ack := query.Get("ack"); ack != "" {
		var err error
		if c.acks, err = strconv.ParseBool(ack); err != nil {
			a.fail(w, r, a.web.Wrong("ack", "want true or false"))
			return
		}
		c.never = !c.acks
	}
	if web.IsUpgrade(r) {
		a.streamWebSocket(w, r, c)
		return
	}
	out, err := newEventWriter(w)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	c.begin, c.beat = out.start, out.comment
	c.write = func(id relay.MessageID, data []byte) error { return out.event("message", string(id), data) }
	err = a.Stream.serve(r.Context(), c)
	if refusal, ok := errors.AsType[*relay.Error](err); ok {
		a.fail(w, r, refusal)
		return
	}
	defer out.end()
	for word, cause := range map[string]error{"replaced": web.ErrReplaced, "stopping": web.ErrStopping} {
		if errors.Is(err, cause) {
			_ = out.event(word, "", fmt.Appendf(nil, `{"message":%q}`, err.Error()))
		}
	}
}

func (a *api) streamWebSocket(w http.ResponseWriter, r *http.Request, c connection) {
	conn, err := web.Accept(w, r)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(64 << 10) // acknowledgements
	// A cancelled read or write cuts the connection, so that the close code cannot be sent any more. So reads and
	// writes have their own time, and end with the connection.
	within := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), web.WriteTimeout)
		defer cancel()
		return do(ctx)
	}
	c.begin, c.beat = func() {}, func() error { return within(conn.Ping) }
	c.write = func(_ relay.MessageID, data []byte) error {
		return within(func(ctx context.Context) error { return conn.Write(ctx, websocket.MessageText, data) })
	}
	alive, gone := context.WithCancel(context.Background())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer gone()
		a.readAcks(conn)
	}()
	switch err := a.Stream.serve(alive, c); {
	case errors.Is(err, web.ErrReplaced):
		_ = conn.Close(web.StatusReplaced, web.ErrReplaced.Error())
	case !errors.Is(err, context.Canceled):
		_ = conn.Close(websocket.StatusGoingAway, web.ErrStopping.Error())
	}
	_ = conn.CloseNow()
	<-read
}

// readAcks reads the bot's side of the connection until it ends.
func (a *api) readAcks(conn *websocket.Conn) {
	for {
		_, data, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		var msg struct {
			Ack relay.MessageID `json:"ack"`
		}
		if json.Unmarshal(data, &msg) == nil && msg.Ack != "" && relay.CheckID(string(msg.Ack)) == nil {
			a.Stream.receipt(msg.Ack)
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct{ patient }

func newEventWriter(w http.ResponseWriter) (*eventWriter, error) {
	e := &eventWriter{patient{w, http.NewResponseController(w)}}
	// The server's timeout for reading a request would end the connection.
	if err := e.ctl.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("stream events: %w", err)
	}
	return e, nil
}

func (e *eventWriter) start() {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // else nginx buffers events
	e.w.WriteHeader(http.StatusOK)
	_ = e.write("retry: 1000\n\n")
}

// end lets the server write the end of the answer, also when nothing was written for longer than
// [web.WriteTimeout]: without it a reader takes the stream for one that was cut off.
func (e *eventWriter) end() { _ = e.ctl.SetWriteDeadline(time.Now().Add(web.WriteTimeout)) }

// event writes one event; data is one line of JSON.
func (e *eventWriter) event(kind, id string, data []byte) error {
	if id != "" {
		id = "id: " + id + "\n"
	}
	return e.write("event: " + kind + "\n" + id + "data: " + string(data) + "\n\n")
}

func (e *eventWriter) comment() error { return e.write(": still here\n\n") }

func (e *eventWriter) write(text string) error {
	if _, err := e.Write([]byte(text)); err != nil {
		return err
	}
	return e.ctl.Flush()
}

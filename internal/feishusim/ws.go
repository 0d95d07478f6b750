package feishusim

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

const (
	bootstrapPath = "/callback/ws/endpoint"
	socketPath    = "/ws/v2"

	maxConns     = 50              // of one app (docs/feishu.md 1.8)
	ticketFor    = 2 * time.Minute // how long a URL from bootstrap is valid, for one connection
	queueFrames  = 4096            // to one connection; a frame beyond it is lost, as on a broken connection
	writeWithin  = 10 * time.Second
	maxFrame     = 16 << 20
	maxFragments = 64
	serviceID    = 33554678
)

type ticket struct {
	app, device string
	until       time.Time
}

// conn is a long connection of an app.
type conn struct {
	id     string // device_id
	app    *app
	socket *websocket.Conn
	out    chan []byte
	ready  bool // for events; guarded by Server.mu
	opens  *time.Timer
	closer sync.Once
}

// cut ends the connection without a close frame.
func (c *conn) cut() { c.closer.Do(func() { go c.socket.CloseNow() }) }

// close ends the connection with a close frame.
func (c *conn) close(code int, reason string) {
	c.closer.Do(func() {
		go c.socket.Close(websocket.StatusCode(cmp.Or(code, int(websocket.StatusGoingAway))), reason)
	})
}

// bootstrap returns the URL of a WebSocket (docs/feishu.md 1.1).
func bootstrap(c *call) (any, error) {
	var in struct {
		AppID     string
		AppSecret string
	}
	refuse := func(code int, msg string) (any, error) {
		return nil, &apiError{status: http.StatusOK, code: code, msg: msg}
	}
	if json.Unmarshal(c.body, &in) != nil || in.AppID == "" {
		return refuse(1000040344, "no credential")
	}
	s := c.s
	a := s.apps[in.AppID]
	if f := s.fault(FaultBootstrap, in.AppID); f != nil {
		return nil, &apiError{status: cmp.Or(f.Status, http.StatusOK), code: f.Code, msg: cmp.Or(f.Msg, "refused")}
	}
	switch {
	case a == nil || !a.is(in.AppSecret):
		return refuse(larkws.AuthFailed, "app id or secret is invalid")
	case len(a.conns) >= maxConns:
		return refuse(larkws.ExceedConnLimit, "the number of connections exceeded the limit")
	}
	now := time.Now()
	for key, t := range s.tickets {
		if now.After(t.until) {
			delete(s.tickets, key)
		}
	}
	device, key := newID("", 10), newID("", 16)
	s.tickets[key] = &ticket{a.ID, device, now.Add(ticketFor)}
	scheme := "ws"
	if c.r.TLS != nil {
		scheme = "wss"
	}
	// The Node SDK cannot read the first parameter (docs/feishu.md 1.2).
	query := "fpid=493&aid=552564&device_id=" + device + "&access_key=" + newID("", 16) +
		"&service_id=" + strconv.Itoa(serviceID) + "&ticket=" + key
	u := url.URL{Scheme: scheme, Host: c.r.Host, Path: socketPath, RawQuery: query}
	return map[string]any{"URL": u.String(), "ClientConfig": s.opts.Client}, nil
}

// socket is the WebSocket of a long connection.
func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	s.record(r, nil)
	a, device, refused := s.admit(r)
	if a == nil {
		h := w.Header()
		h.Set(larkws.HeaderHandshakeStatus, strconv.Itoa(larkws.AuthFailed))
		h.Set(larkws.HeaderHandshakeMsg, "refused")
		h.Set(larkws.HeaderHandshakeAuthErrCode, strconv.Itoa(refused))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	socket.SetReadLimit(maxFrame)
	c := &conn{id: device, app: a, socket: socket, out: make(chan []byte, queueFrames)}
	if !s.connect(c) {
		socket.CloseNow()
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.tasks.Go(func() { c.write(ctx) })
	s.readFrames(ctx, c)
	c.cut()
	s.disconnect(c)
}

// admit returns the app of an upgrade, or nil and a code.
func (s *Server) admit(r *http.Request) (a *app, device string, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.URL.Query().Get("ticket")
	t := s.tickets[key]
	delete(s.tickets, key)
	if t == nil || time.Now().After(t.until) {
		return nil, "", 1000040344
	}
	if a = s.apps[t.app]; len(a.conns) >= maxConns {
		return nil, "", larkws.ExceedConnLimit
	}
	return a, t.device, 0
}

func (s *Server) connect(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Add(1) // http.Server.Close does not wait for handlers of hijacked connections
	c.app.conns = append(c.app.conns, c)
	if s.opts.PushAfter > 0 {
		c.opens = time.AfterFunc(s.opts.PushAfter, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if slices.Contains(c.app.conns, c) && !s.closed {
				s.opened(c)
			}
		})
	}
	s.bump()
	return true
}

func (s *Server) disconnect(c *conn) {
	defer s.tasks.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.opens != nil {
		c.opens.Stop()
	}
	c.app.conns = slices.DeleteFunc(c.app.conns, func(o *conn) bool { return o == c })
	for _, p := range slices.Clone(c.app.pending) {
		if p.on != c {
			continue
		}
		if p.on = nil; len(c.app.ready()) > 0 {
			s.missed(p)
		} else {
			p.stop() // flush delivers it
		}
	}
	s.announce(Activity{Kind: "disconnected", App: c.app.ID})
	s.bump()
}

// write sends queued frames until the connection ends.
func (c *conn) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case frame := <-c.out:
			within, cancel := context.WithTimeout(ctx, writeWithin)
			err := c.socket.Write(within, websocket.MessageBinary, frame)
			cancel()
			if err != nil {
				c.cut()
				return
			}
		}
	}
}

func (c *conn) queue(f *larkws.Frame) {
	b, err := f.Marshal()
	if err != nil {
		return // unreachable: these frames always marshal
	}
	select {
	case c.out <- b:
	default: // no reader any more
	}
}

// readFrames handles pings and acknowledgements until the connection ends.
func (s *Server) readFrames(ctx context.Context, c *conn) {
	patience := 3*time.Duration(max(s.opts.Client.PingInterval, 1))*time.Second + 30*time.Second
	for {
		within, cancel := context.WithTimeout(ctx, patience)
		kind, data, err := c.socket.Read(within)
		cancel()
		if err != nil {
			return
		}
		var f larkws.Frame
		if kind != websocket.MessageBinary || f.Unmarshal(data) != nil {
			continue // Feishu's handling of these is not known
		}
		if larkws.FrameType(f.Method) == larkws.FrameTypeControl {
			s.controlFrame(c, &f)
		} else {
			s.acknowledged(c, &f)
		}
	}
}

// controlFrame answers a ping, which opens the connection for events.
func (s *Server) controlFrame(c *conn, f *larkws.Frame) {
	if larkws.MessageType(larkws.Headers(f.Headers).GetString(larkws.HeaderType)) != larkws.MessageTypePing {
		return
	}
	config, _ := json.Marshal(s.opts.Client) // four numbers
	s.mu.Lock()
	defer s.mu.Unlock()
	c.queue(&larkws.Frame{
		Service: f.Service, Method: int32(larkws.FrameTypeControl), Payload: config,
		Headers: []larkws.Header{{Key: larkws.HeaderType, Value: string(larkws.MessageTypePong)}},
	})
	s.opened(c)
}

// opened makes a connection ready for events, once. The caller holds s.mu.
func (s *Server) opened(c *conn) {
	if c.ready {
		return
	}
	c.ready = true
	s.announce(Activity{Kind: "ready", App: c.app.ID})
	s.bump()
	s.flush(c.app)
}

// acknowledged handles the answer to an event. It compares only message_id,
// since the answer to a fragmented event may have the headers of any piece
// (docs/feishu.md 1.6).
func (s *Server) acknowledged(c *conn, f *larkws.Frame) {
	var answer struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(f.Payload, &answer) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(c.app, larkws.Headers(f.Headers).GetString(larkws.HeaderMessageID), answer.Code)
}

// frames returns the frames of an event, in one piece or several.
func frames(id string, event []byte, pieces int) []*larkws.Frame {
	pieces = max(1, min(pieces, len(event)))
	size := (len(event) + pieces - 1) / pieces
	pieces = (len(event) + size - 1) / size
	var all []*larkws.Frame
	for i := range pieces {
		all = append(all, &larkws.Frame{
			SeqID: rand.Uint64(), LogID: rand.Uint64(), Service: serviceID, Method: int32(larkws.FrameTypeData),
			Headers: []larkws.Header{
				{Key: larkws.HeaderType, Value: string(larkws.MessageTypeEvent)},
				{Key: larkws.HeaderMessageID, Value: id},
				{Key: larkws.HeaderSum, Value: strconv.Itoa(pieces)},
				{Key: larkws.HeaderSeq, Value: strconv.Itoa(i)},
				{Key: larkws.HeaderTraceID, Value: newID("", 16)},
				{Key: larkws.HeaderTimestamp, Value: strconv.FormatInt(time.Now().UnixMilli(), 10)},
				{Key: larkws.HeaderInstanceID, Value: "feishusim"},
			},
			Payload: event[i*size : min(len(event), (i+1)*size)],
		})
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// Connections returns how many long connections of an app are ready for events.
func (s *Server) Connections(app string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.apps[app]
	if a == nil {
		return 0
	}
	return len(a.ready())
}

// WaitConnected blocks until an app has n connections that are ready for events.
func (s *Server) WaitConnected(ctx context.Context, app string, n int) error {
	return s.until(ctx, func() bool {
		a := s.apps[app]
		return a != nil && len(a.ready()) >= n
	})
}

// ready returns the app's connections that are ready for events.
func (a *app) ready() []*conn {
	var all []*conn
	for _, c := range a.conns {
		if c.ready {
			all = append(all, c)
		}
	}
	return all
}

package conn

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

// Frame is a message of the long connection (docs/feishu.md 1.3).
type Frame struct {
	larkws.Frame
	Raw []byte // as received
}

const usualHeaders = 8 // room for as many as events have

// ParseFrame reads a frame. ok is false if the SDK could not read it.
func ParseFrame(data []byte) (f *Frame, ok bool) {
	f = &Frame{Raw: data}
	f.Headers = make([]larkws.Header, 0, usualHeaders)
	return f, f.Unmarshal(data) == nil
}

// Header returns the value of the first header with a key, "" without one.
func (f *Frame) Header(key string) string { return larkws.Headers(f.Headers).GetString(key) }

// ID is the frame's message_id.
func (f *Frame) ID() string { return f.Header(larkws.HeaderMessageID) }

// IsData reports whether f carries an event, or the acknowledgement of one.
func (f *Frame) IsData() bool { return larkws.FrameType(f.Method) == larkws.FrameTypeData }

// IsEvent reports whether f carries an event.
func (f *Frame) IsEvent() bool {
	kind := larkws.MessageType(f.Header(larkws.HeaderType))
	return f.IsData() && (kind == larkws.MessageTypeEvent || kind == larkws.MessageTypeCard)
}

// IsPing reports whether f is a ping.
func (f *Frame) IsPing() bool { return f.isControl(larkws.MessageTypePing) }

// IsPong reports whether f is the answer to a ping.
func (f *Frame) IsPong() bool { return f.isControl(larkws.MessageTypePong) }

func (f *Frame) isControl(kind larkws.MessageType) bool {
	return larkws.FrameType(f.Method) == larkws.FrameTypeControl && f.Header(larkws.HeaderType) == string(kind)
}

// With encodes f with another payload, and with headers replaced or added.
func (f *Frame) With(payload []byte, headers ...larkws.Header) ([]byte, error) {
	out := f.Frame
	out.Payload, out.Headers = payload, slices.Clone(f.Headers)
	for _, h := range headers {
		if i := slices.IndexFunc(out.Headers, func(o larkws.Header) bool { return o.Key == h.Key }); i >= 0 {
			out.Headers[i] = h
		} else {
			out.Headers = append(out.Headers, h)
		}
	}
	return out.Marshal()
}

// Whole encodes f, which may be one of several frames, as the only frame of another event.
func (f *Frame) Whole(event []byte) ([]byte, error) {
	return f.With(event, larkws.Header{Key: larkws.HeaderSum, Value: "1"},
		larkws.Header{Key: larkws.HeaderSeq, Value: "0"})
}

// Code is the code of an acknowledgement (docs/feishu.md 1.6); 0 without one.
func (f *Frame) Code() int {
	var ack struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(f.Payload, &ack) != nil {
		return 0
	}
	return ack.Code
}

// CodeWrongDomain is the answer to the bootstrap call of a Feishu app at Lark, or the reverse (docs/feishu.md 1.1).
const CodeWrongDomain = 1000040351

// FixDomain is what to do about it.
const FixDomain = "set FEISHU_BASE_URL to https://open.larksuite.com for a Lark app, " +
	"https://open.feishu.cn for a Feishu app"

// Bounds of incomplete events; beyond them the oldest are dropped.
const (
	maxIncomplete = 64       // events
	maxBytes      = 16 << 20 // of all frames together
	maxPieces     = 1024     // of one event
	// piecesWait is the time from the first piece to the last: as long as the most patient SDK
	// waits (docs/feishu.md 1.5).
	piecesWait = 10 * time.Second
)

// Pieces joins events that come in several frames, in any order (docs/feishu.md 1.5). It
// is safe for concurrent use.
type Pieces struct {
	// Dropped is called, from any goroutine, with the frames of an event that does not become
	// complete, as received.
	Dropped func(frames [][]byte)

	mu     sync.Mutex
	events []*incomplete // oldest first; guarded by mu
	bytes  int           // guarded by mu
}

type incomplete struct {
	id      string
	frames  [][]byte // as received
	bySeq   [][]byte // the same by seq; nil: missing
	missing int
	bytes   int
	timer   *time.Timer
}

// Add adds a frame of an event. Once the event is complete it returns it with all of its
// frames as received, in the order of arrival; until then frames is nil. ok is false for a frame that
// is not a piece of its event, or too large to wait; it is not kept.
func (p *Pieces) Add(f *Frame) (frames [][]byte, event []byte, ok bool) {
	h := larkws.Headers(f.Headers)
	id, sum, seq := f.ID(), h.GetInt(larkws.HeaderSum), h.GetInt(larkws.HeaderSeq)
	if sum <= 1 {
		return [][]byte{f.Raw}, f.Payload, true
	}
	if id == "" || sum > maxPieces || seq < 0 || seq >= sum || len(f.Raw) > maxBytes {
		return nil, nil, false
	}
	p.mu.Lock()
	e := p.find(id)
	if e != nil && len(e.bySeq) != sum {
		p.mu.Unlock()
		return nil, nil, false
	}
	var dropped [][]byte
	if e == nil {
		if len(p.events) == maxIncomplete {
			dropped = p.remove(p.events[0])
		}
		e = &incomplete{id: id, bySeq: make([][]byte, sum), missing: sum}
		e.timer = time.AfterFunc(piecesWait, func() { p.drop(e) })
		p.events = append(p.events, e)
	}
	if e.bySeq[seq] == nil {
		e.missing--
	}
	e.bySeq[seq] = f.Raw
	e.frames = append(e.frames, f.Raw)
	e.bytes += len(f.Raw)
	p.bytes += len(f.Raw)
	complete := e.missing == 0
	if complete {
		p.remove(e)
	}
	for p.bytes > maxBytes {
		dropped = append(dropped, p.remove(p.events[0])...)
	}
	p.mu.Unlock()
	p.report(dropped)
	if !complete {
		return nil, nil, true
	}
	for _, raw := range e.bySeq {
		if piece, ok := ParseFrame(raw); ok { // it was parsed before
			event = append(event, piece.Payload...)
		}
	}
	return e.frames, event, true
}

// Drop drops the frames of an incomplete event.
func (p *Pieces) Drop(id string) {
	p.mu.Lock()
	e := p.find(id)
	p.mu.Unlock()
	if e != nil {
		p.drop(e)
	}
}

func (p *Pieces) drop(e *incomplete) {
	p.mu.Lock()
	frames := p.remove(e)
	p.mu.Unlock()
	p.report(frames)
}

func (p *Pieces) report(dropped [][]byte) {
	if len(dropped) > 0 {
		p.Dropped(dropped)
	}
}

// find returns an incomplete event, nil if there is none. The caller holds mu.
func (p *Pieces) find(id string) *incomplete {
	if i := slices.IndexFunc(p.events, func(e *incomplete) bool { return e.id == id }); i >= 0 {
		return p.events[i]
	}
	return nil
}

// remove removes an event and returns its frames, nil if it was removed before. The caller holds mu.
func (p *Pieces) remove(e *incomplete) [][]byte {
	i := slices.Index(p.events, e)
	if i < 0 {
		return nil
	}
	p.events = slices.Delete(p.events, i, i+1)
	p.bytes -= e.bytes
	e.timer.Stop()
	return e.frames
}

const (
	// BootstrapPath is the path of the call that returns the address of a long connection.
	BootstrapPath = larkws.GenEndpointUri
	// CallTimeout is for the bootstrap call, and for opening the WebSocket: as long as the Node SDK waits
	// (docs/feishu.md 1.1).
	CallTimeout = 15 * time.Second
	// WriteTimeout is for one message on a WebSocket; then the connection is closed.
	WriteTimeout = 10 * time.Second
	// MaxAnswer is the most bytes of Feishu's answer to the bootstrap call that are read.
	MaxAnswer = 1 << 20
	// MaxMessage is the most bytes of a WebSocket message; a larger one closes the connection.
	MaxMessage = 16 << 20
)

// Endpoint is the address that Feishu gives for a long connection.
type Endpoint struct {
	URL    *url.URL
	Config json.RawMessage // a ClientConfig; nil without one
}

// ParseEndpoint reads Feishu's answer to a bootstrap call (docs/feishu.md 1.1). A refusal is an error with a
// [*feishu.CodeError] in it.
func ParseEndpoint(answer []byte) (e Endpoint, err error) {
	data, err := feishu.ReadAnswer[struct {
		URL          string          `json:"URL"`
		ClientConfig json.RawMessage `json:"ClientConfig"`
	}](answer)
	if err != nil {
		return e, err
	}
	u, err := url.Parse(data.URL)
	if err != nil || u.Host == "" || u.Scheme != "ws" && u.Scheme != "wss" {
		return e, errors.New("the answer has no WebSocket address")
	}
	return Endpoint{u, data.ClientConfig}, nil
}

// ServiceID returns the service id of a client's pings (docs/feishu.md 1.2); 0 without one.
func ServiceID(endpoint *url.URL) int32 {
	n, _ := strconv.ParseInt(endpoint.Query().Get(larkws.ServiceID), 10, 32)
	return int32(n)
}

// Dial opens the WebSocket of an endpoint. pinged, which may be nil, is called for each of
// Feishu's WebSocket pings. If Feishu refuses, the error comes with its response.
func Dial(ctx context.Context, client *http.Client, endpoint *url.URL, pinged func()) (*websocket.Conn, *http.Response,
	error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, endpoint.String(), &websocket.DialOptions{
		HTTPClient: client,
		HTTPHeader: http.Header{"User-Agent": nil}, // the SDKs send none
		OnPingReceived: func(context.Context, []byte) bool {
			if pinged != nil {
				pinged()
			}
			return true
		},
	})
	if err != nil {
		if resp != nil && resp.StatusCode == http.StatusSwitchingProtocols {
			resp = nil
		}
		return nil, resp, feishu.WithoutURL(err)
	}
	ws.SetReadLimit(MaxMessage)
	return ws, nil, nil
}

// Write writes a message, and closes the connection if that takes longer than WriteTimeout.
func Write(ws *websocket.Conn, kind websocket.MessageType, message []byte) error {
	late := time.AfterFunc(WriteTimeout, func() { _ = ws.CloseNow() })
	defer late.Stop()
	return ws.Write(context.Background(), kind, message)
}

package link

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// frame is a message of the long connection (docs/feishu.md 1.3).
type frame struct {
	larkws.Frame
	raw []byte // as received
}

const usualHeaders = 8 // room for as many as events have

// parse reads a frame. ok is false if the SDK could not read it.
func parse(data []byte) (f *frame, ok bool) {
	f = &frame{raw: data}
	f.Headers = make([]larkws.Header, 0, usualHeaders)
	return f, f.Unmarshal(data) == nil
}

func (f *frame) header(key string) string { return larkws.Headers(f.Headers).GetString(key) }

func (f *frame) id() string { return f.header(larkws.HeaderMessageID) }

// isData reports whether f carries an event, or the acknowledgement of one.
func (f *frame) isData() bool { return larkws.FrameType(f.Method) == larkws.FrameTypeData }

func (f *frame) isEvent() bool {
	kind := larkws.MessageType(f.header(larkws.HeaderType))
	return f.isData() && (kind == larkws.MessageTypeEvent || kind == larkws.MessageTypeCard)
}

func (f *frame) isControl(kind larkws.MessageType) bool {
	return larkws.FrameType(f.Method) == larkws.FrameTypeControl && f.header(larkws.HeaderType) == string(kind)
}

// with encodes f with another payload, and with headers replaced or added.
func (f *frame) with(payload []byte, headers ...larkws.Header) []byte {
	out := f.Frame
	out.Payload, out.Headers = payload, slices.Clone(f.Headers)
	for _, h := range headers {
		if i := slices.IndexFunc(out.Headers, func(o larkws.Header) bool { return o.Key == h.Key }); i >= 0 {
			out.Headers[i] = h
		} else {
			out.Headers = append(out.Headers, h)
		}
	}
	return encode(&out)
}

// whole encodes f, which may be one of several frames, as the only frame of another event.
func (f *frame) whole(event []byte) []byte {
	return f.with(event, larkws.Header{Key: larkws.HeaderSum, Value: "1"}, larkws.Header{Key: larkws.HeaderSeq, Value: "0"})
}

// ack encodes the acknowledgement of the event of f with a code, as a client does that has worked on it since start
// (docs/feishu.md 1.6).
func (f *frame) ack(code int, start time.Time) []byte {
	return f.with(fmt.Appendf(nil, `{"code":%d,"headers":null,"data":null}`, code),
		larkws.Header{Key: larkws.HeaderBizRt, Value: strconv.FormatInt(time.Since(start).Milliseconds(), 10)})
}

// code is that of an acknowledgement; 0 without one.
func (f *frame) code() int {
	var ack struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(f.Payload, &ack) // what does not fit has none
	return ack.Code
}

// newEvent encodes an injected event, in one piece, since the SDKs may lose one in several (docs/feishu.md 1.5).
func newEvent(id string, service int32, event []byte) []byte {
	return encode(&larkws.Frame{
		SeqID:   1 + rand.Uint64N(1<<53-1), // what a JavaScript number holds
		LogID:   1 + rand.Uint64N(1<<53-1),
		Service: service,
		Method:  int32(larkws.FrameTypeData),
		Headers: []larkws.Header{
			{Key: larkws.HeaderType, Value: string(larkws.MessageTypeEvent)},
			{Key: larkws.HeaderMessageID, Value: id},
			{Key: larkws.HeaderSum, Value: "1"},
			{Key: larkws.HeaderSeq, Value: "0"},
			{Key: larkws.HeaderTraceID, Value: id},
			{Key: larkws.HeaderTimestamp, Value: strconv.FormatInt(time.Now().UnixMilli(), 10)},
		},
		Payload: event,
	})
}

func encode(f *larkws.Frame) []byte {
	data, _ := f.Marshal() // it never fails for a value in memory
	return data
}

// Bounds of the incomplete events of a connection; beyond them the oldest are dropped. No SDK can read them then, and
// Feishu delivers them again.
const (
	maxIncomplete = 64               // events
	maxBytes      = 16 << 20         // of all their frames
	maxPieces     = 1024             // of one event
	piecesWait    = 10 * time.Second // from the first piece on: as long as the most patient SDK waits (docs/feishu.md 1.5)
)

// pieces joins the events of a connection that come in several frames, in any order (docs/feishu.md 1.5).
type pieces struct {
	events []*incomplete // the oldest first
	bytes  int
}

type incomplete struct {
	id     string
	since  time.Time
	frames [][]byte // as received
	bySeq  [][]byte // the payloads; empty: missing
	bytes  int      // of frames
}

// add adds a frame of an event. Once that is complete it returns its frames as received, in the order of arrival, and
// the event. It returns frames without an event where f is not a piece of the event that it says: f and the earlier
// frames of that. dropped is how many events do not become complete.
func (p *pieces) add(f *frame) (frames [][]byte, event []byte, dropped int) {
	h := larkws.Headers(f.Headers)
	id, sum, seq := f.id(), h.GetInt(larkws.HeaderSum), h.GetInt(larkws.HeaderSeq)
	if sum <= 1 {
		return [][]byte{f.raw}, f.Payload, 0
	}
	i := slices.IndexFunc(p.events, func(e *incomplete) bool { return e.id == id })
	if i < 0 {
		i = len(p.events)
		p.events = append(p.events, &incomplete{id: id, since: time.Now(), bySeq: make([][]byte, max(0, min(sum, maxPieces)))})
	}
	e := p.events[i]
	e.frames, e.bytes, p.bytes = append(e.frames, f.raw), e.bytes+len(f.raw), p.bytes+len(f.raw)
	if id == "" || sum != len(e.bySeq) || seq < 0 || seq >= sum || e.bytes > maxBytes {
		return p.remove(i).frames, nil, 1
	}
	e.bySeq[seq] = f.Payload
	if !slices.ContainsFunc(e.bySeq, func(piece []byte) bool { return len(piece) == 0 }) { // empty ones never count
		return p.remove(i).frames, slices.Concat(e.bySeq...), 0
	}
	for len(p.events) > maxIncomplete || p.bytes > maxBytes || len(p.events) > 0 && time.Since(p.events[0].since) > piecesWait {
		p.remove(0)
		dropped++
	}
	return nil, nil, dropped
}

func (p *pieces) remove(i int) *incomplete {
	e := p.events[i]
	p.events, p.bytes = slices.Delete(p.events, i, i+1), p.bytes-e.bytes
	return e
}

package conn

import (
	"encoding/json"
	"slices"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// Frame is a message of the long connection (docs/feishu.md 1.3).
type Frame struct {
	larkws.Frame
	Raw []byte // as it came
}

const usualHeaders = 8 // room for as many as events have

// ParseFrame reads a frame. ok is false where the SDK would not take it for one.
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

// Whole encodes f, which may be one of several, with another event in it that is not in pieces.
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

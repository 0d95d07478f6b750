package longconn

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// ourPrefix begins the message_id of every frame that we made: by it the bot's
// acknowledgement is told from those that are Feishu's.
const ourPrefix = "relay-"

// ackOK is the code of an acknowledgement that says: handled.
const ackOK = http.StatusOK

// frame is what of a message of the long connection has to be known for passing
// it on (docs/feishu.md 1.3); the message is read no further than that.
type frame struct {
	raw     []byte // all of it
	payload []byte // part of raw
	method  larkws.FrameType
	kind    larkws.MessageType // event, card, ping, pong
	id      string             // message_id
	sum     int                // -1: none
	seq     int                // -1: none
}

// parse reads a frame. What is none passes unread.
func parse(data []byte) (f frame, ok bool) {
	f = frame{raw: data, method: -1, sum: -1, seq: -1}
	ok = fields(data, func(field, number uint64, value []byte) bool {
		switch field {
		case 4:
			f.method = larkws.FrameType(int32(number))
		case 5:
			return f.header(value)
		case 8:
			f.payload = value
		}
		return true
	})
	return f, ok
}

// header reads one of the frame's headers; of several with a key the first
// counts, as for the SDK.
func (f *frame) header(data []byte) (ok bool) {
	var key, value []byte
	ok = fields(data, func(field, _ uint64, v []byte) bool {
		switch field {
		case 1:
			key = v
		case 2:
			value = v
		}
		return true
	})
	switch string(key) {
	case larkws.HeaderType:
		if f.kind == "" {
			f.kind = larkws.MessageType(value)
		}
	case larkws.HeaderMessageID:
		if f.id == "" {
			f.id = string(value)
		}
	case larkws.HeaderSum:
		f.sum = number(f.sum, value)
	case larkws.HeaderSeq:
		f.seq = number(f.seq, value)
	}
	return ok
}

// number is a header's number, unless an earlier one had been there.
func number(earlier int, value []byte) int {
	if earlier >= 0 {
		return earlier
	}
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return -1
	}
	return n
}

// fields calls yield with the fields of a protobuf message: with the number of
// a varint, or the value of a length-delimited one. It reports whether data is
// such a message; yield may end it by returning false.
func fields(data []byte, yield func(field, number uint64, value []byte) bool) bool {
	depth := 0 // of groups, which a frame has none of
	for len(data) > 0 {
		tag, n := varint(data)
		if n == 0 {
			return false
		}
		data = data[n:]
		var number uint64
		var value []byte
		size := 0 // of what is skipped
		switch wire := tag & 7; wire {
		case 0, 2:
			if number, n = varint(data); n == 0 {
				return false
			}
			data = data[n:]
			if wire == 2 {
				if number > uint64(len(data)) {
					return false
				}
				value, data = data[:number], data[number:]
			}
		case 1:
			size = 8
		case 5:
			size = 4
		case 3:
			depth++
		case 4:
			depth--
		default:
			return false
		}
		if size > len(data) || depth < 0 {
			return false
		}
		data = data[size:]
		if depth == 0 && !yield(tag>>3, number, value) {
			return false
		}
	}
	return depth == 0
}

// varint is binary.Uvarint with the SDK's eye: bits beyond 64 are dropped. n is 0
// where there is none.
func varint(data []byte) (v uint64, n int) {
	for i, b := range data[:min(len(data), binary.MaxVarintLen64)] {
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

func (f *frame) isPing() bool {
	return f.method == larkws.FrameTypeControl && f.kind == larkws.MessageTypePing
}

func (f *frame) isPong() bool {
	return f.method == larkws.FrameTypeControl && f.kind == larkws.MessageTypePong
}

func (f *frame) isData() bool { return f.method == larkws.FrameTypeData }

func (f *frame) isEvent() bool {
	return f.isData() && (f.kind == larkws.MessageTypeEvent || f.kind == larkws.MessageTypeCard)
}

func (f *frame) isOurs() bool { return f.isData() && strings.HasPrefix(f.id, ourPrefix) }

// change returns the frame with another payload, and with headers added.
func (f *frame) change(payload []byte, headers ...larkws.Header) ([]byte, error) {
	var full larkws.Frame
	if err := full.Unmarshal(f.raw); err != nil {
		return nil, err
	}
	full.Payload = payload
	full.Headers = append(full.Headers, headers...)
	return full.Marshal()
}

// whole returns the frame, which may be a piece of an event, with another whole event in it.
func (f *frame) whole(event []byte) ([]byte, error) {
	var full larkws.Frame
	if err := full.Unmarshal(f.raw); err != nil {
		return nil, err
	}
	full.Payload = event
	for i := range full.Headers {
		switch full.Headers[i].Key {
		case larkws.HeaderSum:
			full.Headers[i].Value = "1"
		case larkws.HeaderSeq:
			full.Headers[i].Value = "0"
		}
	}
	return full.Marshal()
}

// ack is what a bot would answer (docs/feishu.md 1.6): the frame again, with a code.
func (f *frame) ack() ([]byte, error) {
	return f.change([]byte(`{"code":200}`), larkws.Header{Key: larkws.HeaderBizRt, Value: "0"})
}

// ackCode is the code of an acknowledgement; 0: it has none.
func (f *frame) ackCode() int {
	var a struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(f.payload, &a) != nil {
		return 0
	}
	return a.Code
}

// newEvent makes the frame of an event of ours, in one piece, since the SDKs may lose
// one in several (docs/feishu.md 1.5).
func newEvent(id string, service int32, event []byte, now time.Time) ([]byte, error) {
	var h larkws.Headers
	h.Add(larkws.HeaderType, string(larkws.MessageTypeEvent))
	h.Add(larkws.HeaderMessageID, id)
	h.Add(larkws.HeaderSum, "1")
	h.Add(larkws.HeaderSeq, "0")
	h.Add(larkws.HeaderTraceID, id)
	h.Add(larkws.HeaderTimestamp, strconv.FormatInt(now.UnixMilli(), 10))
	f := larkws.Frame{
		SeqID:   1 + rand.Uint64N(1<<53-1), // what a JavaScript number holds
		LogID:   1 + rand.Uint64N(1<<53-1),
		Service: service,
		Method:  int32(larkws.FrameTypeData),
		Headers: h,
		Payload: event,
	}
	return f.Marshal()
}

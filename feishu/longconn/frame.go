package longconn

import (
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

// frame is a message of the long connection (FEISHU.md 1.3).
type frame struct {
	larkws.Frame
	kind larkws.MessageType // event, card, ping, pong
	id   string             // message_id
}

// parse reads a frame. What is none passes unread.
func parse(data []byte) (f frame, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	if f.Unmarshal(data) != nil {
		return frame{}, false
	}
	h := larkws.Headers(f.Headers)
	f.kind = larkws.MessageType(h.GetString(larkws.HeaderType))
	f.id = h.GetString(larkws.HeaderMessageID)
	return f, true
}

func (f *frame) isPing() bool {
	return larkws.FrameType(f.Method) == larkws.FrameTypeControl && f.kind == larkws.MessageTypePing
}

func (f *frame) isPong() bool {
	return larkws.FrameType(f.Method) == larkws.FrameTypeControl && f.kind == larkws.MessageTypePong
}

func (f *frame) isData() bool {
	return larkws.FrameType(f.Method) == larkws.FrameTypeData
}

func (f *frame) isEvent() bool {
	return f.isData() && (f.kind == larkws.MessageTypeEvent || f.kind == larkws.MessageTypeCard)
}

func (f *frame) isOurs() bool {
	return f.isData() && strings.HasPrefix(f.id, ourPrefix)
}

// number is a header's value, -1 where it is none.
func (f *frame) number(key string) int {
	n, err := strconv.Atoi(larkws.Headers(f.Headers).GetString(key))
	if err != nil {
		return -1
	}
	return n
}

// ack is what a bot would answer (FEISHU.md 1.6): the frame again, with a code.
func (f *frame) ack() ([]byte, error) {
	a := f.Frame
	a.Headers = append(append(make([]larkws.Header, 0, len(f.Headers)+1), f.Headers...), larkws.Header{Key: larkws.HeaderBizRt, Value: "0"})
	a.Payload = []byte(`{"code":200}`)
	return a.Marshal()
}

// ackCode is the code of an acknowledgement; 0: it has none.
func (f *frame) ackCode() int {
	var a struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(f.Payload, &a) != nil {
		return 0
	}
	return a.Code
}

// newEvent makes the frame of an event of ours, in one piece, since the SDKs may lose
// one in several (FEISHU.md 1.5).
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

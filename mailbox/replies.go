package mailbox

import (
	"encoding/json"
	"time"

	"feishu-relay/internal/runes"
)

// maxRefusal is the most bytes that are kept of why somebody refused a message;
// what is over is cut.
const maxRefusal = 1000

// ackContent is the content of ack, nack and pong (docs/protocol.md 6.8).
type ackContent struct {
	OriginalMessageID string   `json:"originalMessageId"`
	Success           *bool    `json:"success,omitempty"`
	Timestamp         string   `json:"timestamp,omitempty"`
	Error             *refusal `json:"error,omitempty"`
}

type refusal struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// AckFor returns the acknowledgement of an envelope.
func AckFor(of Envelope, self AgentID, now time.Time) Envelope {
	return reply(of, self, now, TypeAck, ackContent{Success: new(true), Timestamp: formatTime(now)})
}

// NackFor returns the refusal of an envelope.
func NackFor(of Envelope, self AgentID, now time.Time, code Code, message string) Envelope {
	why := &refusal{code, runes.Cut(message, maxRefusal)}
	return reply(of, self, now, TypeNack, ackContent{Success: new(false), Error: why})
}

// PongFor answers a ping.
func PongFor(of Envelope, self AgentID, now time.Time) Envelope {
	return reply(of, self, now, TypePong, ackContent{Timestamp: formatTime(now)})
}

// RegisteredFor answers a handshake.register.
func RegisteredFor(of Envelope, self AgentID, now time.Time) Envelope {
	return reply(of, self, now, TypeRegistered, ackContent{Success: new(true), Timestamp: formatTime(now)})
}

func reply(of Envelope, self AgentID, now time.Time, typ Type, content ackContent) Envelope {
	e := New(typ, self, of.From, now)
	content.OriginalMessageID = of.ID
	e.Content.Parts = []Part{{Type: PartData, Data: encoded(content)}}
	e.ReplyTo, e.Metadata.CorrelationID = of.ID, of.ID
	return e
}

// Original is the id of the envelope that e, an ack, nack or pong, is about: what
// its content says, else its correlation, else what it replies to.
func Original(e Envelope) string {
	for field := range dataFields(e, "originalMessageId", "original_message_id") {
		if id := asText(field); id != "" {
			return id
		}
	}
	if e.Metadata.CorrelationID != "" {
		return e.Metadata.CorrelationID
	}
	return e.ReplyTo
}

// Refusal is why a nack refuses: INVALID_MESSAGE where it names no code. The
// message is cut at 1,000 bytes.
func Refusal(e Envelope) (code Code, message string) {
	for field := range dataFields(e, "error") {
		var r refusal
		if message = asText(field); message == "" && json.Unmarshal(field, &r) != nil {
			continue
		}
		if message == "" {
			code, message = r.Code, r.Message
		}
		break
	}
	if code == "" {
		code = InvalidMessage
	}
	return code, runes.Cut(message, maxRefusal)
}

// dataFields yields the fields of those names in the data parts of e.
func dataFields(e Envelope, names ...string) func(func(json.RawMessage) bool) {
	return func(yield func(json.RawMessage) bool) {
		for _, p := range e.Content.Parts {
			o, _ := asObject(p.Data)
			for _, name := range names {
				if value := o[name]; !isNull(value) && !yield(value) {
					return
				}
			}
		}
	}
}

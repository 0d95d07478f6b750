package mailbox

import (
	"maps"
	"slices"
	"time"

	"feishu-relay/internal/spelling"
)

// DecodeDraft reads what a program gives to be sent: an envelope in any of the
// forms of [Decode] that may lack id, from and timestamp, which are zero then,
// and may have a text beside them instead of content. A field of no envelope is
// ignored, unless it is all but one of ours: that is a slip, and the message
// would go out without what it meant.
func DecodeDraft(raw []byte) (Envelope, error) { return decode(raw, MessageSchema, slip) }

// DecodeLine reads what agent self says on the line that it keeps open to its own
// sidecar, as [Decode]. What it leaves out is filled in: from, id and timestamp,
// and to where the sidecar itself is meant. An envelope that is refused has the
// id that it came with, or none.
func DecodeLine(raw []byte, self AgentID, now time.Time) (Envelope, error) {
	named := false
	e, err := decode(raw, EnvelopeSchema, func(in object) error {
		named = !isNull(in["id"])
		fill := map[string]string{"id": NewID(self, now), "from": string(self), "timestamp": formatTime(now)}
		switch Type(asText(in["type"])) {
		case TypeRegister, TypeHeartbeat, TypePing, TypePong, TypeAck, TypeNack:
			fill["to"] = string(self)
		}
		for name, value := range fill {
			if isNull(in[name]) {
				in[name] = text(value)
			}
		}
		return nil
	})
	if err != nil && !named {
		e.ID = ""
	}
	return e, err
}

// draftNames are the fields that a draft may lack and a slip would lose, with how
// many letters may be wrong: the shorter a name, the more others are like it.
var draftNames = map[string]int{"type": 1, "task": 1, "priority": 2, "callback": 2, "reply_to": 2, "replyTo": 2,
	"metadata":   2,
	"forward_of": 2, "forwardOf": 2, "correlation_id": 2, "correlationId": 2}

// slip reports a field whose name is all but one of ours.
func slip(in object) error {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if _, ours := draftNames[name]; ours {
			continue
		}
		for _, meant := range slices.Sorted(maps.Keys(draftNames)) {
			if spelling.Near(name, meant, draftNames[meant]) {
				return Invalid(name, "unknown field; did you mean %s?", meant)
			}
		}
	}
	return nil
}

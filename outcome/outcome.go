package outcome

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// maxText is the most bytes of a text in an outcome; a longer one is cut.
const maxText = 200

// Outcome is what became of one message at one bot, as far as is known. A later
// one of the same message and agent replaces the fields it has and leaves the
// others unchanged. It holds no message text.
type Outcome struct {
	Agent      relay.AgentName `json:"agent"` // whose sidecar noted it
	Channel    string          `json:"channel"`
	ChatID     relay.ChatID    `json:"chat_id"`
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Sender     relay.AgentName `json:"sender,omitempty"`    // author of the message
	ThreadID   string          `json:"thread_id,omitempty"` // topic of the message

	At           relay.Millis     `json:"at"`                 // of the newest change
	Decision     *policy.Decision `json:"decision,omitempty"` // nil: not made, or not yet. Immutable
	Stopped      relay.Reason     `json:"stopped,omitempty"`  // why it will not be delivered
	Detail       string           `json:"detail,omitempty"`   // the error behind Stopped
	Delivered    relay.Millis     `json:"delivered_at,omitempty"`
	Door         string           `json:"door,omitempty"`            // delivery channel: gateway, webhook or stream
	Acknowledged relay.Millis     `json:"acknowledged_at,omitempty"` // by a bot that acknowledges on the stream
}

// chatKey names a chat.
type chatKey struct {
	channel string
	chat    relay.ChatID
}

// key identifies an outcome.
type key struct {
	chatKey
	msg   relay.MessageID
	agent relay.AgentName
}

func (o *Outcome) key() key {
	return key{chatKey{o.Channel, o.ChatID}, o.RelayMsgID, o.Agent}
}

// merge combines two outcomes of one key, in either order; values of the newer one
// take precedence. It ignores the stop of a repeat, which is not about the message,
// and of an unsigned line, which any program may have written. A delivered message was
// not stopped.
func merge(a, b Outcome) Outcome {
	if (a.Stopped == relay.BadSignature) != (b.Stopped == relay.BadSignature) {
		for _, o := range []*Outcome{&a, &b} {
			if o.Stopped == relay.BadSignature {
				o.Stopped, o.Detail = "", ""
			}
		}
	}
	if b.At < a.At {
		a, b = b, a
	}
	b.Sender = cmp.Or(b.Sender, a.Sender)
	b.ThreadID = cmp.Or(b.ThreadID, a.ThreadID)
	b.Decision = cmp.Or(b.Decision, a.Decision)
	b.Delivered = cmp.Or(b.Delivered, a.Delivered)
	b.Door = cmp.Or(b.Door, a.Door)
	b.Acknowledged = cmp.Or(b.Acknowledged, a.Acknowledged)
	if b.Stopped == "" || b.Stopped == relay.Duplicate && a.Stopped != "" {
		b.Stopped, b.Detail = a.Stopped, a.Detail
	}
	if b.Delivered != 0 {
		b.Stopped, b.Detail = "", ""
	}
	return b
}

// same reports whether two outcomes are equal.
func same(a, b Outcome) bool {
	if a.Decision != nil && b.Decision != nil && *a.Decision == *b.Decision {
		b.Decision = a.Decision
	}
	return a == b
}

// bounded returns o with every value within its bounds: long texts are cut, a
// time in the future becomes now. It returns an error if o is invalid.
func bounded(o Outcome, now time.Time) (Outcome, error) {
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"agent", string(o.Agent), true},
		{"channel", o.Channel, true},
		{"chat_id", string(o.ChatID), true},
		{"relay_msg_id", string(o.RelayMsgID), true},
		{"sender", string(o.Sender), false},
		{"thread_id", o.ThreadID, false},
	} {
		if err := relay.CheckID(f.value); err != nil {
			return o, fmt.Errorf("%s %w", f.name, err)
		}
		if f.required && f.value == "" {
			return o, fmt.Errorf("%s is missing", f.name)
		}
	}
	if o.At <= 0 {
		return o, errors.New("at is missing")
	}
	for _, at := range []*relay.Millis{&o.At, &o.Delivered, &o.Acknowledged} {
		if *at > relay.MillisOf(now.Add(relay.MaxAhead)) {
			*at = relay.MillisOf(now)
		}
		*at = max(0, *at)
	}
	o.Stopped, o.Detail, o.Door = relay.Reason(cut(string(o.Stopped))), cut(o.Detail), cut(o.Door)
	if o.Decision != nil {
		d := *o.Decision
		d.Tier, d.Reason, d.Detail = policy.Tier(cut(string(d.Tier))), cut(d.Reason), cut(d.Detail)
		d.Depth, d.JudgeMS = max(0, d.Depth), max(0, d.JudgeMS)
		o.Decision = &d
	}
	return o, nil
}

// cut returns at most the first maxText bytes of text, as whole characters of valid
// UTF-8.
func cut(text string) string {
	if len(text) > maxText {
		text = strings.Clone(runes.Cut(text, maxText))
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

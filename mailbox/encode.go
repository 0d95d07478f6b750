package mailbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"feishu-relay/relay"
)

// wireEnvelope is an envelope as we write it, in the order of docs/protocol.md 6.1.
type wireEnvelope struct {
	ID        string    `json:"id"`
	From      AgentID   `json:"from"`
	To        AgentID   `json:"to"`
	Timestamp string    `json:"timestamp"`
	Type      Type      `json:"type"`
	Priority  Priority  `json:"priority"`
	Hops      int       `json:"ttl"`
	Trace     []AgentID `json:"trace"`
	Task      *wireTask `json:"task,omitempty"`
	Content   Content   `json:"content"`
	Callback  *Callback `json:"callback,omitempty"`
	ReplyTo   *string   `json:"reply_to"`
	Metadata  Metadata  `json:"metadata"`
}

type wireTask struct {
	ID       string    `json:"id"`
	State    TaskState `json:"state,omitempty"`
	Deadline string    `json:"deadline,omitempty"`
}

// MarshalJSON writes e as docs/protocol.md 6.1 shows it: times in UTC with milliseconds, no list null.
func (e Envelope) MarshalJSON() ([]byte, error) {
	w := wireEnvelope{
		ID: e.ID, From: e.From, To: e.To, Timestamp: formatTime(e.Timestamp), Type: e.Type,
		Priority: e.Priority, Hops: e.Hops, Trace: orEmpty(e.Trace), Content: e.Content,
		Callback: e.Callback, ReplyTo: orNull(e.ReplyTo), Metadata: e.Metadata,
	}
	if e.Task != nil {
		w.Task = &wireTask{ID: e.Task.ID, State: e.Task.State}
		if !e.Task.Deadline.IsZero() {
			w.Task.Deadline = formatTime(e.Task.Deadline)
		}
	}
	return relay.Marshal(w)
}

// Encode writes e as one line of JSON, without a newline. It refuses more than [MaxEnvelope] bytes and data
// that is no JSON; whether e is one that others accept is for [Signing.Seal] to say.
func Encode(e Envelope) ([]byte, error) {
	line, err := e.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	if len(line) > MaxEnvelope {
		return nil, tooLarge(len(line))
	}
	return line, nil
}

func tooLarge(size int) *Error {
	return Invalid("", "the message has %d bytes, at most %d: send a file's path instead of what it holds", size,
		MaxEnvelope)
}

// MarshalJSON writes the parts; no parts are an empty list.
func (c Content) MarshalJSON() ([]byte, error) {
	return relay.Marshal(struct {
		Parts []Part `json:"parts"`
	}{orEmpty(c.Parts)})
}

// MarshalJSON writes what the type of p has, also where it is empty.
func (p Part) MarshalJSON() ([]byte, error) {
	out := struct {
		Type string           `json:"type"`
		Text *string          `json:"text,omitempty"`
		Path *string          `json:"path,omitempty"`
		Data *json.RawMessage `json:"data,omitempty"`
	}{Type: p.Type}
	switch p.Type {
	case PartText:
		out.Text = &p.Text
	case PartFile:
		out.Path = &p.Path
	default:
		out.Data = &p.Data
	}
	return relay.Marshal(out)
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// knownMetadata is the part of the metadata that is ours.
type knownMetadata struct {
	CorrelationID *string  `json:"correlationId"`
	TTL           *int     `json:"ttl,omitempty"`
	RequiresAck   bool     `json:"requiresAck"`
	RetryCount    int      `json:"retryCount"`
	MaxRetries    *int     `json:"maxRetries,omitempty"`
	Tags          []string `json:"tags"`
	Goal          string   `json:"goal_id,omitempty"`
}

// metadataNames are our fields, each with the other names under which it is read.
var metadataNames = names{{"correlationId", "correlation_id"}, {"ttl"}, {"requiresAck", "requires_ack"},
	{"retryCount", "retry_count"}, {"maxRetries", "max_retries"}, {"tags"}, {"goal_id", "goalId"}}

// MarshalJSON writes our fields in the order of docs/protocol.md 6.1, then those of other
// programs in order of their names.
func (m Metadata) MarshalJSON() ([]byte, error) {
	line, err := relay.Marshal(knownMetadata{
		orNull(m.CorrelationID), m.TTL, m.RequiresAck, m.RetryCount, m.MaxRetries, orEmpty(m.Tags), m.Goal,
	})
	if err != nil {
		return nil, err
	}
	return appendFields(line, m.Extra, metadataNames.has)
}

// UnmarshalJSON reads camelCase and snake_case, and keeps what it does not know. It does not hold values to their
// bounds, which [Decode] does.
func (m *Metadata) UnmarshalJSON(raw []byte) error {
	in, err := parseFields(raw)
	if err != nil {
		return err
	}
	rename(in, metadataNames)
	*m = (&reader{}).metadata(in)
	return nil
}

// appendFields adds the fields of more to an encoded object that has some, in
// order of their names and without those that skip names.
func appendFields(line []byte, more object, skip func(string) bool) ([]byte, error) {
	b := bytes.NewBuffer(slices.Clip(bytes.TrimSuffix(line, []byte{'}'}))) // line itself stays as it is
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if skip(name) {
			continue
		}
		key, err := relay.Marshal(name)
		if err != nil {
			return nil, err
		}
		value, err := relay.Marshal(more[name])
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Signing signs envelopes with a secret that all sidecars share, as relay messages are
// signed: the field "sig" is the HMAC-SHA256 of the rest in the canonical form of
// RFC 8785. A program that passes an envelope on may format it otherwise. All three mailboxes
// (docs/protocol.md 6.4, 6.7, 6.8) can carry the field: A and C at the top of the envelope, B in
// the payload.
//
// The zero value signs nothing, and ignores signatures.
type Signing struct {
	Secret string // RELAY_SECRET
}

// sigField is the field of an envelope and of a peer payload that holds the signature.
const sigField = "sig"

// Sealed is an envelope and its one encoding: what inboxes get and what waits on disk.
type Sealed struct {
	Envelope
	Raw []byte // by [Signing.Encode]
}

// Seal encodes e, and reports why it would be refused by who gets it, with the [*Error] that
// [Decode] there has. The mailbox's own acknowledgements are not held against that.
func (s Signing) Seal(e Envelope) (Sealed, error) {
	raw, err := s.Encode(e)
	if err == nil && e.Type != TypeAck && e.Type != TypeNack {
		_, err = Decode(raw)
	}
	return Sealed{e, raw}, err
}

// CheckSize refuses more than [MaxEnvelope] bytes.
func (m Sealed) CheckSize() error {
	if len(m.Raw) > MaxEnvelope {
		return tooLarge(len(m.Raw))
	}
	return nil
}

// Encode is [Encode], with a signature.
func (s Signing) Encode(e Envelope) ([]byte, error) {
	line, err := Encode(e)
	if err != nil || s.Secret == "" {
		return line, err
	}
	if line, err = relay.Sign(line, s.Secret); err != nil {
		return nil, Invalid("", "cannot be signed: its data must have a form in RFC 8785, "+
			"without a field twice and without numbers that no double holds: write those as texts")
	}
	if len(line) > MaxEnvelope {
		return nil, tooLarge(len(line))
	}
	return line, nil
}

// Decode is [Decode], and verifies the signature. The code of one that is missing or wrong is [BadSignature].
func (s Signing) Decode(raw []byte) (Envelope, error) {
	if s.Secret == "" {
		return Decode(raw)
	}
	in, err := parseFields(raw)
	if err != nil {
		return Envelope{}, err
	}
	e, err := decode(in, len(raw), false)
	if err := relay.Verify(raw, s.Secret); err != nil {
		return head(in), Refused(BadSignature, sigField, "%v", err)
	}
	return e, err
}

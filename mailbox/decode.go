package mailbox

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"feishu-relay/relay"
)

var errNoJSON = Invalid("", "want one JSON object")

// Decode reads an envelope of any of the three makes: field names in snake_case
// and camelCase, the forms of content and of times that they write, and what
// they leave out (docs/protocol.md 6.3). Times come out in UTC, cut to milliseconds; empty
// lists as nil. A file mailbox's message lives for ever: it knows hops and no
// life in seconds, and its mail waits.
//
// The error is an [*Error] with INVALID_MESSAGE that names the field as the
// sender wrote it. The envelope holds even then what a nack needs, as far as it
// was of the right form: id, from, to, type and requiresAck.
func Decode(raw []byte) (Envelope, error) { return decode(raw, EnvelopeSchema, nil) }

// decode reads an envelope as a schema wants it; look sees it before, as it was sent.
func decode(raw []byte, schema string, look func(in object) error) (Envelope, error) {
	if err := sane(raw, MaxEnvelope); err != nil {
		return Envelope{}, err
	}
	in, ok := asObject(raw)
	if !ok {
		return Envelope{}, errNoJSON
	}
	if look != nil {
		if err := look(in); err != nil {
			return head(in), err
		}
	}
	draft := schema == MessageSchema
	l := normalise(in, draft)
	if !draft {
		l.received()
	}
	line, err := relay.Marshal(l.out)
	if err != nil {
		return head(l.out), errNoJSON
	}
	if err := Check(schema, line); err != nil {
		return head(l.out), l.asSent(err)
	}
	var e Envelope
	if err := json.Unmarshal(line, &e); err != nil {
		return head(l.out), errNoJSON // not after the check
	}
	e.Trace, e.Content.Parts = orNil(e.Trace), orNil(e.Content.Parts)
	if err := e.checkSize(draft); err != nil {
		return head(l.out), err
	}
	if len(raw) > MaxEnvelope/4 { // ours may be longer than theirs, by escapes and by what they left out
		if _, err := Encode(e); err != nil {
			return head(l.out), err
		}
	}
	return e, nil
}

// asSent names the field of an error as the sender wrote it.
func (l *level) asSent(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	return &Error{e.Code, l.sent(e.Field), e.Message}
}

// head reads what a nack needs of an envelope that is refused.
func head(in object) Envelope {
	var e Envelope
	if id := asText(in["id"]); checkID(id) == nil {
		e.ID = id
	}
	for name, to := range map[string]*AgentID{"from": &e.From, "to": &e.To} {
		if id := AgentID(asText(in[name])); CheckAgent(id) == nil {
			*to = id
		}
	}
	if t := Type(asText(in["type"])); t.Known() {
		e.Type = t
	}
	m, _ := asObject(in["metadata"])
	e.Metadata.RequiresAck = string(m["requiresAck"]) == "true"
	return e
}

// checkSize refuses a message that says nothing, or too much: what the schema
// cannot count. Others' empty tasks are taken, ours are not sent.
func (e *Envelope) checkSize(draft bool) error {
	if len(e.Metadata.Extra) > MaxFields {
		return Invalid("metadata", "want at most %d fields besides ours", MaxFields)
	}
	size, only := 0, true
	for _, p := range e.Content.Parts {
		size += len(p.Text)
		only = only && p.Type == PartText
	}
	if size > MaxBody {
		return Invalid("content", "has %d bytes, at most %d", size, MaxBody)
	}
	if (e.Type.talks() || draft && e.Type.GivesTask()) && only && strings.TrimSpace(e.Text()) == "" {
		return Invalid("content", "the message is empty: want a text")
	}
	return nil
}

// sane refuses what is not looked into at all.
func sane(raw []byte, limit int) error {
	switch {
	case len(raw) > limit:
		return Invalid("", "has %d bytes, at most %d", len(raw), limit)
	case !utf8.Valid(raw):
		return Invalid("", "want UTF-8")
	case tooDeep(raw):
		return Invalid("", "lists and objects are nested more than %d deep", maxDepth)
	}
	return nil
}

// tooDeep counts brackets outside of texts.
func tooDeep(raw []byte) bool {
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

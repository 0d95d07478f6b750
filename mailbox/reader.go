package mailbox

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader reads fields that are in our form, as the schemas describe them. Its err is the first mistake, in the order
// of the reading: an [*Error] with the path of the field, such as content.parts.0.type.
type reader struct{ err error }

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = Invalid(path, format, args...)
	}
}

// missing reports whether there is no value, which is a mistake if it is required.
func (r *reader) missing(value any, path string, required bool) bool {
	if value == nil && required {
		r.fail(path, "required")
	}
	return value == nil
}

// text reads a text that check accepts. Its refusals are without a field.
func (r *reader) text(value any, path string, required bool, check func(string) error) string {
	s, ok := value.(string)
	switch {
	case r.missing(value, path, required):
	case !ok:
		r.fail(path, "want a text")
	default:
		if no, refused := check(s).(*Error); refused {
			r.fail(path, "%s", no.Message)
		}
	}
	return s
}

// oneOf reads one of some words; "": it is missing.
func oneOf[T ~string](r *reader, value any, path string, words []T) T {
	s, _ := value.(string)
	if slices.Contains(words, T(s)) {
		return T(s)
	}
	if value != nil {
		r.fail(path, "want one of %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(words), "[]"), " ", ", "))
	}
	return ""
}

// whole reads a whole number; nil: it is missing. Numbers with a huge exponent are never computed.
func (r *reader) whole(value any, path string, least, most int) *int {
	n, ok := value.(int)
	if number, read := value.(json.Number); read {
		f, err := number.Float64()
		n, ok = int(f), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	switch {
	case value == nil:
		return nil
	case !ok:
		r.fail(path, "want a whole number")
	case n < least:
		r.fail(path, "want at least %d", least)
	case n > most:
		r.fail(path, "want at most %d", most)
	}
	return &n
}

func (r *reader) time(value any, path string, required bool) (t time.Time) {
	if !r.missing(value, path, required) {
		var err error
		if t, err = readTime(value); err != nil {
			r.fail(path, "%v", err)
		}
	}
	return t
}

func (r *reader) list(value any, path string, most int) []any {
	list, ok := value.([]any)
	switch {
	case value == nil:
	case !ok:
		r.fail(path, "want a list")
	case len(list) > most:
		r.fail(path, "want at most %d entries", most)
		return nil
	}
	return list
}

// object reads an object; nil: it is missing, or a mistake.
func (r *reader) object(value any, path string, required bool) fields {
	in, ok := value.(fields)
	if !r.missing(value, path, required) && !ok {
		r.fail(path, "want an object")
	}
	return in
}

// envelope reads an envelope, or a draft of one.
func (r *reader) envelope(in fields, draft bool) (e Envelope) {
	e.ID = r.text(in["id"], "id", !draft, CheckID)
	e.From = AgentID(r.text(in["from"], "from", !draft, checkAgent))
	e.To = AgentID(r.text(in["to"], "to", true, checkAgent))
	e.Timestamp = r.time(in["timestamp"], "timestamp", !draft)
	e.Type = oneOf(r, in["type"], "type", typeNames)
	e.Priority = Priority(*r.whole(in["priority"], "priority", 1, 5))
	e.Hops = *r.whole(in["ttl"], "ttl", 0, MaxHops)
	for i, agent := range r.list(in["trace"], "trace", MaxTrace) {
		e.Trace = append(e.Trace, AgentID(r.text(agent, at("trace", i), true, CheckID)))
	}
	if task := r.object(in["task"], "task", !draft && e.Type.AboutTask()); task != nil {
		e.Task = &Task{ID: r.text(task["id"], "task.id", true, CheckID),
			State:    oneOf(r, task["state"], "task.state", taskStates),
			Deadline: r.time(task["deadline"], "task.deadline", false)}
	}
	if _, isText := in["content"].(fields); draft && in["content"] != nil && !isText {
		r.fail("content", "want an object or a text")
	}
	content := r.object(in["content"], "content", true)
	for i, part := range r.list(content["parts"], "content.parts", MaxParts) {
		e.Content.Parts = append(e.Content.Parts, r.part(part, at("content.parts", i)))
	}
	if c := r.object(in["callback"], "callback", false); c != nil {
		if draft && c["chat_id"] == nil && c["session_id"] == nil {
			r.fail("callback", "want one of chat_id, session_id")
		}
		e.Callback = &Callback{Channel: r.text(c["channel"], "callback.channel", true, CheckID),
			ChatID:    r.text(c["chat_id"], "callback.chat_id", false, CheckID),
			SessionID: r.text(c["session_id"], "callback.session_id", false, CheckID)}
	}
	e.ReplyTo = r.text(in["reply_to"], "reply_to", false, CheckID)
	e.Metadata = r.metadata(r.object(in["metadata"], "metadata", true))
	if draft {
		r.text(in["forward_of"], "forward_of", false, CheckID)
	}
	return e
}

func at(path string, i int) string { return path + "." + strconv.Itoa(i) }

func (r *reader) part(value any, path string) (p Part) {
	in := r.object(value, path, true)
	if in == nil || r.missing(in["type"], path+".type", true) {
		return p
	}
	p.Type = oneOf(r, in["type"], path+".type", []string{PartText, PartData, PartFile})
	switch p.Type {
	case PartText:
		p.Text = r.text(in["text"], path+".text", true, atMost(MaxBody))
	case PartFile:
		p.Path = r.text(in["path"], path+".path", true, func(s string) error { return checkLine(s, maxPath) })
	case PartData:
		data, given := in["data"]
		if !given {
			r.fail(path+".data", "required")
		}
		p.Data = encoded(data)
	}
	return p
}

func (r *reader) metadata(in fields) Metadata {
	m := Metadata{CorrelationID: r.text(in["correlationId"], "metadata.correlationId", false, CheckID),
		TTL:        r.whole(in["ttl"], "metadata.ttl", 0, MaxLife),
		MaxRetries: r.whole(in["maxRetries"], "metadata.maxRetries", 0, maxRetries),
		Goal:       r.text(in["goal_id"], "metadata.goal_id", false, CheckID)}
	var isFlag bool
	if m.RequiresAck, isFlag = in["requiresAck"].(bool); !isFlag && in["requiresAck"] != nil {
		r.fail("metadata.requiresAck", "want true or false")
	}
	if n := r.whole(in["retryCount"], "metadata.retryCount", 0, maxRetries); n != nil {
		m.RetryCount = *n
	}
	for i, tag := range r.list(in["tags"], "metadata.tags", MaxTags) {
		m.Tags = append(m.Tags, r.text(tag, at("metadata.tags", i), true, checkWord))
	}
	for name, value := range in {
		if metadataNames.has(name) {
			continue
		}
		if len(m.Extra) == MaxFields {
			r.fail("metadata", "want at most %d fields besides ours", MaxFields)
			break
		}
		if m.Extra == nil {
			m.Extra = map[string]json.RawMessage{}
		}
		m.Extra[name] = encoded(value)
	}
	return m
}

func checkWord(s string) error {
	if s == "" {
		return Invalid("", "must not be empty")
	}
	return atMost(maxWord)(s)
}

package mailbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/spelling"
)

// Decode reads an envelope. It is brought into the form in which [Encode] writes it, from the names, the forms of
// content and of times of other programs, and with what they leave out (docs/protocol.md 6.3); then it has to be as
// the schema of envelopes says. Times come out in UTC, cut to milliseconds; empty
// lists as nil. A file mailbox's message does not expire: it knows hops and no
// life in seconds, and its mail waits.
//
// The error is an [*Error] with INVALID_MESSAGE that names the field by our name.
// The envelope holds even then what a nack needs, as far as it
// was of the right form: id, from, to, type and requiresAck.
func Decode(raw []byte) (Envelope, error) {
	in, err := parseFields(raw)
	if err != nil {
		return Envelope{}, err
	}
	return decode(in, len(raw), false)
}

// DecodeDraft reads what a program gives to be sent: an envelope in any of the
// forms of [Decode] that may lack id, from, timestamp and task, which are zero then,
// and may have a text beside them instead of content. A field of no envelope is
// ignored, unless its name is a misspelling of ours: the message would be sent without what it
// meant.
func DecodeDraft(raw []byte) (Envelope, error) {
	in, err := parseFields(raw)
	if err == nil {
		err = checkSpelling(in)
	}
	if err != nil {
		return Envelope{}, err
	}
	rename(in, names{{"content", "body", "text"}})
	return decode(in, len(raw), true)
}

// DecodeLine reads what agent self sends on the line that it keeps open to its own
// sidecar, as [Decode]. What it leaves out is filled in: from, id and timestamp,
// and to where the sidecar itself is meant. An envelope that is refused has the
// id that it came with, or no id.
func DecodeLine(raw []byte, self AgentID, now time.Time) (Envelope, error) {
	in, err := parseFields(raw)
	if err != nil {
		return Envelope{}, err
	}
	named := in["id"] != nil
	fill := map[string]string{"id": NewID(self, now), "from": string(self), "timestamp": formatTime(now)}
	switch typ, _ := in["type"].(string); Type(typ) {
	case TypeRegister, TypeHeartbeat, TypePing, TypePong, TypeAck, TypeNack:
		fill["to"] = string(self)
	}
	for name, value := range fill {
		setDefault(in, name, value)
	}
	e, err := decode(in, len(raw), false)
	if err != nil && !named {
		e.ID = ""
	}
	return e, err
}

// fields is a JSON object; its numbers are as they were written.
type fields = map[string]any

func parseFields(raw []byte) (in fields, err error) {
	if err := checkJSON(raw, MaxEnvelope); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&in)
	if _, end := d.Token(); err != nil || in == nil || end != io.EOF {
		return nil, Invalid("", "want one JSON object")
	}
	return in, nil
}

// decode reads an envelope of size bytes, or a draft of one, and changes in.
func decode(in fields, size int, draft bool) (Envelope, error) {
	normalise(in, draft)
	var r reader
	e := r.envelope(in, draft)
	if r.err == nil {
		r.err = e.checkSize(draft)
	}
	if r.err == nil && size > MaxEnvelope/4 { // ours may be longer than theirs
		_, r.err = Encode(e)
	}
	if r.err != nil {
		return head(in), r.err
	}
	return e, nil
}

// head is what a nack needs of an envelope that is refused.
func head(in fields) (h Envelope) {
	text := func(name string, check func(string) error) string {
		if s, ok := in[name].(string); ok && check(s) == nil {
			return s
		}
		return ""
	}
	h.ID, h.From, h.To = text("id", CheckID), AgentID(text("from", checkAgent)), AgentID(text("to", checkAgent))
	if t, _ := in["type"].(string); Type(t).Known() {
		h.Type = Type(t)
	}
	meta, _ := in["metadata"].(fields)
	h.Metadata.RequiresAck, _ = meta["requiresAck"].(bool)
	return h
}

// names are those of an object's fields: ours, and the others under which it is read.
type names [][]string

func (n names) has(name string) bool {
	return slices.ContainsFunc(n, func(names []string) bool { return slices.Contains(names, name) })
}

var (
	envelopeNames = names{{"id"}, {"from"}, {"to"}, {"timestamp"}, {"type"}, {"priority"}, {"ttl"}, {"trace"}, {"task"},
		{"content", "body"}, {"callback"}, {"reply_to", "replyTo"}, {"metadata"},
		{"correlationId", "correlation_id"}, {"forward_of", "forwardOf"}}
	taskNames     = names{{"id", "task_id", "taskId"}, {"state", "status"}, {"deadline"}}
	callbackNames = names{{"channel"}, {"chat_id", "chatId"}, {"session_id", "sessionId"}}
)

// rename gives the fields of an object our names. Those that are null are missing.
func rename(in fields, list names) { renameIn(in, list, func(v any) bool { return v == nil }) }

func renameIn[V any](in map[string]V, list names, null func(V) bool) {
	for _, ours := range list {
		value := in[ours[0]]
		for _, other := range ours[1:] {
			if null(value) {
				value = in[other]
			}
			delete(in, other)
		}
		if delete(in, ours[0]); !null(value) {
			in[ours[0]] = value
		}
	}
}

// normalise brings an envelope of another program into our form. What it cannot read stays as it is, and the
// reader refuses it.
func normalise(in fields, draft bool) {
	rename(in, envelopeNames)
	maps.DeleteFunc(in, func(name string, _ any) bool { return !envelopeNames.has(name) })
	file := in["ttl"] != nil || in["trace"] != nil // written by a file mailbox, if nothing speaks against it
	setDefault(in, "type", string(TypeMessage))
	name, _ := in["type"].(string)
	typ := Type(name)
	setDefault(in, "priority", int(typ.DefaultPriority()))
	setDefault(in, "ttl", DefaultHops)
	if in["from"] != nil {
		setDefault(in, "trace", []any{in["from"]})
	}
	normaliseTask(in, typ)
	if in["content"] == nil && !typ.is(hasContent) {
		in["content"] = fields{}
	}
	if in["content"] != nil {
		in["content"] = normalContent(in["content"])
	}
	if callback, ok := in["callback"].(fields); ok {
		rename(callback, callbackNames)
	}
	setDefault(in, "metadata", fields{})
	if meta, ok := in["metadata"].(fields); ok {
		rename(meta, metadataNames)
		setDefault(meta, "correlationId", in["correlationId"])
		file = file && !slices.ContainsFunc(metadataNames, func(n []string) bool { return meta[n[0]] != nil })
		if file && !draft { // it waits as long as it has to
			meta["ttl"] = 0
		}
		if typ == TypeHeartbeat && !draft { // the protocol answers it
			setDefault(meta, "requiresAck", true)
		}
	}
	delete(in, "correlationId")
}

func setDefault(in fields, name string, value any) {
	if in[name] == nil && value != nil {
		in[name] = value
	}
}

// normaliseTask reads the task, which the content of types about tasks may name (docs/protocol.md 6.3).
// There, what kind of step it is the type says; a status counts only on an update, and only
// where it is a state of ours.
func normaliseTask(in fields, typ Type) {
	if in["task"] == nil && typ.AboutTask() {
		content, _ := in["content"].(fields)
		named := maps.Clone(content)
		rename(named, taskNames)
		switch state, _ := named["state"].(string); {
		case named["id"] == nil:
			return
		case typ != TypeTaskUpdate || !stateOf(state).Known():
			delete(named, "state")
		}
		maps.DeleteFunc(named, func(name string, _ any) bool { return !taskNames.has(name) })
		in["task"] = named
	}
	if task, ok := in["task"].(fields); ok {
		rename(task, taskNames)
		if state, ok := task["state"].(string); ok {
			task["state"] = string(stateOf(state))
		}
		if state := typ.State(); state != "" {
			setDefault(task, "state", string(state))
		}
		if task["deadline"] == "" {
			delete(task, "deadline")
		}
	}
}

// stateOf is a state as other programs write it.
func stateOf(s string) TaskState {
	s = strings.ToLower(strings.TrimSpace(s))
	switch s {
	case "in_progress", "in-progress":
		return Working
	case "done":
		return Completed
	}
	return TaskState(s)
}

// normalContent is what an envelope says as parts: of a text, of an object with nothing but a text, or of
// any other object, which is kept as one data part. Parts of unknown types and what is beside the parts are data, too.
func normalContent(content any) any {
	data := func(value any) any { return fields{"type": PartData, "data": value} }
	text := func(s string) any { return fields{"parts": []any{fields{"type": PartText, "text": s}}} }
	if s, ok := content.(string); ok {
		return text(s)
	}
	in, ok := content.(fields)
	if !ok {
		return content
	}
	list, isList := in["parts"].([]any)
	if !isList {
		body, _ := cmp.Or(in["body"], in["text"]).(string)
		switch {
		case in["parts"] != nil:
			return content
		case len(in) == 1 && body != "":
			return text(body)
		case len(in) == 0:
			return fields{"parts": []any{}}
		}
		return fields{"parts": []any{data(in)}}
	}
	for i := range list {
		part, _ := list[i].(fields)
		switch typ, _ := part["type"].(string); typ {
		case PartText, PartFile, PartData, "":
		default:
			list[i] = data(part)
		}
	}
	rest := maps.Clone(in)
	if delete(rest, "parts"); len(rest) > 0 {
		list = append(list, data(rest))
	}
	return fields{"parts": list}
}

// checkSize refuses a message that says nothing, or too much: what no schema
// counts. Others' empty tasks are taken, ours are not sent.
func (e *Envelope) checkSize(draft bool) error {
	size, only := 0, true
	for _, p := range e.Content.Parts {
		size += len(p.Text)
		only = only && p.Type == PartText
	}
	if size > MaxBody {
		return Invalid("content", "has %d bytes, at most %d", size, MaxBody)
	}
	if (e.Type.is(hasContent) || draft && e.Type.GivesTask()) && only && strings.TrimSpace(e.Text()) == "" {
		return Invalid("content", "the message is empty: want a text")
	}
	return nil
}

// draftNames are the fields that a draft may lack and a misspelling would lose.
var draftNames = []string{"callback", "correlationId", "correlation_id", "forwardOf", "forward_of", "metadata",
	"priority", "replyTo", "reply_to", "task", "type"}

// checkSpelling reports a field whose name is a misspelling of one of ours: the shorter that is, the more others are
// like it.
func checkSpelling(in fields) error {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		for _, meant := range draftNames {
			if !slices.Contains(draftNames, name) && spelling.Near(name, meant, min((len(meant)+1)/4, 2)) {
				return Invalid(name, "unknown field; did you mean %s?", meant)
			}
		}
	}
	return nil
}

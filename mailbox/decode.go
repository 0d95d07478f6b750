package mailbox

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/spelling"
)

// Decode reads an envelope of any of the three mailboxes: field names in snake_case
// and camelCase, the forms of content and of times that they write, and what
// they leave out (docs/protocol.md 6.3). Times come out in UTC, cut to milliseconds; empty
// lists as nil. A file mailbox's message does not expire: it knows hops and no
// life in seconds, and its mail waits. What it accepts, the schema of envelopes accepts
// as [Encode] writes it, and the other way round.
//
// The error is an [*Error] with INVALID_MESSAGE that names the field as the
// sender wrote it. The envelope holds even then what a nack needs, as far as it
// was of the right form: id, from, to, type and requiresAck.
func Decode(raw []byte) (Envelope, error) { return decode(raw, false, nil) }

// DecodeDraft reads what a program gives to be sent: an envelope in any of the
// forms of [Decode] that may lack id, from and timestamp, which are zero then,
// and may have a text beside them instead of content. A field of no envelope is
// ignored, unless its name is a misspelling of ours: the message would be sent without what it
// meant.
func DecodeDraft(raw []byte) (Envelope, error) { return decode(raw, true, nil) }

// DecodeLine reads what agent self sends on the line that it keeps open to its own
// sidecar, as [Decode]. What it leaves out is filled in: from, id and timestamp,
// and to where the sidecar itself is meant. An envelope that is refused has the
// id that it came with, or no id.
func DecodeLine(raw []byte, self AgentID, now time.Time) (Envelope, error) {
	named := false
	e, err := decode(raw, false, func(in object) {
		named = !isNull(in["id"])
		fill := map[string]string{"id": NewID(self, now), "from": string(self), "timestamp": formatTime(now)}
		switch Type(asText(in["type"])) {
		case TypeRegister, TypeHeartbeat, TypePing, TypePong, TypeAck, TypeNack:
			fill["to"] = string(self)
		}
		for name, value := range fill {
			if isNull(in[name]) {
				in[name] = encoded(value)
			}
		}
	})
	if err != nil && !named {
		e.ID = ""
	}
	return e, err
}

// decode reads an envelope, or a draft of one; complete may be nil.
func decode(raw []byte, draft bool, complete func(in object)) (Envelope, error) {
	in, err := parseObject(raw, MaxEnvelope)
	if err != nil {
		return Envelope{}, err
	}
	if complete != nil {
		complete(in)
	}
	f := newFields(in)
	if draft {
		f.checkSpelling()
	}
	e := f.envelope(draft)
	if *f.err != nil {
		return e.head(), *f.err
	}
	if err := e.checkSize(draft); err != nil {
		return e.head(), err
	}
	if len(raw) > MaxEnvelope/4 { // ours may be longer than theirs, by escapes and by what they left out
		if _, err := Encode(e); err != nil {
			return e.head(), err
		}
	}
	return e, nil
}

// head is what a nack needs of an envelope that is refused.
func (e *Envelope) head() Envelope {
	h := Envelope{ID: e.ID, From: e.From, To: e.To, Type: e.Type}
	h.Metadata.RequiresAck = e.Metadata.RequiresAck
	return h
}

// envelope reads the fields in the order in which mistakes are reported.
func (f *fields) envelope(draft bool) (e Envelope) {
	require := f.require
	if draft {
		require = func(...string) {}
	}
	require("id")
	e.ID = f.text(CheckID, "id")
	require("from")
	e.From = AgentID(f.text(checkAgent, "from"))
	f.require("to")
	e.To = AgentID(f.text(checkAgent, "to"))
	require("timestamp")
	e.Timestamp = f.time("timestamp")
	e.Type = TypeMessage
	if path, value := f.find("type"); value != nil {
		e.Type = oneOf(f, path, Type(asText(value)), typeNames)
	}
	e.Priority = e.Type.DefaultPriority()
	if n := f.whole(1, 5, "priority"); n != nil {
		e.Priority = Priority(*n)
	}
	e.Hops = DefaultHops
	if n := f.whole(0, MaxHops, "ttl"); n != nil {
		e.Hops = *n
	}
	for _, id := range f.texts(MaxTrace, CheckID, "trace") {
		e.Trace = append(e.Trace, AgentID(id))
	}
	if isNull(f.in["trace"]) && e.From != "" {
		e.Trace = []AgentID{e.From}
	}
	e.Task = f.task(e.Type, draft)
	e.Content.Parts = f.content(e.Type, draft)
	e.Callback = f.callback(draft)
	e.ReplyTo = f.reference("reply_to", "replyTo")
	e.Metadata = f.allMetadata(e.Type, draft)
	if draft {
		f.text(CheckID, "forward_of", "forwardOf")
	}
	return e
}

// task reads the task, which the content of types about tasks may name (docs/protocol.md 6.3).
// There, what kind of step it is the type says; a status counts only on an update, and only
// where it is a state of ours.
func (f *fields) task(typ Type, draft bool) *Task {
	if t := f.sub("task"); t != nil {
		t.require("id", "task_id", "taskId")
		task := &Task{ID: t.text(CheckID, "id", "task_id", "taskId"), State: typ.State()}
		if path, value := t.find("state", "status"); value != nil {
			task.State = oneOf(t, path, stateOf(asText(value)), taskStates)
		}
		task.Deadline = t.deadline()
		return task
	}
	if !typ.AboutTask() {
		return nil
	}
	missing := "task"
	if in, ok := asObject(f.in["content"]); ok {
		t := &fields{in: in, path: "content.", err: f.err}
		if _, id := t.find("id", "taskId", "task_id"); id != nil {
			task := &Task{t.text(CheckID, "id", "taskId", "task_id"), typ.State(), t.deadline()}
			_, status := t.find("status", "state")
			if s := stateOf(asText(status)); typ == TypeTaskUpdate && s.Known() {
				task.State = s
			}
			return task
		}
		if in["parts"] == nil {
			missing = "content.taskId"
		}
	}
	if !draft {
		f.wrong(missing, "required")
	}
	return nil
}

// deadline reads a deadline; an empty text is no deadline.
func (f *fields) deadline() time.Time {
	if string(f.in["deadline"]) == `""` {
		return time.Time{}
	}
	return f.time("deadline")
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

// content reads what an envelope says: parts, a text, an object with nothing but a text, or
// any other object, which is kept as one data part. A draft may have a text beside the other
// fields, too.
func (f *fields) content(typ Type, draft bool) []Part {
	names, want := []string{"content", "body"}, "want an object"
	if draft {
		names, want = append(names, "text"), "want a text or an object"
	}
	path, value := f.find(names...)
	if value == nil {
		if typ.is(hasContent) {
			f.wrong(path, "required")
		}
		return nil
	}
	textPart := func(path string, value json.RawMessage) []Part {
		return []Part{{Type: PartText, Text: f.textOf(path, value, atMost(MaxBody), "want a text")}}
	}
	if value[0] == '"' {
		return textPart(path, value)
	}
	in, ok := asObject(value)
	parts, list := in["parts"]
	if !ok || path != "content" && !list {
		f.wrong(path, "%s", want)
		return nil
	}
	if list {
		return f.parts(path+".parts", parts, in)
	}
	for _, name := range []string{"body", "text"} {
		if t := in[name]; len(in) == 1 && len(t) > 0 && t[0] == '"' {
			return textPart(path+"."+name, t)
		}
	}
	if len(in) == 0 {
		return nil
	}
	return []Part{dataPart(value)}
}

// parts reads a list of parts. What is beside the list is kept as data.
func (f *fields) parts(path string, value json.RawMessage, beside object) (parts []Part) {
	rest := maps.Clone(beside)
	delete(rest, "parts")
	for i, value := range f.list(path, value, MaxParts-min(len(rest), 1)) {
		parts = append(parts, f.part(path+"."+strconv.Itoa(i), value))
	}
	if len(rest) > 0 {
		parts = append(parts, dataPart(encoded(rest)))
	}
	return parts
}

// part reads one part; one of a type that we do not know is kept as data.
func (f *fields) part(path string, value json.RawMessage) Part {
	in, ok := asObject(value)
	if !ok {
		f.wrong(path, "want an object")
	}
	p := &fields{in: in, path: path + ".", err: f.err}
	p.require("type")
	switch typ := asText(in["type"]); typ {
	case PartText:
		p.require("text")
		return Part{Type: PartText, Text: p.text(atMost(MaxBody), "text")}
	case PartFile:
		p.require("path")
		return Part{Type: PartFile, Path: p.text(checkPath, "path")}
	case PartData:
		if in["data"] == nil {
			p.wrong(path+".data", "required")
			return Part{}
		}
		return dataPart(in["data"])
	case "":
		p.wrong(path+".type", "want one of %s, %s, %s", PartText, PartData, PartFile)
	}
	return dataPart(value)
}

func dataPart(value json.RawMessage) Part { return Part{Type: PartData, Data: encoded(value)} }

// callback reads the callback; that of a draft has to name a chat or a session.
func (f *fields) callback(draft bool) *Callback {
	c := f.sub("callback")
	if c == nil {
		return nil
	}
	if _, chat := c.find("chat_id", "chatId", "session_id", "sessionId"); draft && chat == nil {
		f.wrong("callback", "want one of chat_id, session_id")
	}
	c.require("channel")
	return &Callback{c.text(CheckID, "channel"), c.text(CheckID, "chat_id", "chatId"),
		c.text(CheckID, "session_id", "sessionId")}
}

// allMetadata reads the metadata; a correlation beside it counts where it has none. What was
// received means more than it says (docs/protocol.md 6.3): a file mailbox, which writes hops and
// none of the protocol's metadata, that the message waits as long as it has to; the protocol,
// that a heartbeat is answered.
func (f *fields) allMetadata(typ Type, draft bool) Metadata {
	in := f.sub("metadata")
	if in == nil {
		in = &fields{path: "metadata.", err: f.err}
	}
	m := in.metadata()
	if m.CorrelationID == "" {
		m.CorrelationID = f.reference("correlationId", "correlation_id")
	}
	if draft {
		return m
	}
	_, hops := f.find("ttl", "trace")
	protocol := slices.ContainsFunc(metadataNames, func(names []string) bool {
		_, value := in.find(names...)
		return value != nil
	})
	if hops != nil && !protocol && m.CorrelationID == "" {
		m.TTL = new(0)
	}
	if _, ack := in.find("requiresAck", "requires_ack"); ack == nil && typ == TypeHeartbeat {
		m.RequiresAck = true
	}
	return m
}

// metadata reads our fields, and keeps what it does not know.
func (f *fields) metadata() (m Metadata) {
	m.TTL = f.whole(0, MaxLife, "ttl")
	m.CorrelationID = f.reference("correlationId", "correlation_id")
	m.Goal = f.text(CheckID, "goal_id", "goalId")
	m.MaxRetries = f.whole(0, maxRetries, "maxRetries", "max_retries")
	m.RequiresAck = f.flag("requiresAck", "requires_ack")
	if n := f.whole(0, maxRetries, "retryCount", "retry_count"); n != nil {
		m.RetryCount = *n
	}
	m.Tags = f.texts(MaxTags, checkWord, "tags")
	for name, value := range f.in {
		if !metadataNames.has(name) && len(m.Extra) <= MaxFields { // one too many is enough to be refused
			if m.Extra == nil {
				m.Extra = object{}
			}
			m.Extra[name] = encoded(value)
		}
	}
	return m
}

// checkSize refuses a message that says nothing, or too much: what a schema
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
	if (e.Type.is(hasContent) || draft && e.Type.GivesTask()) && only && strings.TrimSpace(e.Text()) == "" {
		return Invalid("content", "the message is empty: want a text")
	}
	return nil
}

// draftNames are the fields that a draft may lack and a misspelling would lose, with how
// many characters may be wrong: the shorter a name, the more others are like it.
var draftNames = map[string]int{"type": 1, "task": 1, "priority": 2, "callback": 2, "reply_to": 2, "replyTo": 2,
	"metadata": 2, "forward_of": 2, "forwardOf": 2, "correlation_id": 2, "correlationId": 2}

// checkSpelling reports a field whose name is a misspelling of one of ours.
func (f *fields) checkSpelling() {
	for _, name := range slices.Sorted(maps.Keys(f.in)) {
		if _, ours := draftNames[name]; ours {
			continue
		}
		for _, meant := range slices.Sorted(maps.Keys(draftNames)) {
			if spelling.Near(name, meant, draftNames[meant]) {
				f.wrong(name, "unknown field; did you mean %s?", meant)
			}
		}
	}
}

package mailbox

import (
	"encoding/json"
	"strings"
)

// content copies what an envelope says: parts, a text, an object with nothing
// but a text, or any other object, which is kept as one data part. The content
// of types about tasks may name the task (docs/protocol.md 6.3).
func (l *level) content(typ Type, draft bool) {
	names := []string{"content", "body"}
	if draft {
		names = append(names, "text")
	}
	from, value := l.find(names...)
	if value == nil {
		if !typ.talks() {
			l.setParts(nil)
		}
		return
	}
	if value[0] == '"' {
		l.setParts([]any{object{"type": text(PartText), "text": value}})
		l.arose("content.parts.0.text", from)
		return
	}
	in, ok := asObject(value)
	if !ok || from != "content" {
		l.set("content", from, value)
		return
	}
	if l.out["task"] == nil && typ.AboutTask() {
		l.contentTask(in, typ)
	}
	if parts, ok := in["parts"]; ok {
		l.parts(parts, in)
		return
	}
	for _, name := range []string{"body", "text"} {
		if t := in[name]; len(in) == 1 && len(t) > 0 && t[0] == '"' {
			l.setParts([]any{object{"type": text(PartText), "text": t}})
			l.arose("content.parts.0.text", "content."+name)
			return
		}
	}
	if len(in) == 0 {
		l.setParts(nil)
		return
	}
	l.setParts([]any{dataPart(value)})
}

// parts copies a list of parts. Those of a type that we do not know are kept as
// data, and so is what stands beside the list.
func (l *level) parts(raw json.RawMessage, beside object) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		l.out["content"] = encoded(object{"parts": raw})
		return
	}
	var parts []any
	for _, raw := range list[:min(len(list), MaxParts+1)] { // one too many is enough to be refused
		parts = append(parts, part(raw))
	}
	rest := object{}
	for name, value := range beside {
		if name != "parts" {
			rest[name] = value
		}
	}
	if len(rest) > 0 {
		parts = append(parts, dataPart(encoded(rest)))
	}
	l.setParts(parts)
}

// part copies one part; what has no type is left for the schema to refuse.
func part(raw json.RawMessage) any {
	in, ok := asObject(raw)
	typ := asText(in["type"])
	if !ok || typ == "" {
		return raw
	}
	value, ok := map[string]string{PartText: "text", PartData: "data", PartFile: "path"}[typ]
	if !ok {
		return dataPart(raw)
	}
	out := object{"type": text(typ)}
	if v, ok := in[value]; ok {
		out[value] = v
	}
	return out
}

func dataPart(value json.RawMessage) any { return object{"type": text(PartData), "data": value} }

func (l *level) setParts(parts []any) {
	l.out["content"] = encoded(map[string]any{"parts": orEmpty(parts)})
}

// task copies the fields of a task.
func (l *level) task(typ Type) {
	l.take("id", "task_id", "taskId")
	if from, value := l.find("state", "status"); value != nil {
		if s := asText(value); s != "" {
			value = text(string(stateOf(s)))
		}
		l.set("state", from, value)
	} else if s := impliedState(typ); s != "" {
		l.out["state"] = text(string(s))
	}
	l.deadline()
}

// deadline copies a deadline; an empty text is none.
func (l *level) deadline() {
	if string(l.in["deadline"]) != `""` {
		l.time("deadline")
	}
}

// contentTask makes the task of an envelope that names it in its content. What
// kind of step it is the type says; a status counts only on an update, and only
// where it is a state of ours.
func (l *level) contentTask(in object, typ Type) {
	t := newLevel(in, "content.", object{}, "task.", l.origin)
	t.take("id", "taskId", "task_id")
	if t.out["id"] == nil {
		if in["parts"] == nil {
			l.arose("task", "content.taskId")
		}
		return
	}
	if typ == TypeTaskUpdate {
		from, value := t.find("status", "state")
		if s := stateOf(asText(value)); s.Known() {
			t.set("state", from, text(string(s)))
		}
	} else {
		t.out["state"] = text(string(impliedState(typ)))
	}
	t.deadline()
	l.put("task", t)
}

// impliedState is the state that a type speaks of by itself.
func impliedState(typ Type) TaskState {
	switch typ {
	case TypeTask, TypeTaskAssign:
		return Pending
	case TypeTaskComplete:
		return Completed
	case TypeTaskFailed:
		return Failed
	}
	return ""
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

package mailbox

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// object is a JSON object whose values are not looked into yet.
type object = map[string]json.RawMessage

// level copies fields of an object from the form of their sender into ours, and
// remembers where they came from.
type level struct {
	in, out         object
	inPath, outPath string            // with a dot at the end, or ""
	origin          map[string]string // path in our form → path as the sender wrote it, where they differ
}

func newLevel(in object, inPath string, out object, outPath string, origin map[string]string) *level {
	return &level{in: in, out: out, inPath: inPath, outPath: outPath, origin: origin}
}

// find returns the first of the names that has a value, and the value.
func (l *level) find(names ...string) (name string, value json.RawMessage) {
	for _, name := range names {
		if value := l.in[name]; !isNull(value) {
			return name, value
		}
	}
	return "", nil
}

// set gives a field of ours a value that the sender wrote as from.
func (l *level) set(name, from string, value json.RawMessage) {
	l.out[name] = value
	l.arose(name, from)
}

// arose remembers that a field of ours is what the sender writes, or should
// have written, as from.
func (l *level) arose(name, from string) {
	if l.origin != nil && l.outPath+name != l.inPath+from {
		l.origin[l.outPath+name] = l.inPath + from
	}
}

// take copies the first of the names that has a value; the first is ours.
func (l *level) take(names ...string) {
	if from, value := l.find(names...); value != nil {
		l.set(names[0], from, value)
	}
}

// whole copies a whole number. What is none becomes a text, which the schema
// refuses: numbers with a huge exponent are never computed.
func (l *level) whole(names ...string) {
	from, value := l.find(names...)
	if value == nil {
		return
	}
	if c := value[0]; c == '-' || '0' <= c && c <= '9' {
		f, err := strconv.ParseFloat(string(value), 64)
		if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			value = strconv.AppendInt(nil, int64(f), 10)
		} else {
			value = json.RawMessage(`"no whole number"`)
		}
	}
	l.set(names[0], from, value)
}

// time copies a time. What is none is left as it is, and the schema refuses it.
func (l *level) time(names ...string) {
	from, value := l.find(names...)
	if value == nil {
		return
	}
	if t, err := readTime(value); err == nil {
		value = text(formatTime(t))
	}
	l.set(names[0], from, value)
}

// sub begins the object in a field. It is nil where there is none: then the
// value is copied for the schema to refuse.
func (l *level) sub(names ...string) *level {
	from, value := l.find(names...)
	if value == nil {
		return nil
	}
	in, ok := asObject(value)
	if !ok {
		l.set(names[0], from, value)
		return nil
	}
	return newLevel(in, l.inPath+from+".", object{}, l.outPath+names[0]+".", l.origin)
}

// put ends an object that sub began.
func (l *level) put(name string, sub *level) {
	if sub != nil {
		l.out[name] = encoded(sub.out)
	}
}

// normalise copies an envelope of any of the three makes into our form. A draft
// may say what it says by a text beside the other fields, too.
func normalise(in object, draft bool) *level {
	l := newLevel(in, "", object{}, "", map[string]string{})
	for _, name := range []string{"id", "from", "to", "type"} {
		l.take(name)
	}
	if isNull(l.out["type"]) {
		l.out["type"] = text(string(TypeMessage))
	}
	typ := Type(asText(l.out["type"]))

	l.time("timestamp")
	l.whole("priority")
	if l.out["priority"] == nil {
		l.out["priority"] = encoded(typ.DefaultPriority())
	}
	l.whole("ttl")
	if l.out["ttl"] == nil {
		l.out["ttl"] = encoded(DefaultHops)
	}
	l.take("trace")
	if l.out["trace"] == nil {
		l.out["trace"] = json.RawMessage(`[]`)
		if from := l.out["from"]; from != nil {
			l.out["trace"] = encoded([]json.RawMessage{from})
			l.arose("trace.0", "from")
		}
	}
	if task := l.sub("task"); task != nil {
		task.task(typ)
		l.put("task", task)
	}
	l.content(typ, draft)
	if callback := l.sub("callback"); callback != nil {
		callback.take("channel")
		callback.take("chat_id", "chatId")
		callback.take("session_id", "sessionId")
		l.put("callback", callback)
	}
	l.take("reply_to", "replyTo")
	l.topMetadata()
	l.take("forward_of", "forwardOf")
	return l
}

// topMetadata copies the metadata; a correlation beside it counts where it has none.
func (l *level) topMetadata() {
	m := l.sub("metadata")
	if m == nil {
		if l.out["metadata"] != nil {
			return // not an object
		}
		m = newLevel(object{}, "metadata.", object{}, "metadata.", l.origin)
	}
	m.metadata()
	if from, value := l.find("correlationId", "correlation_id"); value != nil && m.out["correlationId"] == nil {
		m.out["correlationId"] = value
		l.arose("metadata.correlationId", from)
	}
	l.put("metadata", m)
}

// received fills in what a sender means that leaves it out: a file mailbox, which
// writes hops and none of the protocol's metadata, that the message waits as long
// as it has to; the protocol, that a heartbeat is answered (docs/protocol.md 6.3).
func (l *level) received() {
	m, ok := asObject(l.out["metadata"])
	if !ok {
		return
	}
	_, hops := l.find("ttl", "trace")
	protocol := slices.ContainsFunc(metadataNames, func(names []string) bool { return m[names[0]] != nil })
	if hops != nil && !protocol {
		m["ttl"] = json.RawMessage(`0`)
	}
	if asText(l.out["type"]) == string(TypeHeartbeat) && m["requiresAck"] == nil {
		m["requiresAck"] = json.RawMessage(`true`)
	}
	l.out["metadata"] = encoded(m)
}

func (l *level) metadata() {
	for _, names := range metadataNames {
		switch names[0] {
		case "ttl", "retryCount", "maxRetries":
			l.whole(names...)
		default:
			l.take(names...)
		}
	}
	others := 0
	for name, value := range l.in {
		if isMetadataName(name) {
			continue
		}
		if others++; others > MaxFields+1 {
			return // one too many is enough to be refused
		}
		l.out[name] = value
	}
}

// sent translates the path of a field of ours into the sender's.
func (l *level) sent(path string) string {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '.') {
		if from, ok := l.origin[path[:end]]; ok {
			return from + path[end:]
		}
	}
	return path
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func asObject(raw json.RawMessage) (object, bool) {
	var o object
	raw = bytes.TrimLeft(raw, " \t\r\n")
	ok := bytes.HasPrefix(raw, []byte{'{'}) && json.Unmarshal(raw, &o) == nil
	return o, ok
}

// asText is the text that raw is, or "".
func asText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func text(s string) json.RawMessage { return encoded(s) }

// encoded is v as JSON; v is made of texts, numbers and JSON that was read.
func encoded(v any) json.RawMessage {
	raw, err := relay.Marshal(v)
	if err != nil {
		panic("mailbox: " + err.Error())
	}
	return raw
}

package relay

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"feishu-relay/internal/plainjson"
)

// decodePlain reads a line of the form that [Message.Encode] writes. It refuses all else,
// which is left to encoding/json; where it accepts, both agree.
func decodePlain(line []byte) (m Message, ok bool) {
	s := plainjson.Scan(line)
	if !s.Byte('{') {
		return m, false
	}
	for {
		key, ok := s.Key()
		if !ok {
			return m, false
		}
		switch string(key) {
		case "relay_msg_id":
			ok = readText(&s, &m.RelayMsgID)
		case "channel":
			ok = readText(&s, &m.Channel)
		case "chat_id":
			ok = readText(&s, &m.ChatID)
		case "content":
			ok = readText(&s, &m.Content)
		case "sender_bot_open_id":
			ok = readText(&s, &m.SenderBotOpenID)
		case "sender_agent_name":
			ok = readText(&s, &m.SenderAgentName)
		case "metadata":
			ok = readMetadata(&s, &m)
		case "message_id":
			ok = readText(&s, &m.MessageID)
		case "ts":
			ok = readMillis(&s, &m.TS)
		case "sender_app_id":
			ok = readText(&s, &m.SenderAppID)
		case "sender_name":
			ok = readText(&s, &m.SenderName)
		case "mentions":
			ok = readMentions(&s, &m)
		case "msg_type":
			ok = readText(&s, &m.MsgType)
		case "parent_id":
			ok = readText(&s, &m.ParentID)
		case "root_id":
			ok = readText(&s, &m.RootID)
		case "thread_id":
			ok = readText(&s, &m.ThreadID)
		case "seq":
			var n int64
			if n, ok = s.Number(); n > 0 {
				m.Seq = Seq(n)
			}
		case "user_ts":
			ok = readMillis(&s, &m.UserTS)
		case "role":
			ok = readText(&s, &m.Role)
		case "sender_id":
			ok = readText(&s, &m.SenderID)
		case "sig":
			_, ok = s.Text()
		default:
			ok = false
		}
		if !ok {
			return m, false
		}
		if s.Byte(',') {
			continue
		}
		return m, s.Byte('}') && s.Done()
	}
}

// usual are values that most messages have, so that they need no memory of their own.
var usual = [...]string{DefaultChannel, "text", "interactive", RoleUser}

func readText[T ~string](s *plainjson.Scanner, to *T) bool {
	t, ok := s.Text()
	if !ok {
		return false
	}
	for _, value := range usual {
		if string(t.Raw) == value {
			*to = T(value)
			return true
		}
	}
	text, ok := t.String()
	*to = T(text)
	return ok
}

func readMillis(s *plainjson.Scanner, to *Millis) bool {
	n, ok := s.Millis()
	*to = Millis(n)
	return ok
}

func readMetadata(s *plainjson.Scanner, m *Message) bool {
	if !s.Byte('{') {
		return false
	}
	if m.Metadata == nil {
		m.Metadata = Metadata{}
	}
	if s.Byte('}') {
		return true
	}
	for {
		t, ok := s.Text()
		if !ok || !s.Byte(':') {
			return false
		}
		key, ok := t.String()
		if !ok {
			return false
		}
		value, ok := s.Scalar()
		if !ok {
			return false
		}
		m.Metadata[key] = bytes.Clone(value)
		if !s.Byte(',') {
			return s.Byte('}')
		}
	}
}

func readMentions(s *plainjson.Scanner, m *Message) bool {
	if m.Mentions != nil || !s.Byte('[') {
		return false
	}
	m.Mentions = []Mention{}
	if s.Byte(']') {
		return true
	}
	for {
		var one Mention
		if !readMention(s, &one) {
			return false
		}
		m.Mentions = append(m.Mentions, one)
		if !s.Byte(',') {
			return s.Byte(']')
		}
	}
}

func readMention(s *plainjson.Scanner, to *Mention) bool {
	if !s.Byte('{') {
		return false
	}
	if s.Byte('}') {
		return true
	}
	for {
		key, ok := s.Key()
		if !ok {
			return false
		}
		switch string(key) {
		case "agent_name":
			ok = readText(s, &to.AgentName)
		case "name":
			ok = readText(s, &to.Name)
		case "open_id":
			ok = readText(s, &to.OpenID)
		case "key":
			ok = readText(s, &to.Key)
		default:
			ok = false
		}
		if !ok {
			return false
		}
		if !s.Byte(',') {
			return s.Byte('}')
		}
	}
}

// marshal is [Marshal] for a message.
func (m *Message) marshal() ([]byte, error) {
	for _, value := range m.Metadata {
		if !plainjson.IsScalar(value) {
			return Marshal(m)
		}
	}
	const fixed = 700 // bytes of all fields but the content, nearly always
	w := make(plainjson.Line, 0, fixed+len(m.Content)+len(m.Content)/8)
	w.Text(`{"relay_msg_id":`, string(m.RelayMsgID))
	w.Text(`,"channel":`, m.Channel)
	w.Text(`,"chat_id":`, string(m.ChatID))
	w.Text(`,"content":`, m.Content)
	w.Text(`,"sender_bot_open_id":`, string(m.SenderBotOpenID))
	w.Text(`,"sender_agent_name":`, string(m.SenderAgentName))
	writeMetadata(&w, m.Metadata)
	w.Some(`,"message_id":`, string(m.MessageID))
	w.SomeNumber(`,"ts":`, int64(m.TS))
	w.Some(`,"sender_app_id":`, m.SenderAppID)
	w.Some(`,"sender_name":`, m.SenderName)
	writeMentions(&w, m.Mentions)
	w.Some(`,"msg_type":`, m.MsgType)
	w.Some(`,"parent_id":`, string(m.ParentID))
	w.Some(`,"root_id":`, string(m.RootID))
	w.Some(`,"thread_id":`, m.ThreadID)
	if m.Seq != 0 {
		w.Raw(`,"seq":`)
		w = strconv.AppendUint(w, uint64(m.Seq), 10)
	}
	w.SomeNumber(`,"user_ts":`, int64(m.UserTS))
	w.Some(`,"role":`, m.Role)
	w.Some(`,"sender_id":`, string(m.SenderID))
	w.Raw("}")
	return w, nil
}

func writeMetadata(w *plainjson.Line, all Metadata) {
	if all == nil {
		w.Raw(`,"metadata":null`)
		return
	}
	var room [8]string
	keys := slices.AppendSeq(room[:0], maps.Keys(all))
	slices.Sort(keys)
	w.Raw(`,"metadata":{`)
	for i, key := range keys {
		if i > 0 {
			w.Raw(",")
		}
		w.Text("", key)
		w.Raw(":")
		*w = append(*w, all[key]...)
	}
	w.Raw("}")
}

func writeMentions(w *plainjson.Line, all []Mention) {
	before := `,"mentions":[{`
	for _, one := range all {
		w.Raw(before)
		before = ",{"
		start := len(*w)
		for _, f := range [...]struct{ key, value string }{{`"agent_name":`, string(one.AgentName)}, {`"name":`, one.Name},
			{`"open_id":`, string(one.OpenID)}, {`"key":`, one.Key}} {
			if len(*w) > start && f.value != "" {
				w.Raw(",")
			}
			w.Some(f.key, f.value)
		}
		w.Raw("}")
	}
	if len(all) > 0 {
		w.Raw("]")
	}
}

package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	fastjson "github.com/segmentio/encoding/json"

	"feishu-relay/internal/runes"
)

// Identifiers. Each is opaque here; only package feishu knows their format.
type (
	// ChatID names a conversation (Feishu: oc_…).
	ChatID string
	// MessageID names a message (Feishu: om_…, else sender:chat:ts:random).
	MessageID string
	// AgentName names a bot on the relay (AGENT_NAME).
	AgentName string
	// OpenID names a person or a bot as one Feishu app sees it (ou_…).
	OpenID string
)

// Roles of a message. An empty role is a bot's: only users' messages, which are
// shared for the transcript, name theirs.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Limits.
const (
	// MaxLine is the most bytes an encoded message may have, with its newline.
	// [Message.Encode] cuts a longer text and marks the cut; a longer line is
	// not read.
	MaxLine = 1 << 20
	// MaxID is the most bytes an identifier may have; a longer one is malformed.
	MaxID = 512
	// MaxName is the most bytes of a displayed name; a longer one is cut.
	MaxName = 512
	// MaxMentions is the most mentions of a message; further ones are dropped.
	MaxMentions = 1000
	// MaxAhead is how far a sender's clock may be ahead. Beyond it the time of
	// arrival counts as the time of sending.
	MaxAhead = 60 * time.Second
)

// ErrMalformed is wrapped by every error of [Decode].
var ErrMalformed = errors.New("malformed message")

// ErrTooLarge is wrapped by [Message.Encode] if a message is longer than
// [MaxLine] even without its text.
var ErrTooLarge = errors.New("message is too large")

// Mention is an agent that a message addresses, as the sender's sidecar
// resolved it.
type Mention struct {
	AgentName AgentName `json:"agent_name,omitempty"`
	Name      string    `json:"name,omitempty"`
	OpenID    OpenID    `json:"open_id,omitempty"`
	Key       string    `json:"key,omitempty"` // "@_user_1" in the text
}

// Metadata is passed on unchanged; values of unknown keys are not examined.
type Metadata map[string]json.RawMessage

// Text returns the string value of key, or "".
func (m Metadata) Text(key string) (text string) {
	_ = json.Unmarshal(m[key], &text)
	return text
}

// Message is a chat message that one sidecar shares with the others: a line of
// the file queue, a payload on Redis. The first seven fields are the original
// contract; a message with only these is valid, and readers ignore fields they
// do not know.
type Message struct {
	RelayMsgID      MessageID `json:"relay_msg_id"`
	Channel         string    `json:"channel"`
	ChatID          ChatID    `json:"chat_id"`
	Content         string    `json:"content"`
	SenderBotOpenID OpenID    `json:"sender_bot_open_id"`
	SenderAgentName AgentName `json:"sender_agent_name"`
	Metadata        Metadata  `json:"metadata"`

	MessageID   MessageID `json:"message_id,omitempty"`
	TS          Millis    `json:"ts,omitempty"` // Feishu's create_time where known
	SenderAppID string    `json:"sender_app_id,omitempty"`
	SenderName  string    `json:"sender_name,omitempty"`
	Mentions    []Mention `json:"mentions,omitempty"`
	MsgType     string    `json:"msg_type,omitempty"`
	ParentID    MessageID `json:"parent_id,omitempty"`
	RootID      MessageID `json:"root_id,omitempty"`
	ThreadID    string    `json:"thread_id,omitempty"`
	Seq         Seq       `json:"seq,omitempty"`     // counts the sender's messages from 1; 0: another program's
	UserTS      Millis    `json:"user_ts,omitempty"` // of the newest user message the sender knew
	Role        string    `json:"role,omitempty"`    // "user" on the users' queue
	SenderID    OpenID    `json:"sender_id,omitempty"`
}

// ID is the identifier that a native event, its relay copy and a repeat have in
// common: the platform's if it is known.
func (m *Message) ID() MessageID {
	if m.MessageID != "" {
		return m.MessageID
	}
	return m.RelayMsgID
}

// MetaFinal is the key of [Metadata] for the time at which a message's text was
// final, in Unix milliseconds. It is set if that was long after ts: a card may take
// minutes to write.
const MetaFinal = "final_ts"

// Final is the time at which the text of m was final, by its sender's clock:
// its ts, unless [MetaFinal] is later.
func (m *Message) Final() Millis {
	at := m.TS
	_ = json.Unmarshal(m.Metadata[MetaFinal], &at)
	return max(at, m.TS)
}

// ErrTime means that a time is invalid.
var ErrTime = errors.New("want a time in Unix milliseconds")

// Millis is a time in Unix milliseconds; 0 is unknown.
type Millis int64

// MillisOf converts t; the zero time becomes 0.
func MillisOf(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Time converts ms; 0 becomes the zero time.
func (ms Millis) Time() time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// UnmarshalJSON accepts a number, also with a fraction, or a string of one, as
// the platform sends it. Seconds are distinguished from milliseconds by their
// size and keep their fraction.
func (ms *Millis) UnmarshalJSON(data []byte) error {
	n, f, err := lenientNumber(data)
	if err != nil {
		return err
	}
	if n >= 1e9 && n < 1e11 {
		n = int64(math.Round(f * 1000))
	}
	*ms = Millis(n)
	return nil
}

// LenientMillis is a time as other programs write it: an invalid one becomes 0.
type LenientMillis Millis

// UnmarshalJSON never fails.
func (ms *LenientMillis) UnmarshalJSON(data []byte) error {
	var at Millis
	if at.UnmarshalJSON(data) != nil {
		at = 0
	}
	*ms = LenientMillis(at)
	return nil
}

// Seq is a sender's counter; an invalid value of another program becomes 0.
type Seq uint64

// UnmarshalJSON accepts the same forms as [Millis].
func (s *Seq) UnmarshalJSON(data []byte) error {
	if n, _, err := lenientNumber(data); err == nil && n > 0 {
		*s = Seq(n)
	}
	return nil
}

// lenientNumber reads a number or a string of one, and returns it rounded down
// and with its fraction.
func lenientNumber(data []byte) (int64, float64, error) {
	text := strings.Trim(string(data), `" `)
	if text == "" || text == "null" {
		return 0, 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, float64(n), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= math.MaxInt64 { // converting these depends on the processor
		return 0, 0, ErrTime
	}
	return int64(f), f, nil
}

// Decode reads one encoded message, with or without its newline. Unknown fields
// are ignored, unknown metadata is kept, invalid UTF-8 is replaced. Errors wrap
// [ErrMalformed] and never quote the message. In case of an error the message
// has only the ids that are valid.
func Decode(line []byte) (Message, error) {
	m := Message{Metadata: Metadata{}} // a map that the fast decoder makes has room for 64
	if len(line) > MaxLine {
		return Message{}, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(line), MaxLine)
	}
	if err := Unmarshal(line, &m); err != nil {
		var ok bool
		if m, ok = decodeLeniently(line); !ok {
			return m.ids(), fmt.Errorf("%w: %w", ErrMalformed, withoutText(err))
		}
	}
	if len(m.Metadata) == 0 {
		m.Metadata = nil
	}
	if m.RelayMsgID == "" {
		m.RelayMsgID = m.MessageID
	}
	if m.Channel == "" {
		m.Channel = DefaultChannel
	}
	if err := m.validate(); err != nil {
		return m.ids(), err
	}
	m.cutNames()
	return m, nil
}

// ids returns a message with only the valid ids of m.
func (m *Message) ids() Message {
	return Message{RelayMsgID: validID(m.RelayMsgID), MessageID: validID(m.MessageID), Channel: validID(m.Channel),
		ChatID: validID(m.ChatID), SenderAgentName: validID(m.SenderAgentName)}
}

func validID[ID ~string](id ID) ID {
	if CheckID(string(id)) != nil {
		return ""
	}
	return id
}

// cutNames bounds the fields that [CheckID] does not check. A mention whose ids are too
// long is dropped.
func (m *Message) cutNames() {
	m.SenderName, m.MsgType = cutName(m.SenderName), cutName(m.MsgType)
	if len(m.Mentions) > MaxMentions {
		m.Mentions = slices.Clone(m.Mentions[:MaxMentions])
	}
	m.Mentions = slices.DeleteFunc(m.Mentions, func(n Mention) bool {
		return max(len(n.AgentName), len(n.OpenID), len(n.Key)) > MaxID
	})
	for i := range m.Mentions {
		m.Mentions[i].Name = cutName(m.Mentions[i].Name)
	}
}

func cutName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return strings.ToValidUTF8(strings.Clone(runes.Cut(name, MaxName)), "")
}

// decodeLeniently leaves out fields of an unexpected type, unless one of them
// is essential: an invalid ts is no reason to lose a message.
func decodeLeniently(line []byte) (m Message, ok bool) {
	var all struct {
		Message
		TS     LenientMillis `json:"ts"`
		UserTS LenientMillis `json:"user_ts"`
	}
	var essential struct {
		RelayMsgID      MessageID `json:"relay_msg_id"`
		Channel         string    `json:"channel"`
		ChatID          ChatID    `json:"chat_id"`
		Content         string    `json:"content"`
		SenderBotOpenID OpenID    `json:"sender_bot_open_id"`
		SenderAgentName AgentName `json:"sender_agent_name"`
		Metadata        Metadata  `json:"metadata"`
		MessageID       MessageID `json:"message_id"`
		Role            string    `json:"role"`
	}
	_ = json.Unmarshal(line, &all) // decodes all fields that have their type
	m = all.Message
	m.TS, m.UserTS = Millis(all.TS), Millis(all.UserTS)
	m.Mentions = slices.DeleteFunc(m.Mentions, func(n Mention) bool { return n == Mention{} })
	if len(m.Mentions) == 0 {
		m.Mentions = nil
	}
	return m, json.Unmarshal(line, &essential) == nil
}

// DefaultChannel is the channel of a message that names none.
const DefaultChannel = "feishu"

// MailChannel is the channel of direct messages between agents: there the chat is
// the other agent (docs/protocol.md 6.10).
const MailChannel = "mailbox"

func (m *Message) validate() error {
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"relay_msg_id", string(m.RelayMsgID), true},
		{"chat_id", string(m.ChatID), true},
		{"channel", m.Channel, true},
		{"sender_agent_name", string(m.SenderAgentName), m.Role != RoleUser && m.SenderBotOpenID == ""},
		{"sender_bot_open_id", string(m.SenderBotOpenID), false},
		{"message_id", string(m.MessageID), false},
		{"parent_id", string(m.ParentID), false},
		{"root_id", string(m.RootID), false},
		{"thread_id", m.ThreadID, false},
		{"sender_app_id", m.SenderAppID, false},
		{"sender_id", string(m.SenderID), false},
	} {
		if err := CheckID(f.value); err != nil {
			return fmt.Errorf("%w: %s %w", ErrMalformed, f.name, err)
		}
		if f.required && f.value == "" {
			return fmt.Errorf("%w: %s is missing", ErrMalformed, f.name)
		}
	}
	if m.Role != "" && m.Role != RoleUser && m.Role != RoleAssistant {
		return fmt.Errorf("%w: role is neither user nor assistant", ErrMalformed)
	}
	return nil
}

// CheckID returns an error if an identifier from outside is too long or has
// control characters. It may be empty.
func CheckID(id string) error {
	if len(id) > MaxID {
		return fmt.Errorf("has %d bytes, at most %d", len(id), MaxID)
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return errors.New("has control characters")
	}
	return nil
}

// withoutText keeps the place that an error of encoding/json names and drops
// the text it quotes.
func withoutText(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q is not a %s", e.Field, e.Type)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not a JSON object (byte %d)", e.Offset)
	}
	return errors.New("not a JSON object of the expected form")
}

// CutMark ends a text that was cut to fit a line; %d is its full size in bytes.
const CutMark = "\n… [cut by feishu-relay: the whole text has %d bytes]"

// Encode returns m as one line without its newline, at most [MaxLine]-1 bytes:
// a longer content is cut and ends in [CutMark]. It fails only if the other
// fields alone are too long. Angle brackets are not escaped.
func (m *Message) Encode() ([]byte, error) {
	out := *m
	if out.Metadata == nil {
		out.Metadata = Metadata{}
	}
	return EncodeCut(&out, &out.Content, MaxLine-1-80) // 80: the signature is added afterwards
}

// EncodeCut returns v as one line without its newline, at most room bytes: text, the address of a field of v, is cut
// in v as far as needed, and ends in [CutMark] then. The error is [ErrTooLarge] if the rest of v is too long.
func EncodeCut(v any, text *string, room int) ([]byte, error) {
	whole, keep := *text, len(*text)
	if keep > room {
		keep = room
		*text = cut(whole, keep)
	}
	for ; ; *text = cut(whole, keep) {
		line, err := Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode message: %w", err)
		}
		over := len(line) - room
		if over <= 0 {
			return line, nil
		}
		if keep == 0 {
			return nil, fmt.Errorf("%w: %d bytes besides its text, at most %d", ErrTooLarge, len(line), room)
		}
		// An escape turns one byte into at most six, so dropping a sixth of the
		// excess is never too much; dropping at least a tenth of keep bounds
		// the loop.
		keep = max(0, min(keep-over/6, keep*9/10))
	}
}

// cut keeps about the first keep bytes of text, in whole runes, and appends
// [CutMark].
func cut(text string, keep int) string {
	return runes.Cut(text, keep) + fmt.Sprintf(CutMark, len(text))
}

// Marshal encodes v as one line of JSON without a newline; <, > and & are not
// escaped, so that texts with tags remain readable and keep their length.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// Unmarshal does what [json.Unmarshal] does, in a third of the time where both know what to do with the text: the
// faster decoder has no bound on depth, keeps invalid UTF-8, leaves what is behind a field of another type, and does
// not know a name that is written with the long s or the Kelvin sign. A number too large for an int becomes another.
func Unmarshal[T any](data []byte, v *T) error {
	fast := *v
	if utf8.Valid(data) && !Deeper(data, 100) && !bytes.Contains(data, []byte("ſ")) &&
		!bytes.Contains(data, []byte("\u212a")) && fastjson.Unmarshal(data, &fast) == nil {
		*v = fast
		return nil
	}
	return json.Unmarshal(data, v)
}

// Deeper reports whether the lists and objects of a JSON document are nested more than most deep.
func Deeper(document []byte, most int) bool {
	depth, inText := 0, false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			if depth++; depth > most {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// recordStart begins every line that Encode writes.
var recordStart = []byte(`{"relay_msg_id":`)

// salvageTries is the number of places in a line at which [Salvage] looks for a
// message. A line has more than one only if its metadata holds messages too;
// without the limit a line of starts alone would cost the square of its length.
const salvageTries = 32

// Salvage returns the whole message that follows, in the same line, a torn one
// left by a killed writer.
func Salvage(line []byte) (whole []byte, ok bool) {
	rest := line
	for range salvageTries {
		i := bytes.LastIndex(rest, recordStart)
		if i <= 0 {
			break
		}
		if whole = line[i:]; json.Valid(whole) {
			return whole, true
		}
		rest = rest[:i]
	}
	return nil, false
}

// NewID makes an identifier of at most [MaxID] bytes for a message without one
// of the platform. If the parts are longer, it keeps their end, which includes
// random.
func NewID(sender AgentName, chat ChatID, ts Millis, random string) MessageID {
	id := fmt.Sprintf("%s:%s:%d:%s", sender, chat, ts, random)
	if len(id) > MaxID {
		id = strings.ToValidUTF8(id[len(id)-MaxID:], "")
	}
	return MessageID(id)
}

package feishu

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/internal/runes"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

// Injected is a receive event for a message of another bot, in the form in which Feishu would
// deliver it (docs/feishu.md 3.5).
type Injected struct {
	EventID, AppID, TenantKey, Token string // of the header; AppID is the receiver's

	SenderType string // bot (the default), app, user
	// Sender is the sender, as the receiver's app sees it. Without an OpenID, or
	// with the receiver's own, it gets a [StandIn].
	Sender Bot
	Self   Bot // the receiver: OpenID and Name

	// MentionsSelf is whether the receiver is mentioned. It becomes @_user_1: at
	// "@<Self.Name>" in the text, else in front.
	MentionsSelf bool
	// Mentions are the others that are mentioned, as the receiver sees them. Those
	// whose "@Name" is in the text become keys; keys in Mentions are not used.
	Mentions []Mention

	Message          relay.MessageID // the real om_… (docs/feishu.md 3.5)
	ChatID           relay.ChatID
	ChatType         string // "": group
	ThreadID         string
	RootID, ParentID relay.MessageID // written only together with ThreadID (docs/feishu.md 3.5)

	// Text is plain text, of a message of type text; keys and tags in it are disarmed.
	Text       string
	CreateTime relay.Millis // 0: now
	// Prefix, such as "[BotA] ", is put in front of everything, @_user_1 included, so
	// that the text does not look like a person's and no "/command" in it runs.
	Prefix string
}

// StandIn returns an open_id for an agent whose real one in the receiver's name space is
// unknown: always the same, and nobody else's.
func StandIn(appID string, agent relay.AgentName) relay.OpenID {
	sum := sha256.Sum256([]byte(appID + "\n" + string(agent)))
	return relay.OpenID("ou_" + hex.EncodeToString(sum[:16]))
}

// mailMark and mailDigits describe the end of the id of a direct message between agents.
const (
	mailMark   = "mail"
	mailDigits = 16
)

// MailID returns the message id for a message that Feishu does not have, such
// as a direct one between agents: always the same. about is the message
// of Feishu's that calls about it are meant for; "" if none is known.
func MailID(id string, about relay.MessageID) relay.MessageID {
	sum := sha256.Sum256([]byte(id))
	return cmp.Or(about, "om_") + relay.MessageID(mailMark+hex.EncodeToString(sum[:mailDigits/2]))
}

// AboutMail returns the message that a [MailID] was made with; false for any other id.
func AboutMail(id relay.MessageID) (relay.MessageID, bool) {
	cut := len(id) - mailDigits - len(mailMark)
	if cut <= len("om_") || id[cut:cut+len(mailMark)] != mailMark ||
		strings.Trim(string(id[cut+len(mailMark):]), "0123456789abcdef") != "" {
		return "", false
	}
	return id[:cut], true
}

// injectedEvent is the envelope of an event. Its header has Feishu's order.
type injectedEvent struct {
	Schema string `json:"schema"`
	Header struct {
		EventID    string `json:"event_id"`
		EventType  string `json:"event_type"`
		CreateTime string `json:"create_time"`
		Token      string `json:"token"`
		AppID      string `json:"app_id"`
		TenantKey  string `json:"tenant_key"`
	} `json:"header"`
	Event larkim.P2MessageReceiveV1Data `json:"event"`
}

// JSON returns the event as one line of compact JSON (docs/feishu.md 2.3). It is an
// error if the event lacks an id, or if the receiver is to be mentioned
// and its own open_id is unknown: frameworks would drop the event.
func (in *Injected) JSON() ([]byte, error) {
	switch {
	case in.EventID == "" || in.AppID == "" || in.Message == "" || in.ChatID == "":
		return nil, errors.New("injected event: event, app, message and chat need an id")
	case in.MentionsSelf && in.Self.OpenID == "":
		return nil, errors.New("injected event: the bot's own open_id is not known yet")
	}
	m := Message{ID: in.Message, ChatID: in.ChatID, ChatType: cmp.Or(in.ChatType, ChatGroup), Type: "text",
		Sender:     Sender{Type: cmp.Or(in.SenderType, SenderBot), OpenID: in.sender()},
		CreateTime: cmp.Or(in.CreateTime, relay.MillisOf(time.Now()))}
	if in.ThreadID != "" {
		m.ThreadID, m.RootID, m.ParentID = in.ThreadID, in.RootID, in.ParentID
	}
	var text string
	text, m.Mentions = in.addressed()
	m.Content = TextContent(text)
	return m.Event(in.EventID, in.Token, Self{AppID: in.AppID, Tenant: in.TenantKey}), nil
}

// Event returns the receive event that brings m to an app's bot, as one line of compact JSON (docs/feishu.md 2.3).
func (m *Message) Event(id, token string, self Self) []byte {
	at := fmt.Sprint(m.CreateTime)
	e := injectedEvent{Schema: "2.0"}
	e.Header.EventID, e.Header.EventType, e.Header.CreateTime = id, MessageReceived, at
	e.Header.Token, e.Header.AppID, e.Header.TenantKey = token, self.AppID, self.Tenant
	ids := func(open relay.OpenID, union, user string) *larkim.UserId {
		return &larkim.UserId{UnionId: some(union), UserId: some(user), OpenId: some(open)}
	}
	e.Event.Sender = &larkim.EventSender{SenderId: ids(m.Sender.OpenID, m.Sender.UnionID, m.Sender.UserID),
		SenderType: &m.Sender.Type, TenantKey: &self.Tenant}
	e.Event.Message = &larkim.EventMessage{MessageId: some(m.ID), RootId: some(m.RootID), ParentId: some(m.ParentID),
		ThreadId: some(m.ThreadID), CreateTime: &at, UpdateTime: &at, ChatId: some(m.ChatID), ChatType: &m.ChatType,
		MessageType: &m.Type, Content: &m.Content}
	for i := range m.Mentions {
		one := &m.Mentions[i]
		if one.OpenID == "" && one.AppID == self.AppID { // as REST answers name bots
			one.OpenID = self.OpenID
		}
		e.Event.Message.Mentions = append(e.Event.Message.Mentions, &larkim.MentionEvent{Key: &one.Key,
			Id: ids(one.OpenID, one.UnionID, one.UserID), MentionedType: some(one.Type), Name: &one.Name,
			TenantKey: &self.Tenant})
	}
	return compact(e)
}

// some is a field of the SDK; nil where it is missing.
func some[T ~string](value T) *string {
	if value == "" {
		return nil
	}
	return new(string(value))
}

// sender is never the receiver: frameworks drop messages of their own bot.
func (in *Injected) sender() relay.OpenID {
	if in.Sender.OpenID != "" && in.Sender.OpenID != in.Self.OpenID {
		return in.Sender.OpenID
	}
	return StandIn(in.AppID, cmp.Or(in.Sender.Agent, relay.AgentName(in.Sender.AppID), relay.AgentName(in.Sender.Name)))
}

// maxInjectedMentions is how many others a text may mention; further ones stay
// plain names.
const maxInjectedMentions = 50

// addressed returns the text with a key in the place of each "@Name" that package mention finds, with spaces around it
// as Koishi needs (docs/feishu.md 3.5), and the mentions, the receiver's first.
func (in *Injected) addressed() (string, []Mention) {
	var all, list []Mention
	if in.MentionsSelf {
		list = append(list, Mention{Key: "@_user_1", OpenID: in.Self.OpenID, Type: SenderBot, Name: in.Self.Name})
		all = slices.Clone(list)
	}
	for _, m := range in.Mentions[:min(len(in.Mentions), maxInjectedMentions)] {
		if m.Key = ""; m.OpenID != "" && m.OpenID != in.Self.OpenID {
			all = append(all, m)
		}
	}
	agents := make([]mention.Agent, 0, len(all))
	for i, m := range all {
		agents = append(agents, mention.Agent{ID: strconv.Itoa(i), Names: []string{m.Name}})
	}
	body, inText, end := harmless(in.Text), false, 0
	var out strings.Builder
	for _, hit := range mention.NewDirectory(agents).Plain(body) {
		i, _ := strconv.Atoi(hit.Agent) // one of those above
		m := &all[i]
		if m.Key == "" {
			m.Key = "@_user_" + strconv.Itoa(len(list)+1)
			list = append(list, *m)
		}
		inText = inText || in.MentionsSelf && i == 0
		out.WriteString(body[end:hit.From])
		if before, _ := utf8.DecodeLastRuneInString(body[end:hit.From]); hit.From > end && !unicode.IsSpace(before) {
			out.WriteByte(' ')
		}
		out.WriteString(m.Key)
		if after, _ := utf8.DecodeRuneInString(body[hit.To:]); hit.To < len(body) && !unicode.IsSpace(after) {
			out.WriteByte(' ')
		}
		end = hit.To
	}
	text := out.String() + body[end:]
	if in.MentionsSelf && !inText {
		text = strings.TrimRight("@_user_1 "+text, " ")
	}
	return noCommand(prefixSigns.Replace(runes.OneLine(in.Prefix)) + text), list
}

var (
	keyRE       = regexp.MustCompile(`(?i)@(_user_|_all)`)
	tagRE       = regexp.MustCompile(`(?i)<(/?at)([\s>/]|$)`)
	prefixSigns = strings.NewReplacer("@", "＠", "<", "＜")
	leadRE      = regexp.MustCompile(`^(?:@_user_[0-9]+|[\s\p{Z}\p{C}])*`)
	commandRE   = regexp.MustCompile(`^[/／!！][\s\p{Z}\p{C}]*[\pL\pN_]`)
)

// harmless disarms keys and tags in text by the full-width form of their first character: people
// can read them, but they mention nobody.
func harmless(text string) string {
	text = keyRE.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "＠$1")
	return tagRE.ReplaceAllString(text, "＜$1$2")
}

// noCommand disarms a command at the beginning of text, after the keys that
// frameworks remove first, by an invisible character.
func noCommand(text string) string {
	lead := len(leadRE.FindString(text))
	if !commandRE.MatchString(text[lead:]) {
		return text
	}
	return text[:lead] + "\u2060" + text[lead:]
}

// Bounds for reading the body of an answer that is not used.
const (
	drainWait  = time.Second
	drainBytes = 64 << 10
)

// Drain reads an answer's body within bounds and closes it, so that its connection
// can be used again. A bot may send its status and keep the body open while it works.
func Drain(body io.ReadCloser) {
	late := time.AfterFunc(drainWait, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, drainBytes))
	_ = body.Close()
}

// Injection is an injected event, which is written to the bot once.
type Injection struct {
	Event []byte // the JSON of its 2.0 envelope; kept until Inject returns
	Again bool   // it was written before, under the same ids
	// Written is called when the event is written whole. May be nil.
	Written func()
	// Late is called when the bot acknowledges the event with 200 after Inject has returned because
	// its context was done, or the connection ended. May be nil. It may be kept for long.
	Late func()
}

// Errors of an injection.
var (
	// ErrNotInjected is returned if the bot was not reached.
	ErrNotInjected = errors.New("the bot was not reached")
	// ErrInjectionEnded is returned if the connection ended before the bot acknowledged.
	ErrInjectionEnded = errors.New("the connection ended before the bot acknowledged the event")
)

// AnswerError is an acknowledgement with a code other than 200.
type AnswerError struct{ Code int }

func (e *AnswerError) Error() string { return fmt.Sprintf("the bot answered %d", e.Code) }

// IsRefusal reports whether a code, of an acknowledgement or of HTTP, is a permanent
// refusal of the message: 4xx other than 408 and 429.
func IsRefusal(code int) bool {
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}

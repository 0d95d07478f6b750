package feishu

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"feishu-relay/relay"
)

// Injected is a receive event of our own: what another bot said, as Feishu would
// deliver it (docs/feishu.md 3.5).
type Injected struct {
	EventID, AppID, TenantKey, Token string // of the header; AppID is the receiver's

	SenderType string // bot (the default), app, user
	// Sender is who said it, as the receiver's app sees it. Without an OpenID, or
	// with the receiver's own, it gets a [StandIn].
	Sender Bot
	Self   Bot // the receiver: OpenID and Name

	// MentionsSelf says that the receiver is addressed. It becomes @_user_1: where
	// the text shows "@<Self.Name>", else in front.
	MentionsSelf bool
	// Mentions are the others that are addressed, as the receiver sees them. Those
	// whose "@Name" the text shows become keys; keys given here are not used.
	Mentions []Mention

	Message          relay.MessageID // the real om_… (docs/feishu.md 3.5)
	ChatID           relay.ChatID
	ChatType         string // "": group
	ThreadID         string
	RootID, ParentID relay.MessageID // written only together with ThreadID (docs/feishu.md 3.5)

	// Text is plain text. It goes out as message_type text; what looks like a key
	// or a tag in it is written so that it is none.
	Text       string
	CreateTime relay.Millis // 0: now
	// Prefix, such as "[BotA] ", stands before everything, @_user_1 included, so
	// that the text is not taken for a person's and no "/command" in it runs.
	Prefix string
}

// StandIn is the open_id of an agent whose own one in the receiver's name space is
// not known: the same each time, and nobody else's.
func StandIn(appID string, agent relay.AgentName) relay.OpenID {
	sum := sha256.Sum256([]byte(appID + "\n" + string(agent)))
	return relay.OpenID("ou_" + hex.EncodeToString(sum[:16]))
}

// mailMark and mailDigits are what ends the id of a direct message between agents.
const (
	mailMark   = "mail"
	mailDigits = 16
)

// MailID is the message id under which a message that Feishu does not have, such
// as a direct one between agents, is shown to a bot: the same each time. about is the message
// of Feishu's that calls about it are meant for; "" where none is known.
func MailID(id string, about relay.MessageID) relay.MessageID {
	sum := sha256.Sum256([]byte(id))
	return cmp.Or(about, "om_") + relay.MessageID(mailMark+hex.EncodeToString(sum[:mailDigits/2]))
}

// AboutMail is the message that a [MailID] was made with; false for any other id.
func AboutMail(id relay.MessageID) (relay.MessageID, bool) {
	cut := len(id) - mailDigits - len(mailMark)
	if cut <= len("om_") || id[cut:cut+len(mailMark)] != mailMark ||
		strings.Trim(string(id[cut+len(mailMark):]), "0123456789abcdef") != "" {
		return "", false
	}
	return id[:cut], true
}

type (
	injectedEvent struct {
		Schema string         `json:"schema"`
		Header injectedHeader `json:"header"`
		Event  struct {
			Sender  injectedSender  `json:"sender"`
			Message injectedMessage `json:"message"`
		} `json:"event"`
	}
	injectedHeader struct {
		EventID    string `json:"event_id"`
		EventType  string `json:"event_type"`
		CreateTime string `json:"create_time"`
		Token      string `json:"token"`
		AppID      string `json:"app_id"`
		TenantKey  string `json:"tenant_key"`
	}
	injectedSender struct {
		SenderID   injectedID `json:"sender_id"`
		SenderType string     `json:"sender_type"`
		TenantKey  string     `json:"tenant_key"`
	}
	injectedMessage struct {
		MessageID   relay.MessageID   `json:"message_id"`
		RootID      relay.MessageID   `json:"root_id,omitempty"`
		ParentID    relay.MessageID   `json:"parent_id,omitempty"`
		ThreadID    string            `json:"thread_id,omitempty"`
		CreateTime  string            `json:"create_time"`
		UpdateTime  string            `json:"update_time"`
		ChatID      relay.ChatID      `json:"chat_id"`
		ChatType    string            `json:"chat_type"`
		MessageType string            `json:"message_type"`
		Content     string            `json:"content"`
		Mentions    []injectedMention `json:"mentions,omitempty"`
	}
	injectedMention struct {
		Key           string     `json:"key"`
		ID            injectedID `json:"id"`
		MentionedType string     `json:"mentioned_type,omitempty"`
		Name          string     `json:"name"`
		TenantKey     string     `json:"tenant_key"`
	}
	injectedID struct {
		UnionID string       `json:"union_id,omitempty"`
		UserID  string       `json:"user_id,omitempty"`
		OpenID  relay.OpenID `json:"open_id"`
	}
)

// JSON returns the event as one line of compact JSON (docs/feishu.md 2.3). It is an
// error where the event lacks an id, or where the receiver is to be mentioned
// and its own open_id is unknown: frameworks would drop the event unseen.
func (in *Injected) JSON() ([]byte, error) {
	switch {
	case in.EventID == "" || in.AppID == "" || in.Message == "" || in.ChatID == "":
		return nil, errors.New("injected event: event, app, message and chat need an id")
	case in.MentionsSelf && in.Self.OpenID == "":
		return nil, errors.New("injected event: the bot's own open_id is not known yet")
	}
	text, mentions := in.addressed()
	at := cmp.Or(in.CreateTime, relay.MillisOf(time.Now()))
	e := injectedEvent{Schema: "2.0", Header: injectedHeader{
		EventID: in.EventID, EventType: MessageReceived, CreateTime: fmt.Sprint(at), Token: in.Token, AppID: in.AppID,
		TenantKey: in.TenantKey,
	}}
	e.Event.Sender = injectedSender{SenderID: injectedID{OpenID: in.sender()},
		SenderType: cmp.Or(in.SenderType, SenderBot), TenantKey: in.TenantKey}
	e.Event.Message = injectedMessage{
		MessageID: in.Message, CreateTime: fmt.Sprint(at), UpdateTime: fmt.Sprint(at), ChatID: in.ChatID,
		ChatType: cmp.Or(in.ChatType, ChatGroup), MessageType: "text", Content: textContent(text), Mentions: mentions,
	}
	if in.ThreadID != "" {
		e.Event.Message.ThreadID, e.Event.Message.RootID, e.Event.Message.ParentID = in.ThreadID, in.RootID, in.ParentID
	}
	return compact(e), nil
}

// sender is never the receiver: frameworks drop what seems their own.
func (in *Injected) sender() relay.OpenID {
	if in.Sender.OpenID != "" && in.Sender.OpenID != in.Self.OpenID {
		return in.Sender.OpenID
	}
	return StandIn(in.AppID, cmp.Or(in.Sender.Agent, relay.AgentName(in.Sender.AppID), relay.AgentName(in.Sender.Name)))
}

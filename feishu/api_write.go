package feishu

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"feishu-relay/relay"
)

// codeReactionBusy says that an equal reaction is being set (docs/feishu.md 6.2).
const codeReactionBusy = 231015

// Outgoing is a message to be sent.
type Outgoing struct {
	Chat     relay.ChatID
	ReplyTo  relay.MessageID // the message that is answered; "" for none
	InThread bool            // answer in its topic, and open one if there is none
	Type     string          // "text", "post", …
	Content  string          // JSON, as docs/feishu.md 5.1 has it
	// UUID, of at most 50 characters: within an hour calls with the same one send one message. It may be "".
	UUID string
}

// SendMessage sends a message and returns it as Feishu accepted it: POST im/v1/messages, or
// POST im/v1/messages/{id}/reply (docs/feishu.md 5).
func (a *API) SendMessage(ctx context.Context, m Outgoing) (Message, error) {
	body := struct {
		ReceiveID     string `json:"receive_id,omitempty"`
		MsgType       string `json:"msg_type"`
		Content       string `json:"content"`
		ReplyInThread *bool  `json:"reply_in_thread,omitempty"`
		UUID          string `json:"uuid,omitempty"`
	}{MsgType: m.Type, Content: m.Content, UUID: m.UUID}
	path, query := "im/v1/messages", url.Values{"receive_id_type": {"chat_id"}}
	if m.ReplyTo != "" {
		path, query = messagePath(m.ReplyTo)+"/reply", nil
		body.ReplyInThread = &m.InThread // also where it is false
	} else {
		body.ReceiveID = string(m.Chat)
	}
	answer, err := a.call(ctx, http.MethodPost, path, query, compact(body))
	if err != nil {
		return Message{}, err
	}
	sent, err := ParseSent(answer)
	if err == nil && sent.ID == "" {
		err = fmt.Errorf("%w: the answer names no message", ErrNotAccepted)
	}
	if err != nil {
		return Message{}, fmt.Errorf("POST %s: %w", path, err)
	}
	return sent, nil
}

// Reply sends a text as a reply to a message and returns its id, as [API.SendMessage]. at-tags in text are mentions.
func (a *API) Reply(ctx context.Context, to relay.MessageID, text, uuid string) (relay.MessageID, error) {
	return a.sendText(ctx, Outgoing{ReplyTo: to, UUID: uuid}, text)
}

// Send sends a text to a chat, else as [API.Reply].
func (a *API) Send(ctx context.Context, chat relay.ChatID, text, uuid string) (relay.MessageID, error) {
	return a.sendText(ctx, Outgoing{Chat: chat, UUID: uuid}, text)
}

// textContent is the content of a text message.
func textContent(text string) string { return string(compact(map[string]string{"text": text})) }

func (a *API) sendText(ctx context.Context, m Outgoing, text string) (relay.MessageID, error) {
	m.Type, m.Content = "text", textContent(text)
	sent, err := a.SendMessage(ctx, m)
	return sent.ID, err
}

// React puts a reaction, such as "OK", on a message: POST im/v1/messages/{id}/reactions
// (docs/feishu.md 5). One that is there, or is being set by another call, is a success.
func (a *API) React(ctx context.Context, message relay.MessageID, emoji string) error {
	body := compact(map[string]any{"reaction_type": map[string]string{"emoji_type": emoji}})
	_, err := a.call(ctx, http.MethodPost, messagePath(message)+"/reactions", nil, body)
	if CodeOf(err) == codeReactionBusy {
		return nil
	}
	return err
}

// Managers returns the people who own and manage a chat, by their open_ids:
// GET im/v1/chats/{id} (docs/feishu.md 4.2). owner is "" where a bot owns the chat. Where
// Feishu says that the bot is not in the chat, the error has a [*CodeError].
func (a *API) Managers(ctx context.Context, chat relay.ChatID) (owner relay.OpenID, managers []relay.OpenID,
	err error) {
	answer, err := get[struct {
		Owner    relay.OpenID   `json:"owner_id"`
		Managers []relay.OpenID `json:"user_manager_id_list"`
	}](ctx, a, chatPath(chat), url.Values{"user_id_type": {"open_id"}})
	return answer.Owner, answer.Managers, err
}

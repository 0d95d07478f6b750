package feishu

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"feishu-relay/relay"
)

// codeReactionBusy says that an equal reaction is being set (docs/feishu.md 6.2).
const codeReactionBusy = 231015

// sending is the body of a call that sends a text.
type sending struct {
	ReceiveID string `json:"receive_id,omitempty"`
	MsgType   string `json:"msg_type"`
	Content   string `json:"content"`
	UUID      string `json:"uuid,omitempty"`
}

// Reply sends a text as a reply to a message and returns its id:
// POST im/v1/messages/{id}/reply (docs/feishu.md 5). Within an hour a call with the same
// uuid, of at most 50 characters, sends nothing more. at-tags in text are mentions.
func (a *API) Reply(ctx context.Context, to relay.MessageID, text, uuid string) (relay.MessageID, error) {
	return a.sendText(ctx, "im/v1/messages/"+url.PathEscape(string(to))+"/reply", nil, sending{UUID: uuid}, text)
}

// Send sends a text to a chat, else as [API.Reply]: POST im/v1/messages.
func (a *API) Send(ctx context.Context, chat relay.ChatID, text, uuid string) (relay.MessageID, error) {
	return a.sendText(ctx, "im/v1/messages", url.Values{"receive_id_type": {"chat_id"}},
		sending{ReceiveID: string(chat), UUID: uuid}, text)
}

func (a *API) sendText(ctx context.Context, path string, query url.Values, s sending, text string) (relay.MessageID, error) {
	content, err := compact(map[string]string{"text": text})
	if err != nil {
		return "", fmt.Errorf("encode a text: %w", err)
	}
	s.MsgType, s.Content = "text", string(content)
	body, err := compact(s)
	if err != nil {
		return "", fmt.Errorf("encode a text: %w", err)
	}
	answer, err := a.call(ctx, http.MethodPost, path, query, body)
	if err != nil {
		return "", err
	}
	m, err := ParseSent(answer)
	if err == nil && m.ID == "" {
		err = fmt.Errorf("%w: the answer names no message", ErrNotAccepted)
	}
	if err != nil {
		return "", fmt.Errorf("POST %s: %w", path, err)
	}
	return m.ID, nil
}

// React puts a reaction, such as "OK", on a message: POST im/v1/messages/{id}/reactions
// (docs/feishu.md 5). One that is there, or is being set by another call, is a success.
func (a *API) React(ctx context.Context, message relay.MessageID, emoji string) error {
	body, err := compact(map[string]any{"reaction_type": map[string]string{"emoji_type": emoji}})
	if err != nil {
		return fmt.Errorf("encode a reaction: %w", err)
	}
	_, err = a.call(ctx, http.MethodPost, "im/v1/messages/"+url.PathEscape(string(message))+"/reactions", nil, body)
	if e, ok := errors.AsType[*CodeError](err); ok && e.Code == codeReactionBusy {
		return nil
	}
	return err
}

// Managers returns the people who own and manage a chat, by their open_ids:
// GET im/v1/chats/{id} (docs/feishu.md 4.2). owner is "" where a bot owns the chat. Where
// Feishu says that the bot is not in the chat, the error has a [*CodeError].
func (a *API) Managers(ctx context.Context, chat relay.ChatID) (owner relay.OpenID, managers []relay.OpenID, err error) {
	var out struct {
		Data struct {
			Owner    relay.OpenID   `json:"owner_id"`
			Managers []relay.OpenID `json:"user_manager_id_list"`
		} `json:"data"`
	}
	path := "im/v1/chats/" + url.PathEscape(string(chat))
	if err := a.get(ctx, path, url.Values{"user_id_type": {"open_id"}}, &out); err != nil {
		return "", nil, err
	}
	return out.Data.Owner, out.Data.Managers, nil
}

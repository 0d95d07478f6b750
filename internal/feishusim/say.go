package feishusim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Utterance is a message that a person sends.
type Utterance struct {
	User     string   `json:"user"`               // id or unique name
	Chat     string   `json:"chat"`               // id or name of a group; or
	App      string   `json:"app,omitempty"`      // the bot of a private chat
	Text     string   `json:"text"`               // "@Name" of a member is a mention, "@all" everybody
	Mentions []string `json:"mentions,omitempty"` // mentioned before the text, if it does not name them
	ReplyTo  string   `json:"reply_to,omitempty"` // the message to reply to
	InThread bool     `json:"in_thread,omitempty"`
	Thread   string   `json:"thread_id,omitempty"` // the topic to post to without a reply
	Type     string   `json:"msg_type,omitempty"`  // "": text; else Content is sent
	Content  string   `json:"content,omitempty"`
	File     string   `json:"file,omitempty"` // key of an uploaded picture or file, in place of Type and Content
	// Children are the messages of a merged forward, in place of Text, Type, Content and File. Only User, Text, Type and
	// Content of each count; User may be a bot.
	Children []Utterance `json:"children,omitempty"`
}

// merged is the content of a merged forward.
const merged = `{"content":"Merged and Forwarded Message"}`

// Say sends a person's text to a group, and returns the message's id.
func (s *Server) Say(chat, user, text string, mentions ...string) (string, error) {
	return s.Post(Utterance{Chat: chat, User: user, Text: text, Mentions: mentions})
}

// SayPrivate sends a person's text to a bot in their private chat.
func (s *Server) SayPrivate(app, user, text string) (string, error) {
	return s.Post(Utterance{App: app, User: user, Text: text})
}

// Post sends a person's message of any kind, and returns its id.
func (s *Server) Post(u Utterance) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", ErrClosed
	}
	d, err := s.utterance(u)
	if err != nil {
		return "", err
	}
	if d.chat.status != "" {
		return "", errGone
	}
	for _, child := range u.Children {
		id, err := s.child(d.chat, child)
		if err != nil {
			return "", err
		}
		d.children = append(d.children, id)
	}
	s.afterNewest(d.chat)
	m, err := s.create(d)
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

// child makes a message that is only part of a merged forward.
func (s *Server) child(c *chat, u Utterance) (string, error) {
	d := draft{chat: c, msgType: u.Type, content: u.Content, literal: true}
	if d.msgType == "" {
		d.msgType, d.content = "text", compact(map[string]string{"text": u.Text})
	}
	sender, err := s.entity(u.User)
	if err != nil {
		return "", err
	}
	d.sender = sender
	m := &message{Message: Message{ID: newID("om_x100b", 14), ChatID: c.ID, Sender: sender, SenderName: s.name(sender),
		SenderType: senderUser, Type: d.msgType, CreateTime: time.Now().UnixMilli()}}
	if s.apps[sender] != nil {
		m.SenderType = senderApp
	}
	s.messages[m.ID] = m
	return m.ID, s.fill(m, d)
}

func (s *Server) utterance(u Utterance) (draft, error) {
	d := draft{msgType: u.Type, content: u.Content, inThread: u.InThread, literal: true}
	var err error
	if d.sender, err = s.entity(u.User); err != nil {
		return d, err
	}
	if s.users[d.sender] == nil {
		return d, fmt.Errorf("%.60q is not a user: bots send through the API", u.User)
	}
	switch {
	case u.App != "":
		bot, err := s.entity(u.App)
		if err != nil {
			return d, err
		}
		if s.apps[bot] == nil {
			return d, fmt.Errorf("%.60q is not an app", u.App)
		}
		d.chat = s.p2p(d.sender, bot)
	case u.ReplyTo != "":
		if d.reply, err = s.messageOf(u.ReplyTo); err != nil {
			return d, err
		}
		d.chat = s.chats[d.reply.ChatID]
	case u.Thread != "":
		if d.thread = s.threads[u.Thread]; d.thread == nil {
			return d, fmt.Errorf("no thread %.60q", u.Thread)
		}
		d.chat = s.chats[d.thread.chat]
	default:
		if d.chat, err = s.chat(u.Chat); err != nil {
			return d, err
		}
	}
	if !d.chat.has(d.sender) {
		return d, fmt.Errorf("%s is not in that chat", s.name(d.sender))
	}
	for _, ref := range u.Mentions {
		entity, err := s.entity(ref)
		if err != nil {
			return d, err
		}
		d.mention = append(d.mention, entity)
	}
	if u.File != "" {
		f := s.file(u.File)
		switch {
		case f == nil:
			return d, fmt.Errorf("no file %.80q", u.File)
		case u.Type != "" || u.Text != "":
			return d, errors.New("a file is sent alone: without text and msg_type")
		case strings.HasPrefix(f.key, imagePrefix):
			d.msgType, d.content = "image", compact(map[string]string{"image_key": f.key})
		default:
			d.msgType, d.content = "file", compact(map[string]string{"file_key": f.key, "file_name": f.name})
		}
	}
	if u.Children != nil {
		d.msgType, d.content = "merge_forward", merged
	}
	if d.msgType == "" {
		d.msgType, d.content = "text", compact(map[string]string{"text": u.Text})
	}
	if len(d.content) > maxTextBytes {
		return d, errors.New("the content has more than 150 KB")
	}
	return d, nil
}

// Recall recalls a message on behalf of its sender.
func (s *Server) Recall(messageID string) error { return s.RecallBy(messageID, "") }

// RecallBy recalls a message on behalf of its sender (""), or of the owner or a
// manager of the group.
func (s *Server) RecallBy(messageID, by string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.messageOf(messageID)
	if err != nil {
		return err
	}
	entity := m.Sender
	if by != "" {
		if entity, err = s.entity(by); err != nil {
			return err
		}
	}
	if entity != m.Sender && !s.chats[m.ChatID].managedBy(entity) {
		return fmt.Errorf("%s may not recall that message", s.name(entity))
	}
	if !m.Deleted {
		s.recall(m, entity)
	}
	return nil
}

// Wait returns the first message that matches, once there is one. match is called
// for every message, oldest first, and again after each change, so that it can
// match the last text of a streamed card. It must not call the server.
func (s *Server) Wait(ctx context.Context, match func(Message) bool) (Message, error) {
	var found Message
	seen := uint64(0)
	err := s.until(ctx, func() bool {
		for _, m := range s.sent {
			if m.revision > seen && match(m.snapshot()) {
				found = m.snapshot()
				return true
			}
		}
		seen = s.revision
		return false
	})
	return found, err
}

// WaitDelivery is [Server.Wait] for deliveries; match is called again after the
// answer.
func (s *Server) WaitDelivery(ctx context.Context, match func(Delivery) bool) (Delivery, error) {
	var found Delivery
	err := s.until(ctx, func() bool {
		for _, d := range s.deliveries {
			if match(*d) {
				found = *d
				return true
			}
		}
		return false
	})
	return found, err
}

// until blocks until is() is true; it is called with the lock, after every change.
func (s *Server) until(ctx context.Context, is func() bool) error {
	for {
		s.mu.Lock()
		if is() {
			s.mu.Unlock()
			return nil
		}
		changed, closed := s.changed, s.closed
		s.mu.Unlock()
		if closed {
			return ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

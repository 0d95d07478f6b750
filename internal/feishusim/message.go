package feishusim

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Sender types of the REST API; events have "bot" instead of "app".
const (
	senderUser = "user"
	senderApp  = "app"
)

// Message is a message of a chat, as a person sees it now.
type Message struct {
	ID         string     `json:"message_id"`
	ChatID     string     `json:"chat_id"`
	RootID     string     `json:"root_id,omitempty"`
	ParentID   string     `json:"parent_id,omitempty"`
	ThreadID   string     `json:"thread_id,omitempty"`
	Sender     string     `json:"sender"` // id of the app or the user
	SenderName string     `json:"sender_name"`
	SenderType string     `json:"sender_type"` // app or user
	Type       string     `json:"msg_type"`
	Content    string     `json:"content"`            // as sent, or last edited
	Text       string     `json:"text"`               // also of cards, with streamed text
	Mentions   []string   `json:"mentions,omitempty"` // ids of the apps and users mentioned at creation
	CreateTime int64      `json:"create_time"`        // ms
	UpdateTime int64      `json:"update_time"`        // ms
	CardID     string     `json:"card_id,omitempty"`
	Streaming  bool       `json:"streaming,omitempty"` // its card's streaming mode is on
	Edits      int        `json:"edits,omitempty"`
	Deleted    bool       `json:"deleted,omitempty"`
	Reactions  []Reaction `json:"reactions,omitempty"`
}

// Reaction is an emoji reaction to a message.
type Reaction struct {
	ID    string `json:"reaction_id"`
	By    string `json:"by"` // id of the app or the user
	Emoji string `json:"emoji_type"`
	Time  int64  `json:"time"` // ms
}

type message struct {
	Message
	seq      uint64 // place among all messages
	revision uint64 // of the last change
	received string // content as received, except for cards
	mentions []mention
	card     *card    // of an interactive message
	children []string // of a merged forward
	upper    string   // the merged forward that this is a part of
	patches  []time.Time
}

// mention is an entry of a message's mentions.
type mention struct{ key, entity string }

func (m *message) mentioned(entity string) bool {
	return slices.ContainsFunc(m.mentions, func(n mention) bool { return n.entity == entity })
}

// draft is a message to be created.
type draft struct {
	chat     *chat
	sender   string
	msgType  string
	content  string
	mention  []string // entities to mention, in users' texts
	reply    *message
	inThread bool    // the reply opens a topic
	thread   *thread // the topic to post to without a reply
	card     *card
	children []string
	literal  bool // typed by a person: tags are plain text, "@Name" is a mention
}

// create makes the message of d, announces it to watchers, and delivers it to
// the bots. The caller holds s.mu and has checked d.
func (s *Server) create(d draft) (*message, error) {
	at := max(time.Now().UnixMilli(), d.chat.newest+1)
	m := &message{seq: s.revision + 1}
	m.Message = Message{
		ID: newID("om_x100b", 14), ChatID: d.chat.ID, Sender: d.sender, SenderName: s.name(d.sender),
		SenderType: senderUser, Type: d.msgType, CreateTime: at, UpdateTime: at,
	}
	if s.apps[d.sender] != nil {
		m.SenderType = senderApp
	}
	if err := s.fill(m, d); err != nil {
		return nil, err
	}
	d.chat.newest = at
	m.children = d.children
	s.placeInThread(m, d)
	if m.card != nil && m.card.id != "" {
		m.card.message = m
		m.CardID = m.card.id
	}
	for _, n := range m.mentions {
		m.Mentions = append(m.Mentions, n.entity)
	}
	s.messages[m.ID] = m
	s.sent = append(s.sent, m)
	if len(s.sent) > maxMessages {
		old := s.sent[0]
		delete(s.messages, old.ID)
		if t := s.threads[old.ThreadID]; t != nil && t.root == old.ID {
			delete(s.threads, t.id)
		}
		s.sent = slices.Delete(s.sent, 0, 1)
	}
	s.touch(m, "message")
	s.deliverMessage(d.chat, m)
	return m, nil
}

// afterNewest waits until a millisecond has passed since the newest message of a chat: no two messages have the same
// time, so that their order is known by it. The caller holds s.mu, which it releases meanwhile.
func (s *Server) afterNewest(c *chat) {
	for now := time.Now(); now.UnixMilli() <= c.newest; now = time.Now() {
		s.mu.Unlock()
		time.Sleep(now.Truncate(time.Millisecond).Add(time.Millisecond).Sub(now))
		s.mu.Lock()
	}
}

// fill sets everything that depends on the content.
func (s *Server) fill(m *message, d draft) error {
	c := converter{s: s, sender: d.sender, chat: d.chat, literal: d.literal}
	for _, entity := range d.mention {
		c.lead(entity)
	}
	m.Content = d.content
	switch {
	case d.msgType == "interactive":
		if m.card = d.card; m.card == nil {
			var err error
			if m.card, err = inline(d.content); err != nil {
				return err
			}
		}
		m.card.initial = c.card(m.card.tree)
		m.Text = m.card.text(&c)
	default:
		var err error
		if m.received, m.Text, err = c.convert(d.msgType, d.content); err != nil {
			return err
		}
	}
	m.mentions = c.mentions
	return nil
}

// placeInThread sets the message that m answers, and its topic.
func (s *Server) placeInThread(m *message, d draft) {
	if d.thread != nil {
		m.ThreadID, m.RootID, m.ParentID = d.thread.id, d.thread.root, d.thread.root
		return
	}
	if d.reply == nil {
		if d.chat.mode == modeTopic {
			s.openThread(m)
		}
		return
	}
	m.ParentID, m.RootID = d.reply.ID, d.reply.ID
	if d.reply.RootID != "" {
		m.RootID = d.reply.RootID
	}
	if d.reply.ThreadID == "" && d.inThread {
		root := d.reply
		if r := s.messages[m.RootID]; r != nil {
			root = r
		}
		s.openThread(root)
		m.ThreadID = root.ThreadID
		return
	}
	m.ThreadID = d.reply.ThreadID
}

func (s *Server) openThread(root *message) {
	if root.ThreadID == "" {
		root.ThreadID = newID("omt_", 8)
		s.threads[root.ThreadID] = &thread{root.ThreadID, root.ChatID, root.ID}
	}
}

// touch records that m is new or has changed. The caller holds s.mu.
func (s *Server) touch(m *message, kind string) {
	s.revision++
	m.revision = s.revision
	if m.card != nil {
		m.Text = m.card.text(&converter{s: s, sender: m.Sender, chat: s.chats[m.ChatID]})
		m.Streaming = m.card.streams()
	}
	shown := m.snapshot()
	s.announce(Activity{Kind: kind, Message: &shown})
	s.bump()
}

// snapshot returns the current state of m.
func (m *message) snapshot() Message {
	shown := m.Message
	shown.Mentions, shown.Reactions = slices.Clone(m.Mentions), slices.Clone(m.Reactions)
	return shown
}

// recall recalls a message. The caller holds s.mu.
func (s *Server) recall(m *message, by string) {
	m.Deleted = true
	m.UpdateTime = time.Now().UnixMilli()
	s.touch(m, "recall")
	c := s.chats[m.ChatID]
	kind := "message_owner"
	switch {
	case by == m.Sender:
	case by == c.Owner:
		kind = "group_owner"
	default:
		kind = "group_manager"
	}
	for _, id := range c.Members {
		if a := s.apps[id]; a != nil && id != by {
			s.emit(a, eventRecalled, m.ID, map[string]any{
				"message_id": m.ID, "chat_id": m.ChatID,
				"recall_time": strconv.FormatInt(m.UpdateTime, 10), "recall_type": kind,
			})
		}
	}
}

// Messages returns all messages of a chat (id or name), oldest first; of all
// chats for "". An unknown chat has none.
func (s *Server) Messages(chat string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, err := s.chat(chat); err == nil {
		chat = c.ID
	}
	var all []Message
	for _, m := range s.sent {
		if chat == "" || m.ChatID == chat {
			all = append(all, m.snapshot())
		}
	}
	return all
}

// Message finds a message by its id.
func (s *Server) Message(id string) (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[id]
	if m == nil {
		return Message{}, false
	}
	return m.snapshot(), true
}

func (s *Server) messageOf(id string) (*message, error) {
	if m := s.messages[id]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("no message %.80q", id)
}

package feishusim

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// given is a reaction as the API takes it.
type given struct {
	Type struct {
		Emoji string `json:"emoji_type"`
	} `json:"reaction_type"`
}

func addReaction(c *call, m *message, in *given) (any, error) {
	r, err := c.s.react(m, c.app.ID, in.Type.Emoji)
	if err != nil {
		return nil, err
	}
	return c.s.restReaction(c.app, r, c.query("user_id_type")), nil
}

func deleteReaction(c *call, m *message, _ *struct{}) (any, error) {
	at := slices.IndexFunc(m.Reactions, func(r Reaction) bool { return r.ID == c.r.PathValue("reaction") && r.By == c.app.ID })
	if at < 0 {
		return nil, errNoReaction
	}
	return c.s.restReaction(c.app, c.s.unreact(m, at), ""), nil
}

// React adds a person's reaction to a message, for example "THUMBSUP". A repeat
// of the same emoji changes nothing.
func (s *Server) React(messageID, user, emoji string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, by, err := s.reader(messageID, user)
	if err == nil {
		_, err = s.react(m, by, emoji)
	}
	return err
}

// reader finds a message that is not recalled, and a member of its chat.
func (s *Server) reader(messageID, user string) (m *message, by string, err error) {
	if m, err = s.messageOf(messageID); err != nil {
		return nil, "", err
	}
	if by, err = s.entity(user); err != nil {
		return nil, "", err
	}
	switch {
	case s.users[by] == nil:
		return nil, "", fmt.Errorf("%.60q is not a user: bots react through the API", user)
	case !s.chats[m.ChatID].has(by):
		return nil, "", fmt.Errorf("%s is not in that chat", s.name(by))
	case m.Deleted:
		return nil, "", errRecalled
	}
	return m, by, nil
}

// react adds a reaction and reports it to the chat's apps. The caller holds s.mu.
func (s *Server) react(m *message, by, emoji string) (Reaction, error) {
	for _, r := range m.Reactions {
		if r.By == by && r.Emoji == emoji {
			return r, nil
		}
	}
	if emoji == "" {
		return Reaction{}, errReaction
	}
	r := Reaction{newID("ZCaCIjUBVVWSrm5L-3ZTw", 16), by, emoji, time.Now().UnixMilli()}
	m.Reactions = append(m.Reactions, r)
	s.touch(m, "reaction")
	s.reactionEvent(eventReacted, m, r, r.Time)
	return r, nil
}

// unreact removes the reaction at index at. The caller holds s.mu.
func (s *Server) unreact(m *message, at int) Reaction {
	gone := m.Reactions[at]
	m.Reactions = slices.Delete(m.Reactions, at, at+1)
	s.touch(m, "reaction")
	s.reactionEvent(eventUnreacted, m, gone, time.Now().UnixMilli())
	return gone
}

// reactionEvent sends an event to all apps of the chat, also to the one that
// reacted: frameworks drop their own (docs/feishu.md 3.6).
func (s *Server) reactionEvent(eventType string, m *message, r Reaction, when int64) {
	for _, id := range s.chats[m.ChatID].Members {
		a := s.apps[id]
		if a == nil || !a.may(reactionsRead...) {
			continue
		}
		event := map[string]any{
			"message_id": m.ID, "reaction_type": map[string]any{"emoji_type": r.Emoji},
			"operator_type": senderUser, "action_time": strconv.FormatInt(when, 10),
		}
		if s.apps[r.By] != nil {
			event["operator_type"], event["app_id"] = senderApp, r.By
		} else {
			event["user_id"] = s.ids(a, r.By)
		}
		s.emit(a, eventType, m.ID, event)
	}
}

// restReaction returns r as the REST API shows it to a.
func (s *Server) restReaction(a *app, r Reaction, idType string) map[string]any {
	operator := map[string]any{"operator_id": r.By, "operator_type": senderApp}
	if s.apps[r.By] == nil {
		operator["operator_id"], _ = s.userID(a, r.By, idType)
		operator["operator_type"] = senderUser
	}
	return map[string]any{
		"reaction_id": r.ID, "operator": operator,
		"action_time": strconv.FormatInt(r.Time, 10), "reaction_type": map[string]any{"emoji_type": r.Emoji},
	}
}

package feishusim

import (
	"slices"
	"strconv"
	"time"
)

func addReaction(c *call) (any, error) {
	var in struct {
		Type struct {
			Emoji string `json:"emoji_type"`
		} `json:"reaction_type"`
	}
	if err := c.read(&in); err != nil {
		return nil, err
	}
	m, err := c.message(errMessageID)
	if err != nil {
		return nil, err
	}
	if in.Type.Emoji == "" || len(m.Reactions) >= maxMembers {
		return nil, failure(231001, "reaction type is invalid")
	}
	r := Reaction{newID("ZCaCIjUBVVWSrm5L-3ZTw", 16), c.app.ID, in.Type.Emoji, time.Now().UnixMilli()}
	m.Reactions = append(m.Reactions, r)
	c.s.touch(m, "reaction")
	return r.rest(), nil
}

func deleteReaction(c *call) (any, error) {
	m, err := c.message(errMessageID)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(m.Reactions, func(r Reaction) bool { return r.ID == c.r.PathValue("reaction") && r.By == c.app.ID })
	if at < 0 {
		return nil, errNoReaction
	}
	gone := m.Reactions[at]
	m.Reactions = slices.Delete(m.Reactions, at, at+1)
	c.s.touch(m, "reaction")
	return gone.rest(), nil
}

func listReactions(c *call) (any, error) {
	m, err := c.message(errMessageID)
	if err != nil {
		return nil, err
	}
	items := []any{}
	for _, r := range m.Reactions {
		items = append(items, r.rest())
	}
	return map[string]any{"items": items, "has_more": false, "page_token": ""}, nil
}

func (r Reaction) rest() map[string]any {
	return map[string]any{
		"reaction_id": r.ID, "operator": map[string]any{"operator_id": r.By, "operator_type": "app"},
		"action_time": strconv.FormatInt(r.Time, 10), "reaction_type": map[string]any{"emoji_type": r.Emoji},
	}
}

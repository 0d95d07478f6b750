package sidecar

import (
	"cmp"
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

const (
	maxPersons = 10_000           // whose names are remembered
	personWait = time.Second      // for Feishu to tell a name; without one the open_id stands in the transcript
	personNext = 10 * time.Minute // before the next question about somebody that Feishu did not name
)

// persons knows what people are called: events have their ids only, and those
// are different for each bot's app.
type persons struct {
	names *lru.Cache[relay.OpenID, string]
	asked asked
}

// person is the name of who sent m, "" where nobody tells. Names are learned from mentions
// and asked for with the bot's own token.
func (s *Sidecar) person(ctx context.Context, m *feishu.Message) string {
	for _, mention := range m.Mentions {
		if mention.Type == feishu.SenderUser && mention.OpenID != "" && mention.Name != "" {
			s.persons.names.Add(mention.OpenID, mention.Name)
		}
	}
	id := m.Sender.OpenID
	if name, ok := s.persons.names.Get(id); ok || m.Sender.Name != "" || id == "" {
		return cmp.Or(m.Sender.Name, name)
	}
	if m.ChatType != feishu.ChatGroup || !s.api.Ready() || !s.persons.asked.due(string(id), personNext) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, personWait)
	defer cancel()
	name, err := s.api.User(ctx, id)
	if err != nil || name == "" {
		return "" // no scope for it, most often
	}
	s.persons.names.Add(id, name)
	return name
}

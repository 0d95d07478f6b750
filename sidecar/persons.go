package sidecar

import (
	"context"
	"time"

	"feishu-relay/feishu"
)

const (
	personWait = time.Second      // for Feishu to tell a name; without one the open_id stands in the transcript
	personNext = 10 * time.Minute // before the next question about somebody that Feishu did not name
	personDay  = 24 * time.Hour   // before the next question about somebody whose name is known: people rename themselves
)

// person returns the name of who sent m, "" where it is unknown: events have ids only. The
// book has names from mentions; Feishu is asked with the bot's own token.
func (s *Sidecar) person(ctx context.Context, m *feishu.Message) string {
	s.book.LearnMentions(m.Mentions)
	id := m.Sender.OpenID
	known, _ := s.book.Name(string(id))
	if m.Sender.Name != "" || id == "" {
		return m.Sender.Name
	}
	pause := personNext
	if known.Name != "" {
		pause = personDay
	}
	if m.ChatType != feishu.ChatGroup || !s.api.Ready() || !s.personsAsked.due(string(id), pause) {
		return known.Name
	}
	ctx, cancel := context.WithTimeout(ctx, personWait)
	defer cancel()
	name, err := s.api.User(ctx, id)
	if err != nil || name == "" {
		return known.Name // no scope for it, most often
	}
	s.book.LearnName(string(id), feishu.Who{Name: name})
	return name
}

package send

import (
	"slices"
	"strings"

	"feishu-relay/feishu"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

// names are those that can be mentioned in a text: one mention.Agent for each open_id.
type names []mention.Agent

func (n *names) add(id relay.OpenID, all ...string) {
	if id != "" {
		*n = append(*n, mention.Agent{ID: string(id), Names: all})
	}
}

// names returns the names of the mentions and of the bots in the Book, where the mentions have none like it. What
// several are called, or the bot itself, stays plain text.
func (s *Sender) names(mentions []relay.Mention) names {
	self := s.book.Self().OpenID
	var all names
	for _, m := range mentions {
		id := m.OpenID
		if id == "" && m.AgentName != "" {
			bot, _ := s.book.Agent(m.AgentName, "", m.Name)
			id = bot.OpenID
		}
		if id != self {
			all.add(id, m.Name, string(m.AgentName), m.Key)
		}
	}
	given := mention.NewDirectory(all)
	for _, b := range s.book.Bots() {
		if b.OpenID != self {
			all.add(b.OpenID, slices.DeleteFunc([]string{b.Name, string(b.Agent)}, func(name string) bool {
				who, rest := given.Prefix(name)
				return who != "" && rest == ""
			})...)
		}
	}
	return all
}

// tagger returns what turns the "@Name"s of a text into at-tags (docs/feishu.md 5.1).
func (n names) tagger() func(text string) string {
	all := mention.NewDirectory(n)
	return func(text string) string {
		var out strings.Builder
		end := 0
		for _, hit := range all.Plain(text) {
			if hit.Name != hit.Agent { // an open_id is no name
				out.WriteString(text[end:hit.From])
				out.WriteString(feishu.Named{OpenID: relay.OpenID(hit.Agent), Name: hit.Name}.Tag())
				end = hit.To
			}
		}
		return out.String() + text[end:]
	}
}

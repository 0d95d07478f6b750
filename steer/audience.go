package steer

import (
	"iter"
	"slices"

	"feishu-relay/relay"
)

// Bot is an agent whose bot is in a group.
type Bot struct {
	Agent      relay.AgentName `json:"agent"`
	Name       string          `json:"name"` // its display name
	Online     bool            `json:"online"`
	MentionAll bool            `json:"-"` // @all addresses it
	CanWrite   bool            `json:"-"` // its sidecar can write to Feishu
}

// Line is a message of a group as the transcript has it, and whom it names.
type Line struct {
	ID       string
	ParentID string
	ThreadID string
	Bot      relay.AgentName // "": a person's
	Person   string          // of a person's: who
	Named    func() Names    // nil: nobody. Called only where it is needed
}

// Names are who a message names.
type Names struct {
	Bots   []relay.AgentName // bots with or without a sidecar here
	All    bool              // everybody
	Others bool              // people, or somebody who is not known
}

func (n Names) any() bool { return len(n.Bots) > 0 || n.All || n.Others }

// Audience is who a message is for: everybody, or the Bots; with OneOf, exactly one of these,
// the first that is there and was given the message.
type Audience struct {
	Everybody bool
	Bots      []relay.AgentName
	OneOf     []relay.AgentName
}

// AudienceOf is who m is for, by a group's settings, its bots in order of agent id, and the
// lines before m, the newest first. Sidecars that know the same come to the same answer.
//
// In order: the bots that m names; the bot that it replies to; in a topic, whom the newest
// line that names or is from a bot was for; the default bot; else what the mode says.
func AudienceOf(m Line, s Settings, bots []Bot, before iter.Seq[Line]) Audience {
	if s.Answer == All || s.Answer == "" {
		return Audience{Everybody: true}
	}
	a, decided := addressed(m, bots, before)
	if !decided && m.Bot == "" {
		a = a.byMode(m, s, bots, before)
	}
	a.Bots = without(a.Bots, m.Bot)
	return a
}

// addressed goes through the rules that hold for people and bots alike.
func addressed(m Line, bots []Bot, before iter.Seq[Line]) (a Audience, decided bool) {
	if m.Named != nil {
		if n := m.Named(); n.any() {
			return Audience{Bots: n.among(bots)}, true
		}
	}
	if m.ParentID != "" {
		for l := range before {
			if l.ID != m.ParentID {
				continue
			}
			if l.Bot != "" {
				return Audience{Bots: here([]relay.AgentName{l.Bot}, bots)}, true
			}
			break
		}
	}
	if m.ThreadID == "" {
		return a, false
	}
	for l := range before {
		if l.ThreadID != m.ThreadID {
			continue
		}
		if l.Named != nil {
			if n := l.Named(); len(n.Bots) > 0 || n.All {
				return Audience{Bots: n.among(bots)}, true
			}
		}
		if l.Bot != "" {
			return Audience{Bots: here([]relay.AgentName{l.Bot}, bots)}, true
		}
	}
	return a, false
}

func (a Audience) byMode(m Line, s Settings, bots []Bot, before iter.Seq[Line]) Audience {
	if s.Answer == Named {
		return a
	}
	if def := here([]relay.AgentName{s.DefaultBot}, bots); len(def) > 0 {
		return Audience{Bots: def}
	}
	if s.Answer != One {
		return a
	}
	if last := spokeTo(m.Person, m.ThreadID, before); last != "" {
		a.OneOf = here([]relay.AgentName{last}, bots)
	}
	for _, b := range bots {
		if !slices.Contains(a.OneOf, b.Agent) {
			a.OneOf = append(a.OneOf, b.Agent)
		}
	}
	return a
}

// spokeTo is the bot that spoke to a person last: in reply to their message, or as the first
// after it.
func spokeTo(person, thread string, before iter.Seq[Line]) relay.AgentName {
	type waiting struct {
		bot    relay.AgentName
		parent string
	}
	var replies []waiting // newest first: those whose parent has not come yet
	first := relay.AgentName("")
	for l := range before {
		if l.ThreadID != thread {
			continue
		}
		if l.Bot != "" {
			first = l.Bot
			if l.ParentID != "" {
				replies = append(replies, waiting{l.Bot, l.ParentID})
			}
			continue
		}
		if l.Person != person {
			first = ""
			continue
		}
		for _, r := range replies {
			if r.parent == l.ID {
				return r.bot
			}
		}
		if first != "" {
			return first
		}
	}
	return ""
}

// among are the bots in a group that a message names.
func (n Names) among(bots []Bot) []relay.AgentName {
	out := here(n.Bots, bots)
	if !n.All {
		return out
	}
	for _, b := range bots {
		if b.MentionAll && !slices.Contains(out, b.Agent) {
			out = append(out, b.Agent)
		}
	}
	return out
}

// here are those of agents that are in the group.
func here(agents []relay.AgentName, bots []Bot) (out []relay.AgentName) {
	for _, agent := range agents {
		if slices.ContainsFunc(bots, func(b Bot) bool { return b.Agent == agent }) && !slices.Contains(out, agent) {
			out = append(out, agent)
		}
	}
	return out
}

func without(agents []relay.AgentName, agent relay.AgentName) []relay.AgentName {
	return slices.DeleteFunc(agents, func(a relay.AgentName) bool { return agent != "" && a == agent })
}

package steer

import (
	"cmp"
	"iter"
	"slices"

	"feishu-relay/relay"
)

// Bot is an agent whose bot is in a group.
type Bot struct {
	Agent  relay.AgentName `json:"agent"`
	Name   string          `json:"name"`   // its display name
	Online bool            `json:"online"` // its sidecar is
	// Away is since when the bot is not connected, though its sidecar is online; 0: it is connected, or that is not known.
	Away       relay.Millis `json:"away_since,omitempty"`
	MentionAll bool         `json:"-"` // @all addresses it
	CanWrite   bool         `json:"-"` // its sidecar can write to Feishu
}

// Line is a message of a group as the transcript has it, and whom it names.
type Line struct {
	ID       string
	ParentID string
	ThreadID string
	RootID   string          // of one in a topic: the message that it hangs on, often outside of the topic
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
// the first that is online and was given the message. None of these: nobody.
type Audience struct {
	Everybody bool              // but its sender
	Bots      []relay.AgentName // in order
	OneOf     []relay.AgentName // each once
}

// AudienceOf is who m is for, by a group's settings, its bots, and the lines before m, the
// newest first: all that are given may be read. Sidecars that know the same come to the
// same answer.
//
// In order: the bots that m names, and nobody where it only names others; the bot that it
// replies to; in a topic, the bots that the newest line names which names some or is from
// one, else its sender; for a person's message, the default bot, else what the mode says. A person's @all goes by the
// mode where no bot takes it.
func AudienceOf(m Line, s Settings, bots []Bot, before iter.Seq[Line]) Audience {
	if s.Answer == All || s.Answer == "" {
		return Audience{Everybody: true}
	}
	a, decided := addressed(m, bots, before)
	if !decided && m.Bot == "" {
		a = a.byMode(m, s, bots, before)
	}
	a.Bots = slices.DeleteFunc(a.Bots, func(agent relay.AgentName) bool { return m.Bot != "" && agent == m.Bot })
	slices.Sort(a.Bots)
	return a
}

// addressed goes through the rules that hold for people and bots alike.
func addressed(m Line, bots []Bot, before iter.Seq[Line]) (a Audience, decided bool) {
	if m.Named != nil {
		if n := m.Named(); n.any() {
			named := n.among(bots)
			if m.Bot != "" || !n.All || len(named)+len(n.Bots) > 0 || n.Others {
				return Audience{Bots: named}, true
			}
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
	root := m.RootID
	for l := range before {
		if l.ThreadID == m.ThreadID {
			root = cmp.Or(root, l.RootID)
		} else if root == "" || l.ID != root {
			continue
		}
		if l.Named != nil {
			if n := l.Named(); len(n.Bots) > 0 || len(n.among(bots)) > 0 {
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
	if last := spokeTo(m.Person, before); last != "" {
		a.OneOf = here([]relay.AgentName{last}, bots)
	}
	for _, agent := range agents(bots) {
		if !slices.Contains(a.OneOf, agent) {
			a.OneOf = append(a.OneOf, agent)
		}
	}
	return a
}

// spokeTo is the bot that spoke to a person last: it replied to their message, or was the
// first to speak after it where it was said, and to nobody else.
func spokeTo(person string, before iter.Seq[Line]) (last relay.AgentName) {
	if person == "" {
		return "" // who they are is not known
	}
	theirs := map[string]bool{}  // messages
	waiting := map[string]bool{} // by topic: the newest person's message there is theirs, and no bot spoke since
	for _, l := range slices.Backward(firstOf(before, spokeLines)) {
		first := waiting[l.ThreadID] && l.ParentID == ""
		switch {
		case l.Bot == "":
			theirs[l.ID] = l.Person == person
			waiting[l.ThreadID] = l.Person == person
		case first || theirs[l.ParentID]:
			last = l.Bot
			waiting[l.ThreadID] = false
		}
	}
	return last
}

// spokeLines is how many lines before a message tell which bot spoke to its sender last.
const spokeLines = 512

// firstOf are the first n of some lines.
func firstOf(lines iter.Seq[Line], n int) (first []Line) {
	for l := range lines {
		if first = append(first, l); len(first) == n {
			break
		}
	}
	return first
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

// agents lists the bots in order.
func agents(bots []Bot) []relay.AgentName {
	out := make([]relay.AgentName, len(bots))
	for i, b := range bots {
		out[i] = b.Agent
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package group

import (
	"cmp"
	"iter"
	"slices"

	"feishu-relay/relay"
)

// audience is who a message is for: everybody, or the bots; with oneOf, exactly one of these, the first that is online
// and was given the message. None of these: nobody.
type audience struct {
	everybody bool              // but its sender
	bots      []relay.AgentName // in order
	oneOf     []relay.AgentName // each once
}

// audienceOf is who a message is for, by the lines before it, the newest first. Sidecars that know the same come to
// the same answer.
//
// In order: the bots that l names, and nobody where it only names others; the bot that it replies to; in a topic, the
// bots that the newest line names which names some or is from one, else its sender; for a person's message, the
// default bot, else what the mode says. A person's @all goes by the mode where no bot takes it.
func audienceOf(l *Line, set *Settings, bots []Member, before iter.Seq[*Line]) audience {
	if set.Answer == ModeAll || set.Answer == "" {
		return audience{everybody: true}
	}
	a, decided := addressed(l, bots, before)
	if !decided && l.Bot == "" {
		a = byMode(l, set, bots, before)
	}
	a.bots = slices.DeleteFunc(a.bots, func(agent relay.AgentName) bool { return l.Bot != "" && agent == l.Bot })
	slices.Sort(a.bots)
	return a
}

// addressed goes through the rules that hold for people and bots alike.
func addressed(l *Line, bots []Member, before iter.Seq[*Line]) (a audience, decided bool) {
	if n := l.Named; n.any() {
		named := n.among(bots)
		if l.Bot != "" || !n.All || len(named)+len(n.Bots) > 0 || n.Others {
			return audience{bots: named}, true
		}
	}
	if l.Parent != "" {
		for o := range before {
			if o.ID != l.Parent {
				continue
			}
			if o.Bot != "" {
				return audience{bots: here([]relay.AgentName{o.Bot}, bots)}, true
			}
			break
		}
	}
	if l.Thread == "" {
		return a, false
	}
	root := l.Root
	for o := range before {
		if o.Thread == l.Thread {
			root = cmp.Or(root, o.Root)
		} else if root == "" || o.ID != root {
			continue
		}
		if named := o.Named.among(bots); len(o.Named.Bots) > 0 || len(named) > 0 {
			return audience{bots: named}, true
		}
		if o.Bot != "" {
			return audience{bots: here([]relay.AgentName{o.Bot}, bots)}, true
		}
	}
	return a, false
}

func byMode(l *Line, set *Settings, bots []Member, before iter.Seq[*Line]) (a audience) {
	if set.Answer == ModeNamed {
		return a
	}
	if def := here([]relay.AgentName{set.DefaultBot}, bots); len(def) > 0 {
		return audience{bots: def}
	}
	if set.Answer != ModeOne {
		return a
	}
	a.oneOf = here([]relay.AgentName{spokeTo(l.Person, before)}, bots)
	for _, b := range bots {
		if !slices.Contains(a.oneOf, b.Agent) {
			a.oneOf = append(a.oneOf, b.Agent)
		}
	}
	return a
}

// spokeLines is how many lines before a message tell which bot spoke to its sender last.
const spokeLines = 512

// spokeTo is the bot that spoke to a person last: it replied to their message, or was the first to speak after it
// where it was said, and to nobody else.
func spokeTo(person string, before iter.Seq[*Line]) (last relay.AgentName) {
	if person == "" {
		return "" // who they are is not known
	}
	var lines []*Line
	for o := range before {
		if lines = append(lines, o); len(lines) == spokeLines {
			break
		}
	}
	theirs := map[relay.MessageID]bool{} // messages
	waiting := map[string]bool{}         // by topic: the newest person's message is theirs, and no bot spoke since
	for _, o := range slices.Backward(lines) {
		switch {
		case o.Bot == "":
			theirs[o.ID] = o.Person == person
			waiting[o.Thread] = o.Person == person
		case waiting[o.Thread] && o.Parent == "" || theirs[o.Parent]:
			last = o.Bot
			waiting[o.Thread] = false
		}
	}
	return last
}

// among are the bots in the group that a message names.
func (n Names) among(bots []Member) []relay.AgentName {
	out := here(n.Bots, bots)
	for _, b := range bots {
		if n.All && b.MentionAll && !slices.Contains(out, b.Agent) {
			out = append(out, b.Agent)
		}
	}
	return out
}

// here are those of agents that are in the group.
func here(agents []relay.AgentName, bots []Member) (out []relay.AgentName) {
	for _, agent := range agents {
		if slices.ContainsFunc(bots, func(b Member) bool { return b.Agent == agent }) && !slices.Contains(out, agent) {
			out = append(out, agent)
		}
	}
	return out
}

// audience is who a message of this chat is for.
func (s *State) audience(l *Line, set *Settings) audience {
	return audienceOf(l, set, s.members(), func(yield func(*Line) bool) {
		for i := s.after(l.TS) - 1; i >= 0; i-- {
			if o := s.d.Lines[i]; o.ID != l.ID && !yield(o) {
				return
			}
		}
	})
}

// isFor reports whether it is for this bot.
func (s *State) isFor(a audience) bool { return a.everybody || slices.Contains(a.bots, s.cfg.Agent) }

package group

import (
	"cmp"
	"slices"

	"feishu-relay/relay"
)

// audience is who a message is for: everybody, or the bots; with oneOf, exactly one of these, the first that is online
// and was given the message. None of these: nobody.
type audience struct {
	everybody bool // but its sender
	bots      []relay.AgentName
	oneOf     []relay.AgentName // each once
}

// audience is who a message is for, by the lines before it, the newest first. Sidecars that know the same come to the
// same answer.
//
// In order: the bots that l names, and nobody where it only names others; the bot that it replies to; in a topic, the
// bots that the newest line names which names some or is from one, else its sender; for a person's message, the
// default bot, else what the mode says. A person's @all goes by the mode where no bot takes it.
func (s *State) audience(l *Line, set *Settings) audience {
	if set.Answer == ModeAll || set.Answer == "" {
		return audience{everybody: true}
	}
	bots, decided := s.addressed(l)
	if !decided && l.Bot == "" {
		return s.byMode(l, set)
	}
	bots = slices.DeleteFunc(bots, func(agent relay.AgentName) bool { return l.Bot != "" && agent == l.Bot })
	return audience{bots: bots}
}

// addressed goes through the rules that hold for people and bots alike.
func (s *State) addressed(l *Line) (bots []relay.AgentName, decided bool) {
	members := s.members()
	if n := l.Named; n.any() {
		named := n.among(members)
		if l.Bot != "" || !n.All || len(named)+len(n.Bots) > 0 || n.Others {
			return named, true
		}
	}
	if o := s.byID[l.Parent]; o != nil && o.Bot != "" && o.TS <= l.TS {
		return here([]relay.AgentName{o.Bot}, members), true
	}
	if l.Thread == "" {
		return nil, false
	}
	root := l.Root
	for _, o := range slices.Backward(s.d.Lines[:s.after(l.TS)]) {
		if o.ID == l.ID || o.Thread != l.Thread && (root == "" || o.ID != root) {
			continue
		}
		if o.Thread == l.Thread {
			root = cmp.Or(root, o.Root)
		}
		if named := o.Named.among(members); len(o.Named.Bots) > 0 || len(named) > 0 {
			return named, true
		}
		if o.Bot != "" {
			return here([]relay.AgentName{o.Bot}, members), true
		}
	}
	return nil, false
}

func (s *State) byMode(l *Line, set *Settings) audience {
	def := here([]relay.AgentName{set.DefaultBot}, s.members())
	if len(def) > 0 && set.Answer != ModeNamed {
		return audience{bots: def}
	}
	if set.Answer == ModeOne {
		return audience{oneOf: here(append([]relay.AgentName{s.spokeTo(l)}, agentsOf(s.members())...), s.members())}
	}
	return audience{}
}

// spokeLines is how many lines before a message tell which bot spoke to its sender last.
const spokeLines = 512

// spokeTo is the bot that spoke to the sender of a message last: it replied to their message, or was the first to speak
// after it where it was said, and to nobody else.
func (s *State) spokeTo(l *Line) (last relay.AgentName) {
	end := s.after(l.TS)
	theirs := map[relay.MessageID]bool{} // messages
	waiting := map[string]bool{}         // by topic: the newest person's message is theirs, and no bot spoke since
	for _, o := range s.d.Lines[max(0, end-spokeLines):end] {
		switch {
		case o.ID == l.ID:
		case o.Bot == "":
			theirs[o.ID] = o.isBy(l)
			waiting[o.Thread] = theirs[o.ID]
		case waiting[o.Thread] && o.Parent == "" || theirs[o.Parent]:
			last = o.Bot
			waiting[o.Thread] = false
		}
	}
	return last
}

// among are the bots in the group that a message names.
func (n Names) among(bots []Peer) []relay.AgentName {
	out := here(n.Bots, bots)
	for _, b := range bots {
		if n.All && b.MentionAll && !slices.Contains(out, b.Agent) {
			out = append(out, b.Agent)
		}
	}
	return out
}

// here are those of agents that are in the group.
func here(agents []relay.AgentName, bots []Peer) (out []relay.AgentName) {
	for _, agent := range agents {
		if slices.ContainsFunc(bots, func(b Peer) bool { return b.Agent == agent }) && !slices.Contains(out, agent) {
			out = append(out, agent)
		}
	}
	return out
}

// isFor reports whether it is for this bot.
func (s *State) isFor(a audience) bool {
	return a.everybody || slices.Contains(a.bots, s.d.Config.Agent)
}

package group

import (
	"cmp"
	"slices"
	"time"

	"feishu-relay/relay"
)

// Depth is how many messages of bots in a row end with a message, counted back to the last message of a person or the
// last continue.
//
//   - A bot's first direct answer to that person's message has depth 1, whatever was said since.
//   - A piece of an answer has the depth of the piece before it: its sender's neighbour with the same parent or of the
//     same send, at most pieceGap after its last write. With [policy.Count.Turns] so has each neighbour of one sender.
//   - A reply to a bot's message of this round is one deeper than that message, and than what its own sender has said
//     in the round. So two bots that answer each other at the same moment are equally deep.
//   - Any other message counts all that bots have said in the round. Direct answers to the person count once together,
//     and so do the pieces of an answer.
//
// What was recalled does not count, unless this bot had it. user_ts ends the count as the person's message itself
// does, unless it is later than its own message. A topic is counted on its own, and goes on before its root; a topic
// of a person's message ends there. Beyond the known lines, and beyond maxDepth, the depth is "at least".
//
// # Why bots fall silent
//
// In each round the depth of a sender's messages rises by at least one from message to message, pieces of one answer
// apart, and only its first direct answer is excepted. A bot is given what is less deep than the limit L: of each
// other bot at most L messages a round. So N bots, each of which speaks once to the person and once for each message
// that it is given, say at most N + N(N-1)L messages, whatever order and delay the messages have.

// pieceGap is how long after the last write of a piece of an answer the next may follow. A later one counts as a
// message of its own.
const pieceGap = 10 * time.Second

// maxDepth is where counting ends: MAX_BOT_REPLY_DEPTH goes no higher.
const maxDepth = 1000

// exchange is what bots have said in a row.
type exchange struct {
	lines []*Line         // newest first; the first is the message itself
	began relay.Millis    // when a person spoke or let the bots go on; 0: never, or it is not known
	asked relay.MessageID // that person's message; "": not known
	// unknown: a person spoke whose message is not here.
	unknown bool
	// deep: the count ends at a message of the same bot that has maxDepth.
	deep bool
}

// depth counts l, a bot's message, which may be among the lines; began is when its round began.
func (s *State) depth(l *Line) (depth int, began relay.Millis) {
	x := s.exchange(l)
	return s.count(&x, l), x.began
}

// exchange goes back from l to where its count ends.
func (s *State) exchange(l *Line) exchange {
	x := exchange{lines: []*Line{l}}
	before := s.after(l.TS)
	if known := s.byID[l.ID]; known != nil {
		before = slices.Index(s.d.Lines, known)
	}
	topicGroup := l.Thread != "" && !slices.ContainsFunc(s.d.Lines, func(o *Line) bool { return o.Thread == "" })
	thread, root, visited := l.Thread, l.Root, map[string]bool{}
	for {
		visited[thread] = true
		oldest := before
		cut := s.continued(thread, l.TS)
		if len(x.lines) == 1 && l.UserTS <= l.TS {
			cut = max(cut, l.UserTS)
		}
		for i := before - 1; i >= 0 && len(x.lines) < maxDepth && !x.deep; i-- {
			o := s.d.Lines[i]
			opens := topicGroup && thread == "" && (o.Root == "" || o.Root == o.ID) // a topic, before that of l
			if o.Thread != thread && !opens || o.ID == l.ID {
				continue
			}
			if o.UserTS <= o.TS {
				cut = max(cut, o.UserTS)
			}
			switch {
			case o.Bot == "" && o.TS >= cut:
				x.began, x.asked = o.TS, o.ID
				return x
			case o.TS <= cut:
				x.endAt(s, cut, l)
				return x
			case o.Bot != "":
				oldest, root = i, cmp.Or(root, o.Root)
				if !o.Recalled || s.had(o) {
					x.lines = append(x.lines, o)
					x.deep = o.Bot == l.Bot && l.Bot != unknownBot && o.Depth >= maxDepth
				}
			}
		}
		if cut > 0 {
			x.endAt(s, cut, l)
			return x
		}
		r := s.byID[root]
		switch {
		case thread == "" || root == "" && !topicGroup || root != "" && (r == nil || r.TS > l.TS):
			return x
		case root == "": // the topics that were opened before
			thread, before = "", oldest
		case r.Bot == "":
			x.began, x.asked = r.TS, r.ID
			return x
		case r.Thread == thread: // it was counted with its topic
			thread, before = "", slices.Index(s.d.Lines, r)
		case visited[r.Thread]:
			return x
		default:
			thread, before = r.Thread, slices.Index(s.d.Lines, r)+1
		}
		root = ""
	}
}

// endAt ends the count at a time at which a person spoke, as far as bots know.
func (x *exchange) endAt(s *State, at relay.Millis, l *Line) {
	x.began, x.unknown = at, true
	for i := s.after(at) - 1; i >= 0 && s.d.Lines[i].TS == at; i-- {
		if o := s.d.Lines[i]; o.Bot == "" && (o.Thread == l.Thread || o.Thread == "") {
			x.asked, x.unknown = o.ID, false
		}
	}
}

// count is the depth of l, the first of x.
func (s *State) count(x *exchange, l *Line) int {
	c := s.d.Config.Count
	slices.Reverse(x.lines)
	last, start := len(x.lines)-1, 0
	answered, joined := map[relay.AgentName]bool{l.Bot: x.deep}, map[relay.MessageID]bool{}
	n, own, parent, first := 0, 0, 0, false
	for i, o := range x.lines {
		first = x.answers(s, o) && !answered[o.Bot]
		if first {
			answered[o.Bot] = true
			if x.unknown && x.asked == "" {
				x.asked = o.Parent
			}
		}
		if i > 0 && c.IdleReset > 0 && between(x.lines[i-1].TS, o.TS) >= c.IdleReset {
			start, n, own, parent = i, 0, 0, 0
			clear(joined)
		}
		if i < last && o.Bot == l.Bot {
			own = max(own, o.Depth)
		}
		if i < last && o.ID == l.Parent {
			parent = o.Depth
		}
		if i > start && continues(x.lines[i-1], o, c.Turns) || first && joined[o.Parent] {
			continue
		}
		joined[o.Parent] = joined[o.Parent] || first
		n++
	}
	for _, o := range s.d.Lines[s.after(l.TS):] { // said later, and known earlier
		if o.Bot == l.Bot && o.Thread == l.Thread && o.Round == x.began && (l.Nr == 0 || o.Nr < l.Nr) {
			own = max(own, o.Depth)
		}
	}
	if l.Bot == "" || l.Bot == unknownBot {
		own, parent = 0, 0
	}
	switch {
	case first && l.Parent == x.asked:
		return 1
	case last > start && continues(x.lines[last-1], l, c.Turns):
		return cmp.Or(x.lines[last-1].Depth, n)
	case parent > 0:
		return max(parent, own) + 1
	}
	return max(n, own+1)
}

// unknownBot is the sender of a bot's message that names none. Such messages count one by one.
const unknownBot = "?"

// answers reports whether o answers the person's message directly.
func (x *exchange) answers(s *State, o *Line) bool {
	if o.Bot == unknownBot || o.Parent == "" {
		return false
	}
	if x.unknown {
		p := s.byID[o.Parent]
		return p == nil || p.TS > x.lines[len(x.lines)-1].TS
	}
	return o.Parent == x.asked
}

// continues reports whether o counts together with its predecessor.
func continues(before, o *Line, turns bool) bool {
	if o.Bot == unknownBot || o.Bot != before.Bot {
		return false
	}
	sameParent := o.Parent != "" && o.Parent == before.Parent
	sameSend := o.PartOf != "" && o.PartOf == cmp.Or(before.PartOf, before.ID)
	return turns || (sameParent || sameSend) && between(before.TS+before.Took, o.TS) <= pieceGap
}

// between is the time from one ts to another, both of which are believed.
func between(from, to relay.Millis) time.Duration { return time.Duration(to-from) * time.Millisecond }

// had reports whether this bot was given a message.
func (s *State) had(l *Line) bool {
	v := l.of(s.d.Config.Agent)
	return v != nil && (v.delivered() || v.Decision != nil && v.Decision.Allow)
}

// spoke is when a person spoke last in a conversation up to a time, or let its bots go on; 0: not known.
func (s *State) spoke(thread string, until relay.Millis) relay.Millis {
	at := s.continued(thread, until)
	for _, o := range slices.Backward(s.d.Lines[:s.after(until)]) {
		switch {
		case o.TS <= at:
			return at
		case o.Thread != thread:
			continue
		case o.Bot == "":
			return max(at, o.TS)
		case o.UserTS <= o.TS:
			at = max(at, o.UserTS)
		}
		if o.Depth >= maxDepth { // as far back as bots count
			return at
		}
	}
	return at
}

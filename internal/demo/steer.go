package demo

import (
	"slices"
	"strings"

	"feishu-relay/relay"
)

// steering is what a message has to do with what people and sidecars say beside the bots.
type steering struct {
	act     string          // of a user's message that steers the bots: that of its mark; it is for no bot
	bots    []string        // that it is about; none: all
	command bool            // it is a command: no transcript has it, and it is answered
	noticed map[string]bool // agents whose sidecars know the command's answer, or the notice that it stopped
}

// held are the reasons of stops that a person may end with a word.
var held = []relay.Reason{relay.MaxDepth, relay.Budget}

// steer takes a command, its answer, or a notice, as the sidecar of agent knows it. b.mu is held.
func (b *board) steer(agent string, seen *observed) {
	of := b.byID[relay.MessageID(seen.Of)]
	if of == nil && seen.Of != "" { // a sidecar was faster than the group
		b.early[relay.MessageID(seen.Of)] = append(b.early[relay.MessageID(seen.Of)], func() { b.steer(agent, seen) })
		return
	}
	if of != nil && seen.Kind == "notice" {
		of.noticed[agent] = true
	}
	key := seen.Kind + " " + seen.Act + " " + string(seen.RelayMsgID)
	if b.marks[key] {
		return
	}
	b.marks[key] = true
	switch {
	case seen.Kind == "command" && of != nil:
		of.act, of.bots, of.command = seen.Act, seen.Bots, seen.Act != "continue" || len(seen.Set) > 0
	case seen.Kind == "notice":
		b.showNotice(seen)
	}
}

// relayName is who the terminal says speaks where a sidecar does, and Feishu has no message of it.
const relayName = "relay"

// showNotice prints what the group was shown. What is in Feishu is printed as a message.
// b.mu is held.
func (b *board) showNotice(n *observed) {
	switch {
	case !strings.HasPrefix(string(n.RelayMsgID), "notice:"):
		b.notices[n.RelayMsgID] = true
		if said := b.byID[n.RelayMsgID]; said != nil {
			said.to = nil
		}
	case !b.chat:
	case n.Act == "stop":
		b.out.note("notice: " + clean(n.Content))
	default:
		b.out.said(&message{ts: n.TS, name: relayName, group: b.groups[n.ChatID].Name, text: n.Content})
	}
}

// turn is the place of the last of messages with which a person spoke to the bots, or let them go on; -1: there is
// none.
func turn(messages []*message) int {
	for i, m := range slices.Backward(messages) {
		if m.sender == "" && (!m.command || m.act == "continue") {
			return i
		}
	}
	return -1
}

// released notes that a sidecar gave its bot what it had stopped: a person let it go on, in the
// chat or from outside. b.mu is held.
func (b *board) released(agent string, id relay.MessageID) {
	f, m := b.fate(agent, id), b.byID[id]
	if m == nil || !b.chat || !slices.Contains(held, f.stopped) {
		return
	}
	f.stopped = ""
	f.decided, f.depth, f.tier, f.reason = true, 1, "released", b.out.say("a person let it go on", "有人让它继续")
	b.out.note(b.out.say("%s is given what had stopped: %s", "先前拦下的现在给了 %s：%s", b.nameOf(agent), excerpt(m.text)))
}

// reacted notes that somebody put an emoji on a message.
func (b *board) reacted(who, emoji, text string) {
	b.do(func() {
		if b.chat {
			b.out.note(b.out.say("%s puts the reaction %s on: %s", "%s 加了表情 %s：%s", who, emoji, excerpt(text)))
		}
	})
}

// atRest reports whether all bots are at rest, a stop's notice has come, and what a person let go on. b.mu is held.
func (b *board) atRest() bool {
	last := turn(b.messages)
	round := b.messages[last+1:]
	stopped := slices.ContainsFunc(round, func(m *message) bool { return b.heldAt(m, nil) })
	return b.quiet() && !b.goesOn(last) && (!stopped || slices.ContainsFunc(round, b.everywhere))
}

// goesOn reports whether the message at a place lets bots go on, and not all have. b.mu is held.
func (b *board) goesOn(place int) bool {
	if place < 0 || b.messages[place].act != "continue" {
		return false
	}
	before := b.messages[:place]
	return slices.ContainsFunc(before[turn(before)+1:], func(m *message) bool {
		return m.chat == b.messages[place].chat && b.heldAt(m, b.messages[place].bots)
	})
}

// heldAt reports whether m was stopped, until a person lets the bots go on, at one of bots; none: at any. b.mu is held.
func (b *board) heldAt(m *message, bots []string) bool {
	return slices.ContainsFunc(m.to, func(agent string) bool {
		return slices.Contains(held, b.fate(agent, m.id).stopped) && (len(bots) == 0 || slices.Contains(bots, agent))
	})
}

// everywhere reports whether the sidecars of all bots of the group know what it was shown of m. b.mu is held.
func (b *board) everywhere(m *message) bool {
	return !slices.ContainsFunc(b.groups[m.chat].Members, func(agent string) bool { return !m.noticed[agent] })
}

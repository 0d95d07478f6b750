package demo

import (
	"slices"

	"feishu-relay/relay"
)

// steering is what a message has to do with what people and sidecars say beside the bots. Sidecars can know it before
// the group has the message.
type steering struct {
	act     string          // of a user's message that steers the bots: that of its mark; it is for no bot
	bots    []string        // that it is about; none: all
	command bool            // it is a command: no transcript has it, and it is answered
	noticed map[string]bool // agents whose sidecars know the command's answer, or the notice that it stopped
}

// held are the reasons of stops that a person may end with a word.
var held = []relay.Reason{relay.MaxDepth, relay.Budget}

// steeringOf is that of a message. b.mu is held.
func (b *board) steeringOf(id relay.MessageID) *steering {
	if b.steered[id] == nil {
		b.steered[id] = &steering{noticed: map[string]bool{}}
	}
	return b.steered[id]
}

// steer takes a command, its answer, or a notice, as the sidecar of agent knows it. b.mu is held.
func (b *board) steer(agent string, seen *observed) {
	of := b.steeringOf(relay.MessageID(seen.Of))
	if seen.Kind == "command" {
		of.act, of.bots, of.command = seen.Act, seen.Bots, seen.Act != "continue" || len(seen.Set) > 0
		return
	}
	of.noticed[agent] = true
	b.notices[seen.RelayMsgID] = true
	if said := b.byID[seen.RelayMsgID]; said != nil {
		said.to = nil
	}
}

// turn is the place of the last of messages with which a person spoke to the bots, or let them go on; -1: there is
// none.
func (b *board) turn(messages []*message) int {
	for i, m := range slices.Backward(messages) {
		if of := b.steeringOf(m.id); m.sender == "" && (!of.command || of.act == "continue") {
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
	last := b.turn(b.messages)
	round := b.messages[last+1:]
	stopped := slices.ContainsFunc(round, func(m *message) bool { return b.heldAt(m, nil) })
	return b.quiet() && !b.goesOn(last) && (!stopped || slices.ContainsFunc(round, b.everywhere))
}

// goesOn reports whether the message at a place lets bots go on, and not all have. b.mu is held.
func (b *board) goesOn(place int) bool {
	if place < 0 {
		return false
	}
	before, word := b.messages[:place], b.messages[place]
	of := b.steeringOf(word.id)
	return of.act == "continue" && slices.ContainsFunc(before[b.turn(before)+1:], func(m *message) bool {
		return m.chat == word.chat && b.heldAt(m, of.bots)
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
	noticed := b.steeringOf(m.id).noticed
	return !slices.ContainsFunc(b.groups[m.chat].Members, func(agent string) bool { return !noticed[agent] })
}

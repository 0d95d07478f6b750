package demo

import (
	"context"
	"slices"
	"strings"
	"time"

	"feishu-relay/relay"
)

// steering is what a message has to do with what people and sidecars say beside the bots.
type steering struct {
	act     string          // of a user's message that steers the bots: that of its mark; it is for no bot
	command bool            // it is a command: it stands in no transcript, and is answered
	noticed map[string]bool // agents whose sidecars know the command's answer, or the notice that it stopped
}

// held are the reasons of stops that a person may end with a word.
var held = []relay.Reason{relay.MaxDepth, relay.Budget}

// restWithin is how long is waited for what may not come: a notice, and what it releases.
const restWithin = 4 * time.Second

// steer takes a command, its answer, or a notice, as the sidecar of agent knows it. b.mu is held.
func (b *board) steer(agent string, seen *observed) {
	of := b.byID[relay.MessageID(seen.Of)]
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
		of.act, of.command = seen.Act, seen.Act != "continue" || len(seen.Set) > 0
		if seen.Act == "continue" {
			b.goOn(of, seen.Bots)
		}
	case seen.Kind == "notice":
		b.showNotice(seen)
	}
}

// relayName is who the terminal says speaks where a sidecar does, and Feishu has no message of it.
const relayName = "relay"

// showNotice prints what the group was shown. What stands in Feishu is printed as a message.
// b.mu is held.
func (b *board) showNotice(n *observed) {
	switch {
	case !strings.HasPrefix(string(n.RelayMsgID), "notice:"):
		b.notices[n.RelayMsgID] = true
		if said := b.byID[n.RelayMsgID]; said != nil {
			clear(said.fates)
		}
	case !b.chat:
	case n.Act == "stop":
		b.out.note("notice: " + clean(n.Content))
	default:
		b.out.said(&message{ts: n.TS, name: relayName, group: b.groups[n.ChatID].Name, text: n.Content})
	}
}

// round are the messages since a person spoke, or let the bots go on, before until; nil: the
// newest. b.mu is held.
func (b *board) round(until *message) []*message {
	messages := b.messages
	if i := slices.Index(messages, until); i >= 0 {
		messages = messages[:i]
	}
	for i, m := range slices.Backward(messages) {
		if m.sender == "" && (!m.command || m.act == "continue") {
			return messages[i+1:]
		}
	}
	return messages
}

// goOn notes that a person's message m lets the bots go on, these or, if there are none, all.
// b.mu is held.
func (b *board) goOn(m *message, bots []string) {
	for _, said := range b.round(m) {
		for agent, f := range said.fates {
			if slices.Contains(held, f.stopped) && said.chat == m.chat && (len(bots) == 0 || slices.Contains(bots, agent)) {
				f.awaited = true
			}
		}
	}
}

// released notes that a sidecar gave its bot what it had stopped: a person let it go on, in the
// chat or from outside. b.mu is held.
func (b *board) released(agent string, id relay.MessageID) {
	f, m := b.fate(agent, id), b.byID[id]
	if m == nil || !b.chat || !slices.Contains(held, f.stopped) {
		return
	}
	f.awaited, f.stopped = false, ""
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

// explained reports whether it is known why a person's message is for no bot. b.mu is held.
func (b *board) explained(m *message) bool {
	return m.act != "" || slices.ContainsFunc(b.cast, func(c character) bool { return b.fate(c.Agent, m.id).stopped != "" })
}

// atRest waits for what follows when all bots are at rest: the notice of a stop, and what a
// person let go on. Neither has to come: a bot may be muted, or the notice one of this hour.
func (b *board) atRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	err := b.await(ctx, "at rest", func() bool {
		round := b.round(nil)
		stopped := slices.ContainsFunc(round, func(m *message) bool {
			return m.any(func(f *fate) bool { return slices.Contains(held, f.stopped) })
		})
		awaited := slices.ContainsFunc(b.messages, func(m *message) bool {
			return m.any(func(f *fate) bool { return f.awaited })
		})
		return b.quiet() && !awaited && (!stopped || slices.ContainsFunc(round, b.everywhere))
	})
	if ctx.Err() == context.DeadlineExceeded {
		return nil
	}
	return err
}

// everywhere reports whether the sidecars of all bots of the group know what it was shown of m. b.mu is held.
func (b *board) everywhere(m *message) bool {
	return !slices.ContainsFunc(b.groups[m.chat].Members, func(agent string) bool { return !m.noticed[agent] })
}

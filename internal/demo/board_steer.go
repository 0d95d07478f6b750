package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/relay"
)

// steered is what the board knows of what people and sidecars say beside the bots.
type steered struct {
	shown bool                     // in a chat: what the group is shown is printed
	shows map[relay.MessageID]bool // messages of the sidecars' own in Feishu
	known map[string]bool          // marks that were entered: every sidecar tells of each
}

// held are the reasons of stops that a person may end with a word.
var held = []relay.Reason{relay.MaxDepth, relay.Budget}

// restWithin is how long is waited for what may not come: a notice, and what it releases.
const restWithin = 4 * time.Second

// showSteering has what the group is shown printed.
func (b *board) showSteering() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steered.shown = true
}

// observeNotice takes the event of a command, of its answer, or of a notice, of the sidecar of agent.
func (b *board) observeNotice(agent string, e event) error {
	var seen struct {
		RelayMsgID relay.MessageID `json:"relay_msg_id"`
		ChatID     relay.ChatID    `json:"chat_id"`
		Content    string          `json:"content"`
		Kind       string          `json:"kind"`
		Act        string          `json:"act"`
		Of         relay.MessageID `json:"of"`
		Bots       []string        `json:"bots"`
		Set        json.RawMessage `json:"set"`
		TS         relay.Millis    `json:"ts"`
	}
	if err := json.Unmarshal(e.data, &seen); err != nil {
		return fmt.Errorf("decode a notice: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.byID[seen.Of]
	if of != nil && seen.Kind == "notice" {
		if of.noticed == nil {
			of.noticed = map[string]bool{}
		}
		of.noticed[agent] = true
	}
	defer b.change()
	key := seen.Kind + " " + seen.Act + " " + string(seen.RelayMsgID)
	if b.steered.known[key] {
		return nil
	}
	b.steered.known[key] = true
	switch {
	case seen.Kind == "command" && of != nil:
		of.steers, of.command = seen.Act, seen.Act != "continue" || len(seen.Set) > 0
		if seen.Act == "continue" {
			b.goOn(of, seen.Bots)
		}
	case seen.Kind == "notice":
		b.showNotice(seen.RelayMsgID, &message{ts: seen.TS, name: relayName, group: b.chats[seen.ChatID].name,
			text: seen.Content}, seen.Act)
	}
	return nil
}

// relayName is who the terminal says speaks where a sidecar does, and Feishu has no message of it.
const relayName = "relay"

// showNotice prints what the group was shown. What stands in Feishu is printed as a message.
// b.mu is held.
func (b *board) showNotice(id relay.MessageID, m *message, act string) {
	if !strings.HasPrefix(string(id), "notice:") {
		b.steered.shows[id] = true
		if said := b.byID[id]; said != nil {
			clear(said.fates)
		}
		return
	}
	switch {
	case !b.steered.shown:
	case act == "stop":
		b.out.note("notice: " + clean(m.text))
	default:
		b.out.said(m)
	}
}

// round are the messages since a person spoke, or let the bots go on, before until; nil: the
// newest. b.mu is held.
func (b *board) round(until *message) []*message {
	messages := b.messages
	if i := slices.Index(messages, until); i >= 0 {
		messages = messages[:i]
	}
	from := len(messages)
	for from > 0 {
		if m := messages[from-1]; m.sender == "" && (!m.command || m.steers == "continue") {
			break
		}
		from--
	}
	return messages[from:]
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

// released notes that a bot was given what had been stopped there. b.mu is held.
func (b *board) released(agent string, id relay.MessageID) {
	f := b.fate(agent, id)
	if !f.awaited {
		return
	}
	f.awaited, f.stopped = false, ""
	f.decided, f.depth, f.tier, f.reason = true, 1, "released", "a person let it go on"
	m := b.byID[id]
	b.out.note(fmt.Sprintf("%s is given what had stopped: %s", b.nameOf(agent), excerpt(m.text)))
}

// withheld notes that a person's message is not for a bot. b.mu is held.
func (b *board) withheld(agent string, why relay.Reason) {
	if b.steered.shown && why != relay.Continue {
		b.out.note(fmt.Sprintf("%s is not given what you said: %s", b.nameOf(agent), why))
	}
}

// reacted notes that somebody put an emoji on a message.
func (b *board) reacted(who, emoji, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.steered.shown {
		b.out.note(fmt.Sprintf("%s puts the reaction %s on: %s", who, emoji, excerpt(text)))
	}
}

// explained reports whether it is known why a person's message is for no bot. b.mu is held.
func (b *board) explained(m *message) bool {
	return m.steers != "" || slices.ContainsFunc(b.cast, func(c character) bool { return b.fate(c.agent, m.id).stopped != "" })
}

func (b *board) nameOf(agent string) string {
	i := slices.IndexFunc(b.cast, func(c character) bool { return c.agent == agent })
	if i < 0 {
		return agent
	}
	return b.cast[i].name
}

// excerpt is the beginning of a text, on one line.
func excerpt(text string) string {
	const most = 30
	runes := []rune(clean(strings.Join(strings.Fields(text), " ")))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// atRest waits for what follows when all bots are at rest: the notice of a stop, and what a
// person let go on. Neither has to come: a bot may be muted, or the notice one of this hour.
func (b *board) atRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	err := b.await(ctx, "at rest", func() bool {
		stopped, noticed := false, false
		for _, m := range b.round(nil) {
			noticed = noticed || b.everywhere(m)
			for _, f := range m.fates {
				stopped = stopped || slices.Contains(held, f.stopped)
			}
		}
		return b.quiet() && (noticed || !stopped) && !b.awaits()
	})
	if err != nil && ctx.Err() != context.DeadlineExceeded {
		return err
	}
	return nil
}

// everywhere reports whether the sidecars of all bots of the group know what it was shown of m. b.mu is held.
func (b *board) everywhere(m *message) bool {
	return !slices.ContainsFunc(b.chats[m.chat].members, func(agent string) bool { return !m.noticed[agent] })
}

// awaits reports whether something that was stopped is to go on. b.mu is held.
func (b *board) awaits() bool {
	for _, m := range b.messages {
		for _, f := range m.fates {
			if f.awaited {
				return true
			}
		}
	}
	return false
}

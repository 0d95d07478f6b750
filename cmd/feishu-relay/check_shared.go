package main

import (
	"context"
	"fmt"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// checkSecrets compares the fingerprint of RELAY_SECRET with those on the other agents' cards.
func checkSecrets(_ context.Context, s *subject) (out []finding) {
	own := s.Shared("")
	var same []string
	for _, c := range s.tellers() {
		agent := string(c.AgentID)
		if c.Sidecar.Secret == own.Secret {
			if agent != string(s.Agent) {
				same = append(same, agent)
			}
			continue
		}
		differs := &sidecar.SecretError{Agent: relay.AgentName(agent), Own: own.Secret, Other: c.Sidecar.Secret}
		switch {
		case agent == string(s.Agent):
			out = append(out, warning("restart it, or check with its environment",
				"the running sidecar of %s was started with another RELAY_SECRET than this environment has", agent)...)
		case c.At(time.Now(), s.Mailbox.HeartbeatTimeout) == mailbox.Offline:
			out = append(out, warning("nothing, if it is not used any more; else set the same RELAY_SECRET there",
				"%s, which is offline (%s), last ran with another RELAY_SECRET", agent, age(time.Since(c.LastHeartbeat)))...)
		case !own.Meets(c.Sidecar):
			out = append(out, warning("nothing, if they are to be apart; else the same RELAY_SECRET at both",
				"%s has another RELAY_SECRET, and another queue: they share only the mailbox, and refuse each other's mail",
				agent)...)
		default:
			out = append(out, failure(fmt.Sprintf("set RELAY_SECRET at this sidecar and at that of %s to the same "+
				"(`openssl rand -hex 32` makes a good one), and restart both", agent), "%v", differs)...)
		}
	}
	if len(out) == 0 && len(same) > 0 && own.Secret != "" {
		return well("the same at %s", some(same))
	}
	return out
}

// tellers are the cards that say what their agents' sidecars are set to.
func (s *subject) tellers() (cards []mailbox.Card) {
	all, _ := s.cards() // mistakes are reported with the mailbox
	for _, c := range all {
		if c.TellsSettings() {
			cards = append(cards, c)
		}
	}
	return cards
}

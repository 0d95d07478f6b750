package sidecar

import (
	"fmt"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// clocks compares the clocks of other sidecars with this one's, by the heartbeats on their cards. A card that has
// changed since the last reading was written since then, whatever time is on it.
type clocks struct {
	read   time.Time                         // the last reading
	beats  map[relay.AgentName]time.Time     // the heartbeats then
	differ map[relay.AgentName]time.Duration // the clocks that differed then: how far each is ahead, negative if behind
}

// compare takes in the cards that were read at now, and returns the agents whose clocks have begun to differ by more
// than [relay.MaxAhead], with how far each is ahead.
func (c *clocks) compare(cards []mailbox.Card, self relay.AgentName, now time.Time) map[relay.AgentName]time.Duration {
	since := now.Sub(c.read)
	beats, differ, begun := map[relay.AgentName]time.Time{}, map[relay.AgentName]time.Duration{},
		map[relay.AgentName]time.Duration{}
	for _, card := range cards {
		agent := relay.AgentName(card.AgentID)
		if agent == self || card.Sidecar == nil { // a foreign program may write its local time
			continue
		}
		beats[agent] = card.LastHeartbeat
		was, known := c.beats[agent]
		if !known {
			continue
		}
		before, differed := c.differ[agent]
		if was.Equal(card.LastHeartbeat) { // nothing new is known of its clock
			if differed {
				differ[agent] = before
			}
			continue
		}
		ahead := card.LastHeartbeat.Sub(now)
		if -since-relay.MaxAhead <= ahead && ahead <= relay.MaxAhead {
			continue
		}
		differ[agent] = ahead
		if !differed {
			begun[agent] = ahead
		}
	}
	c.read, c.beats, c.differ = now, beats, differ
	return begun
}

// compareClocks reports the other sidecars whose clocks differ from this one's. The caller holds mu.
func (p *presence) compareClocks(cards []mailbox.Card) {
	for agent, ahead := range p.clocks.compare(cards, p.cfg.Agent, p.at) {
		side := "ahead of"
		if ahead < 0 {
			side = "behind"
		}
		err := fmt.Errorf("the clock of %s's host is %s %s this one's: one of the two is wrong; messages may expire before "+
			"they are delivered. Set the clocks by NTP", agent, ahead.Abs().Round(time.Second), side)
		p.problems.set("clock", err)
		p.log.Warn("another sidecar's clock differs from this one's", keySender, agent, keyErr, err)
	}
}

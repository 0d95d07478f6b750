package sidecar

import (
	"cmp"
	"maps"
	"slices"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

// SteeringStatus is what people can do in groups, and what they have done.
type SteeringStatus struct {
	AnswerMode string          `json:"answer_mode"`   // where a group has none of its own
	Commands   []string        `json:"steer_command"` // none: people cannot give commands
	By         string          `json:"steer_by"`
	Notice     string          `json:"stop_notice"`
	Groups     []GroupSteered  `json:"groups"`  // those with a pause or a mute
	Waiting    int             `json:"waiting"` // answers and notices that are not shown yet, as far as this sidecar knows
	Agents     []AgentSettings `json:"agents"`  // of the groups' bots: what their sidecars' environments say
}

// GroupSteered is a group in which somebody paused or muted bots.
type GroupSteered struct {
	Channel string                           `json:"channel"`
	ChatID  relay.ChatID                     `json:"chat_id"`
	Paused  *steer.Until                     `json:"paused"`
	Muted   map[relay.AgentName]*steer.Until `json:"muted"`
}

// AgentSettings are the settings that should be the same at all sidecars of a group.
type AgentSettings struct {
	Agent  relay.AgentName `json:"agent_name"`
	Answer steer.Mode      `json:"answer_mode"`
	Budget int             `json:"group_budget"`
}

func (s *steering) status() SteeringStatus {
	c := &s.cfg.Steer
	st := SteeringStatus{AnswerMode: c.AnswerMode, Commands: append([]string{}, c.Commands...), By: cmp.Or(c.By, "members"),
		Notice: c.StopNotice, Groups: []GroupSteered{}, Waiting: s.acts.waiting()}
	agents := map[relay.AgentName]AgentSettings{}
	for _, of := range s.records.chatsOf() {
		g := s.records.state(of.Channel, of.ChatID)
		if _, in := g.record.Member(s.cfg.Agent); !in {
			continue
		}
		for _, m := range g.members {
			agents[m.Agent] = AgentSettings{m.Agent, m.Answer, m.Budget}
		}
		if g.Paused != nil || len(g.Muted) > 0 {
			st.Groups = append(st.Groups, GroupSteered{of.Channel, of.ChatID, g.Paused, g.Muted})
		}
	}
	st.Agents = slices.AppendSeq([]AgentSettings{}, maps.Values(agents))
	slices.SortFunc(st.Agents, func(a, b AgentSettings) int { return cmp.Compare(a.Agent, b.Agent) })
	return st
}

// waiting is how much is to be shown and is not.
func (a *acts) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.wanted)
}

package sidecar

import (
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// metaEditOf names, in the metadata of a message, the message whose text it replaces: a
// card or text that its bot went on to write after it was relayed. Its ts is that
// of the message, and its own id the same for the same text.
const metaEditOf = "edit_of"

// editOf returns the message that m edits; "": m is a message of its own.
func editOf(m *relay.Message) relay.MessageID {
	id := m.Metadata.Text(metaEditOf)
	if relay.CheckID(id) != nil || relay.MessageID(id) == m.ID() {
		return ""
	}
	return relay.MessageID(id)
}

// decideEdit lets an edit through to a bot that was given the message: the policy has
// decided on that, and the depth is the same. For other bots it is only recorded.
func (s *Sidecar) decideEdit(w where, p *passage) (relay.Reason, error) {
	of := string(editOf(&p.msg))
	if !s.given.has(givenBy(p.msg.SenderAgentName, of)) && !s.given.has(givenBy("", of)) && !s.inFlight.has(of) {
		return relay.Duplicate, nil
	}
	depth, err := s.depth(w, policyEntry(botEntry(&p.msg, p.sent)), s.cfg.limitsFor(p.group))
	if err != nil {
		return relay.Pass, err
	}
	p.decision = policy.Decision{Allow: true, Depth: depth, Tier: policy.TierThreshold,
		Reason: "an edit of a message that this bot was given"}
	return relay.Pass, nil
}

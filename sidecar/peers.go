package sidecar

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"feishu-relay/relay"
)

// maxPeers is how many senders are watched for gaps and skew; further ones are
// heard and not watched.
const maxPeers = 256

// peers watches the other senders: gaps in their `seq` and clocks ahead of ours.
type peers struct {
	*base

	mu   sync.Mutex
	last map[peerQueue]relay.Seq    // guarded by mu
	told map[relay.AgentName]bool   // of skew; guarded by mu
	gone map[relay.AgentName]uint64 // missing so far; guarded by mu
}

type peerQueue struct {
	bot   relay.AgentName
	queue string
}

func newPeers(b *base) *peers {
	return &peers{base: b, last: map[peerQueue]relay.Seq{}, told: map[relay.AgentName]bool{},
		gone: map[relay.AgentName]uint64{}}
}

// sentAt is when m was sent, as far as its sender is believed: on arrival where
// it does not say, or says a time too far ahead.
func (p *peers) sentAt(m *relay.Message, now time.Time) time.Time {
	if m.TS <= 0 {
		return now
	}
	ahead := m.TS.Time().Sub(now)
	if ahead <= relay.MaxAhead {
		return m.TS.Time()
	}
	p.mu.Lock()
	told := p.told[m.SenderAgentName] || len(p.told) >= maxPeers
	if !told {
		p.told[m.SenderAgentName] = true
	}
	p.mu.Unlock()
	if !told {
		p.log.Warn("a peer's clock is ahead; its messages are treated as sent on arrival",
			keySender, m.SenderAgentName, "ahead", ahead.Round(time.Second))
		p.problems.set("clock", fmt.Errorf("the clock of %s is %s ahead", m.SenderAgentName, ahead.Round(time.Second)))
	}
	return now
}

// saw looks for messages missing before m. A repeat, or a sender that began to
// count again, is no gap.
func (p *peers) saw(queue string, m *relay.Message) {
	if m.Seq == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := peerQueue{m.SenderAgentName, queue}
	last, known := p.last[key]
	if !known && len(p.last) >= maxPeers {
		return
	}
	if known && m.Seq > last+1 {
		missing := uint64(m.Seq - last - 1)
		p.gone[m.SenderAgentName] += missing
		p.metrics.missing.Add(float64(missing))
		p.log.Warn("messages of a peer are missing", keySender, m.SenderAgentName, "missing", missing, "seq", m.Seq)
	}
	if !known || m.Seq > last || m.Seq == 1 {
		p.last[key] = m.Seq
	}
}

// missing is how many messages of each peer were never seen.
func (p *peers) missing() map[relay.AgentName]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.gone)
}

package sidecar

import (
	"maps"
	"sync"

	"feishu-relay/relay"
)

// maxPeers is how many senders are watched for gaps; further ones are heard and not watched.
const maxPeers = 256

// peers watches the other senders for gaps in their `seq`.
type peers struct {
	*base

	mu   sync.Mutex
	last map[peerQueue]relay.Seq    // guarded by mu
	gone map[relay.AgentName]uint64 // missing so far; guarded by mu
}

type peerQueue struct {
	bot   relay.AgentName
	queue string
}

func newPeers(b *base) *peers {
	return &peers{base: b, last: map[peerQueue]relay.Seq{},
		gone: map[relay.AgentName]uint64{}}
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

package agent

import (
	"maps"
	"sync"
	"time"

	"feishu-relay/mailbox"
)

// pairWindow is the time that a pair's exchanges are counted in (docs/mailbox.md, Rules).
const pairWindow = 10 * time.Minute

// maxPairs bounds the agents that are remembered; beyond it those without an
// exchange in the window are forgotten, and where there is none, any one.
const maxPairs = 10_000

// pairs counts what this agent and each other one have exchanged, both ways:
// fresh messages carry no trace, and two models could chat for ever.
type pairs struct {
	most int // 0: no limit
	mu   sync.Mutex
	with map[mailbox.AgentID][]time.Time // guarded by mu; oldest first
}

// allow counts one message more, unless the pair has had enough; then it tells
// when the next is possible.
func (p *pairs) allow(peer mailbox.AgentID, now time.Time) (ok bool, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := p.recent(peer, now)
	if p.most > 0 && len(times) >= p.most {
		return false, times[len(times)-p.most].Add(pairWindow)
	}
	p.put(peer, append(times, now), now)
	return true, time.Time{}
}

// took counts a message that came: it is not refused, only what follows is.
func (p *pairs) took(peer mailbox.AgentID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := append(p.recent(peer, now), now)
	if p.most > 0 && len(times) > p.most {
		times = times[len(times)-p.most:]
	}
	p.put(peer, times, now)
}

// takeBack uncounts the newest message: it was not sent after all.
func (p *pairs) takeBack(peer mailbox.AgentID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if times := p.with[peer]; len(times) > 0 {
		p.with[peer] = times[:len(times)-1]
	}
}

// recent and put are called with mu held.
func (p *pairs) recent(peer mailbox.AgentID, now time.Time) []time.Time {
	times := p.with[peer]
	for len(times) > 0 && now.Sub(times[0]) >= pairWindow {
		times = times[1:]
	}
	return times
}

func (p *pairs) put(peer mailbox.AgentID, times []time.Time, now time.Time) {
	if p.most == 0 {
		return
	}
	if p.with == nil {
		p.with = map[mailbox.AgentID][]time.Time{}
	}
	if _, known := p.with[peer]; !known && len(p.with) >= maxPairs {
		maps.DeleteFunc(p.with, func(other mailbox.AgentID, _ []time.Time) bool { return len(p.recent(other, now)) == 0 })
		for other := range p.with {
			if len(p.with) < maxPairs {
				break
			}
			delete(p.with, other)
		}
	}
	p.with[peer] = times
}

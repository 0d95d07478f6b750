package agent

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"feishu-relay/mailbox"
)

const (
	// pairWindow is the time that a pair's exchanges are counted in (docs/mailbox.md, Rules).
	pairWindow = 10 * time.Minute
	// maxPairs is how many agents' exchanges are counted; the one heard of least recently is
	// forgotten first.
	maxPairs = 10_000
)

// asks reports whether a message of type t may be answered by one result that does
// not count as an exchange.
func asks(t mailbox.Type) bool {
	return t.GivesTask() || t == mailbox.TypeQuestion || t == mailbox.TypeCodeReviewRequest || t == mailbox.TypeTestRequest
}

// answers reports whether t is a result that a bot sends by itself: the steps of
// tasks follow the ledger.
func answers(t mailbox.Type) bool {
	return t == mailbox.TypeAnswer || t == mailbox.TypeCodeReviewResult || t == mailbox.TypeTestResult
}

// limited reports whether messages of type t count as exchanges of a pair. Results
// count for their sender where nobody asked for them.
func limited(t mailbox.Type) bool {
	switch t {
	case mailbox.TypePing, mailbox.TypeHeartbeat, mailbox.TypeRegister, mailbox.TypeCodeReviewResult,
		mailbox.TypeTestResult:
		return false
	}
	return !t.Result() && !t.Answers()
}

// asked returns the answeredKey of the question or task that e is the first result of,
// or "": then e counts as an exchange.
func (a *Agent) asked(e mailbox.Envelope) string {
	id := cmp.Or(e.ReplyTo, e.Metadata.CorrelationID)
	key := answeredKey(e.To, id)
	waits := func(l *letter) bool { return l.asks && l.from == e.To && l.id == id }
	if !answers(e.Type) || a.opts.Seen.Seen(key) || !a.ready.any(waits) && !a.opts.Seen.Seen(askedKey(e.To, id)) {
		return ""
	}
	return key
}

// pairs counts what this agent and each other one have exchanged, both ways:
// fresh messages carry no trace, and two models could chat for ever.
type pairs struct {
	most int // 0: no limit
	mu   sync.Mutex
	with *lru.LRU[mailbox.AgentID, []time.Time] // oldest first; guarded by mu
}

func newPairs(most int) *pairs {
	with, _ := lru.NewLRU[mailbox.AgentID, []time.Time](maxPairs, nil) // fails only for a size below 1
	return &pairs{most: most, with: with}
}

// allow counts one message more, unless the pair has had enough; then it returns
// when the next is possible.
func (p *pairs) allow(peer mailbox.AgentID, now time.Time) (ok bool, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if times := p.recent(peer, now); p.most > 0 && len(times) >= p.most {
		return false, times[0].Add(pairWindow)
	}
	p.add(peer, now)
	return true, time.Time{}
}

// took counts a message that came: it is not refused, only what follows is.
func (p *pairs) took(peer mailbox.AgentID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(peer, now)
}

// takeBack uncounts the newest message: it was not sent after all.
func (p *pairs) takeBack(peer mailbox.AgentID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if times, _ := p.with.Get(peer); len(times) > 0 {
		p.with.Add(peer, times[:len(times)-1])
	}
}

// recent and add are called with mu held. At most the newest that count are kept.
func (p *pairs) recent(peer mailbox.AgentID, now time.Time) []time.Time {
	times, _ := p.with.Get(peer)
	first := slices.IndexFunc(times, func(t time.Time) bool { return now.Sub(t) < pairWindow })
	if first < 0 {
		return nil
	}
	return times[first:]
}

func (p *pairs) add(peer mailbox.AgentID, now time.Time) {
	times := append(p.recent(peer, now), now)
	p.with.Add(peer, times[max(0, len(times)-p.most):])
}

// limitError is a refusal that says when the next try may succeed.
type limitError struct {
	refusal *mailbox.Error
	after   time.Duration
}

func (e *limitError) Error() string { return e.refusal.Error() }
func (e *limitError) Unwrap() error { return e.refusal }

// RetryAfter is how long to wait.
func (e *limitError) RetryAfter() time.Duration { return e.after }

func (a *Agent) tooMany(to mailbox.AgentID, next time.Time) error {
	message := fmt.Sprintf("%s and %s have exchanged %d messages in %s, the most that is allowed (PEER_MAX_EXCHANGES); "+
		"the next is possible at %s. The steps of a task, and one result for each task or question, always go",
		a.opts.Self, to, a.pairs.most, pairWindow, next.Format("15:04:05"))
	return &limitError{&mailbox.Error{Code: mailbox.RateLimited, Message: message}, time.Until(next)}
}

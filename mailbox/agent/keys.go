package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"feishu-relay/book"
	"feishu-relay/mailbox"
)

// The keys of what was handled. That of a message is its messageKey; the others
// begin with a colon, as no agent's name does.

// messageKey names a message: different content under one id is a different message.
func messageKey(e mailbox.Envelope) string {
	return string(e.From) + "/" + e.ID + "#" + e.Fingerprint()
}

// givenKey is for an id under which the bot was given a message.
func givenKey(id string) string { return ":given/" + id }

// closedKey is for a message that is not delivered again, since the bot did not answer.
// One that its sender sends again later is.
func closedKey(key string, sent time.Time) string {
	return fmt.Sprintf(":closed/%d/%s", sent.UnixMilli(), key)
}

// sentKey is for an id that a message of this agent has; with the fingerprint of the
// message that the bot gave the id behind it, for that message.
func sentKey(id string) string { return ":sent/" + id }

// askedKey is for a question or task that the bot was given, and answeredKey for one whose
// result was sent.
func askedKey(from mailbox.AgentID, id string) string { return fmt.Sprintf(":asked/%s/%s", from, id) }

func answeredKey(to mailbox.AgentID, id string) string { return fmt.Sprintf(":answered/%s/%s", to, id) }

// rejectedItem is for the mail that gives a task which was rejected.
func rejectedItem(item mailbox.Item) string { return ":rejected-mail/" + item.Key }

// stamp is for signed mail that was dealt with, also where the bot refused it: nobody can send a copy of it again.
// What its sender sends again has another one. "" without a secret.
func (a *Agent) stamp(e mailbox.Envelope) string {
	if a.opts.Signing.Secret == "" {
		return ""
	}
	return fmt.Sprintf("%d/%d/%s", e.Timestamp.UnixMilli(), e.Metadata.RetryCount, messageKey(e))
}

// seen reports whether something was handled; "" was not.
func (a *Agent) seen(key string) bool { return a.state.has(kindSeen, key) }

// remember adds keys about a message. Where that fails, what they are about may be done again after a restart.
func (a *Agent) remember(kind, message string, keys ...string) {
	a.note(message, marks(kind, keys...)...)
}

func (a *Agent) note(message string, records ...book.Record) {
	if len(records) == 0 {
		return
	}
	if err := a.state.commit(records...); err != nil {
		a.log.Error("handled ids cannot be stored; after a restart messages may be handled again",
			"message_id", message, "err", err)
	}
}

const (
	// pairWindow is the time that a pair's exchanges are counted in (docs/mailbox.md, Rules).
	pairWindow = 10 * time.Minute
	// maxPairs is how many agents' exchanges are counted; the one heard of least recently is
	// forgotten first.
	maxPairs = 10_000
)

// botResult reports whether t is a result that a bot sends by itself: the steps of
// tasks follow the ledger.
func botResult(t mailbox.Type) bool { return t.Answers() && !t.TaskStep() && !t.Control() }

// limited reports whether messages of type t count as exchanges of a pair. Results
// count for their sender where nobody asked for them.
func limited(t mailbox.Type) bool { return !t.Answers() && !t.Control() }

// asked returns the answeredKey of the question or task that e is the first result of,
// or "": then e counts as an exchange.
func (a *Agent) asked(e mailbox.Envelope) string {
	id := cmp.Or(e.ReplyTo, e.Metadata.CorrelationID)
	key := answeredKey(e.To, id)
	waits := func(m *queued) bool { return m.asks && m.from == e.To && m.id == id }
	if !botResult(e.Type) || a.seen(key) || !a.queue.any(waits) && !a.seen(askedKey(e.To, id)) {
		return ""
	}
	return key
}

// exchange is a message that counts.
type exchange struct {
	At time.Time `json:"at"`
	Of string    `json:"of"` // which: it counts once
}

// pairs counts what this agent and each other one have exchanged, both ways:
// fresh messages carry no trace, and two models could chat without end.
type pairs struct {
	most int // 0: no limit, and nothing is counted
	mu   sync.Mutex
	with *lru.LRU[mailbox.AgentID, []exchange] // oldest first; guarded by mu
}

func newPairs(most int) *pairs {
	with, _ := lru.NewLRU[mailbox.AgentID, []exchange](maxPairs, nil) // fails only for a size below 1
	return &pairs{most: most, with: with}
}

// restore takes in a record of the book.
func (p *pairs) restore(peer string, value json.RawMessage) error {
	var list []exchange
	err := json.Unmarshal(value, &list)
	if err == nil {
		p.with.Add(mailbox.AgentID(peer), list)
	}
	return err
}

// count counts a message, unless it is counted, or the pair has exchanged most of them already (0: no limit); then
// it returns when the next is possible. The records are for the book.
func (p *pairs) count(peer mailbox.AgentID, of string, now time.Time, most int) (next time.Time, rec []book.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, _ := p.with.Get(peer)
	list = slices.DeleteFunc(slices.Clone(list), func(x exchange) bool { return now.Sub(x.At) >= pairWindow })
	switch {
	case p.most == 0 || slices.ContainsFunc(list, func(x exchange) bool { return x.Of == of }):
		return next, nil
	case most > 0 && len(list) >= most:
		return list[0].At.Add(pairWindow), nil
	}
	list = append(list, exchange{now.UTC(), of})
	list = list[max(0, len(list)-p.most):] // no more count
	p.with.Add(peer, list)
	return next, []book.Record{{Kind: kindPair, Key: string(peer), Value: list}}
}

// takeBack uncounts a message: it was not sent after all.
func (p *pairs) takeBack(peer mailbox.AgentID, of string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, _ := p.with.Get(peer)
	p.with.Add(peer, slices.DeleteFunc(slices.Clone(list), func(x exchange) bool { return x.Of == of }))
}

// countExchange counts a message to an agent, unless the pair has had enough of them. The records go with the message.
func (a *Agent) countExchange(to mailbox.AgentID, of string) ([]book.Record, error) {
	next, counted := a.pairs.count(to, of, time.Now(), a.pairs.most)
	if next.IsZero() {
		return counted, nil
	}
	no := mailbox.Refused(mailbox.RateLimited, "", "%s and %s have exchanged %d messages in %s, the most "+
		"that is allowed (PEER_MAX_EXCHANGES); the next is possible at %s. The steps of a task, and one result for each "+
		"task or question, always go", a.opts.Self, to, a.pairs.most, pairWindow, next.Format("15:04:05"))
	no.RetryAfter = time.Until(next)
	return nil, no
}

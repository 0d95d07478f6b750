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

// The keys that Seen knows things by. That of a message is its messageKey; the others
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

// stepKey is for a step that ends a task: the bot is given it once, however many envelopes
// say it. "": e is something else.
func stepKey(e mailbox.Envelope) string {
	if !e.Type.TaskStep() || e.Task == nil || !e.Task.State.Ended() {
		return ""
	}
	return endKey(e.From, e.Task.ID, e.Task.State)
}

func endKey(peer mailbox.AgentID, id string, state mailbox.TaskState) string {
	return fmt.Sprintf(":step/%s/%s/%s", peer, id, state)
}

// sentEndKeys are for what this agent sent when it ended a task, of which a repeat has the same
// content, and for the fact that this was recorded. "": e does not end a task.
func sentEndKeys(e mailbox.Envelope) (sent, ended string) {
	if !e.Task.State.Ended() {
		return "", ""
	}
	return ":end-said/" + e.Fingerprint(), fmt.Sprintf(":end-said/%s/%s", e.To, e.Task.ID)
}

// rejectedKey is for a task that is being rejected, and rejectedItem for the mail that
// gives one that the ledger does not keep. It is noted before the giver gets the
// answer, so that a crash cannot turn that round.
func rejectedKey(r TaskRecord) string {
	return fmt.Sprintf(":rejected/%s/%s/%s", r.Peer, r.ID, r.MessageID)
}

func rejectedItem(item mailbox.Item) string { return ":rejected-mail/" + item.Key }

// signerKey is what Signed knows an agent by that has signed mail.
func signerKey(from mailbox.AgentID) string { return ":signer/" + string(from) }

// remember adds keys about a message to seen; "" is not a key. Where that fails, what they
// are about may be done again after a restart.
func (a *Agent) remember(seen Seen, message string, keys ...string) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" })
	if len(keys) == 0 {
		return
	}
	if err := seen.Add(keys...); err != nil {
		a.log.Error("handled ids cannot be stored; after a restart messages may be handled again",
			"message_id", message, "err", err)
	}
}

const (
	// sigChars is how much of a signature is remembered: 128 bits.
	sigChars = 32
	// maxSignatures is the most signatures that are remembered of one item in the
	// inbox, which its sender replaces when it sends it again.
	maxSignatures = 16
)

// checkSigner refuses unsigned mail of an agent that has signed before: it has the
// secret, and only programs that do not may leave the signature out. sig is e's.
func (a *Agent) checkSigner(e mailbox.Envelope, sig string) error {
	switch {
	case a.opts.Signing.Secret == "":
	case sig != "":
		if e.Metadata.Extra[metaNotice] == nil { // a notice in the name of its sender is this agent's own
			a.remember(a.opts.Signed, e.ID, signerKey(e.From))
		}
	case a.opts.Signed.Seen(signerKey(e.From)):
		return mailbox.Refused(mailbox.BadSignature, "sig", "the message is not signed, and its sender signs")
	}
	return nil
}

// copied reports whether mail with that signature was dealt with before. If not, the
// signature is kept for the item that it came as.
func (a *Agent) copied(key, sig string) bool {
	if sig == "" {
		return false
	}
	sig = sig[:sigChars]
	list, _ := a.signatures.Get(key)
	if !slices.Contains(list, sig) {
		a.signatures.Add(key, append(slices.Clone(list[max(0, len(list)+1-maxSignatures):]), sig))
	}
	return a.opts.Signed.Seen(sig)
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
	if !botResult(e.Type) || a.opts.Seen.Seen(key) || !a.queue.any(waits) && !a.opts.Seen.Seen(askedKey(e.To, id)) {
		return ""
	}
	return key
}

// pairs counts what this agent and each other one have exchanged, both ways:
// fresh messages carry no trace, and two models could chat without end.
type pairs struct {
	most int // 0: no limit
	mu   sync.Mutex
	with *lru.LRU[mailbox.AgentID, []time.Time] // oldest first; guarded by mu
}

func newPairs(most int) *pairs {
	with, _ := lru.NewLRU[mailbox.AgentID, []time.Time](maxPairs, nil) // fails only for a size below 1
	return &pairs{most: most, with: with}
}

// count counts a message, unless the pair has exchanged most of them already (0: no limit); then
// it returns when the next is possible.
func (p *pairs) count(peer mailbox.AgentID, now time.Time, most int) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	times, _ := p.with.Get(peer)
	times = slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return now.Sub(t) >= pairWindow })
	if most > 0 && len(times) >= most {
		return times[0].Add(pairWindow)
	}
	times = append(times, now)
	p.with.Add(peer, times[max(0, len(times)-p.most):]) // no more count
	return time.Time{}
}

// takeBack uncounts the newest message: it was not sent after all.
func (p *pairs) takeBack(peer mailbox.AgentID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if times, _ := p.with.Get(peer); len(times) > 0 {
		p.with.Add(peer, times[:len(times)-1])
	}
}

// countExchange counts a message to an agent, unless the pair has had enough of them.
func (a *Agent) countExchange(to mailbox.AgentID) error {
	next := a.pairs.count(to, time.Now(), a.pairs.most)
	if next.IsZero() {
		return nil
	}
	no := mailbox.Refused(mailbox.RateLimited, "", "%s and %s have exchanged %d messages in %s, the most "+
		"that is allowed (PEER_MAX_EXCHANGES); the next is possible at %s. The steps of a task, and one result for each "+
		"task or question, always go", a.opts.Self, to, a.pairs.most, pairWindow, next.Format("15:04:05"))
	no.RetryAfter = time.Until(next)
	return no
}

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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

// askedKey is for a question or task that came for the bot, and answeredKey for one whose
// result was sent.
func askedKey(from mailbox.AgentID, id string) string { return fmt.Sprintf(":asked/%s/%s", from, id) }

func answeredKey(to mailbox.AgentID, id string) string { return fmt.Sprintf(":answered/%s/%s", to, id) }

// noticeKey is for an envelope that this side made for its own bot.
func noticeKey(id string) string { return ":notice/" + id }

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
func (a *Agent) seen(key string) bool { return a.has(kindSeen, key) }

// note commits records about a message. Where that fails, what they are about may be done again after a restart.
func (a *Agent) note(message string, records ...book.Record) {
	if err := a.commit(records...); err != nil {
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
	if key := answeredKey(e.To, id); botResult(e.Type) && a.seen(askedKey(e.To, id)) && !a.seen(key) {
		return key
	}
	return ""
}

// exchange is a message that counts.
type exchange struct {
	At time.Time `json:"at"`
	Of string    `json:"of"` // which: it counts once
}

// exchanged counts a message of this agent to a peer or the other way: fresh messages carry no trace, and two models
// could chat without end. Unless it is counted already, or the pair has exchanged most of them (0: no limit; then
// next is when the next is possible), there is a record to commit.
func (a *Agent) exchanged(peer mailbox.AgentID, of string, most int) (next time.Time, counted []book.Record) {
	now := time.Now().UTC()
	list, _ := a.pairs.Get(peer)
	list = slices.DeleteFunc(slices.Clone(list), func(x exchange) bool { return now.Sub(x.At) >= pairWindow })
	switch {
	case a.opts.MaxExchanges == 0 || slices.ContainsFunc(list, func(x exchange) bool { return x.Of == of }):
		return next, nil
	case most > 0 && len(list) >= most:
		return list[0].At.Add(pairWindow), nil
	}
	list = append(list, exchange{now, of})
	list = list[max(0, len(list)-a.opts.MaxExchanges):] // no more count
	return next, []book.Record{{Kind: kindPair, Key: string(peer), Value: list}}
}

// countExchange counts a message to an agent, unless the pair has had enough of them. The records go with the message.
func (a *Agent) countExchange(to mailbox.AgentID, of string) ([]book.Record, error) {
	next, counted := a.exchanged(to, of, a.opts.MaxExchanges)
	if next.IsZero() {
		return counted, nil
	}
	no := mailbox.Refused(mailbox.RateLimited, "", "%s and %s have exchanged %d messages in %s, the most "+
		"that is allowed (PEER_MAX_EXCHANGES); the next is possible at %s. The steps of a task, and one result for each "+
		"task or question, always go", a.opts.Self, to, a.opts.MaxExchanges, pairWindow, next.Format("15:04:05"))
	no.RetryAfter = time.Until(next)
	return nil, no
}

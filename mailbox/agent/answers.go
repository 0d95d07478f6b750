package agent

import (
	"cmp"
	"fmt"

	"feishu-relay/mailbox"
)

// asks reports whether a message of type t may be answered by one result that does
// not count as an exchange.
func asks(t mailbox.Type) bool {
	switch t {
	case mailbox.TypeQuestion, mailbox.TypeCodeReviewRequest, mailbox.TypeTestRequest:
		return true
	}
	return t.GivesTask()
}

// answers reports whether t is a result that a bot sends by itself: the steps of
// tasks follow the ledger.
func answers(t mailbox.Type) bool {
	switch t {
	case mailbox.TypeAnswer, mailbox.TypeCodeReviewResult, mailbox.TypeTestResult:
		return true
	}
	return false
}

// askedKey is what Seen knows a question or task by that the bot was given, and
// answeredKey one whose result was sent.
func askedKey(from mailbox.AgentID, id string) string { return fmt.Sprintf(":asked/%s/%s", from, id) }

func answeredKey(to mailbox.AgentID, id string) string { return fmt.Sprintf(":answered/%s/%s", to, id) }

// due returns the answeredKey of the question or task that e is the first result of,
// or "": then e counts as an exchange.
func (a *Agent) due(e mailbox.Envelope) string {
	id := cmp.Or(e.ReplyTo, e.Metadata.CorrelationID)
	key := answeredKey(e.To, id)
	if !answers(e.Type) || a.opts.Seen.Seen(key) || !a.ready.asked(e.To, id) && !a.opts.Seen.Seen(askedKey(e.To, id)) {
		return ""
	}
	return key
}

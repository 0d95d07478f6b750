package agent

import (
	"slices"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/tasks"
)

// defaultHops is how often a message may be forwarded (docs/protocol.md 6.1).
const defaultHops = mailbox.DefaultHops

// route sets hops and trace. A message that goes on the errand of another one
// goes on with that one's; anything but an answer may not go where it has been.
func (a *Agent) route(e *mailbox.Envelope, forwardOf string) error {
	if forwardOf == "" && a.asksGiver(*e) { // also where the bot repeats the hops and trace that the task came with
		e.Hops, e.Trace = defaultHops, nil
	}
	was, forwards, err := a.origin(*e, forwardOf)
	if err != nil {
		return err
	}
	if forwards {
		if was.hops <= 0 {
			return mailbox.Invalid("ttl", "the message has no hops left: it may not be forwarded")
		}
		e.Hops, e.Trace = was.hops-1, slices.Clone(was.trace)
	} else if e.Hops <= 0 {
		return mailbox.Invalid("ttl", "no hops left: a message with a ttl of 0 goes nowhere; the default is %d", defaultHops)
	}
	if !e.Type.Answers() && (forwards || e.ReplyTo == "") && slices.Contains(e.Trace, e.To) {
		return mailbox.Invalid("trace", "%s had it before: it would go in a circle", e.To)
	}
	if len(e.Trace) == 0 || e.Trace[len(e.Trace)-1] != a.opts.Self {
		e.Trace = append(slices.Clone(e.Trace), a.opts.Self)
	}
	return nil
}

// origin is what a message was that is passed on.
type origin struct {
	hops  int
	trace []mailbox.AgentID
	id    string // of the envelope; the bot may know it by another
}

// asksGiver reports whether e is a message about a task to the agent that gave it.
func (a *Agent) asksGiver(e mailbox.Envelope) bool {
	if e.Task == nil || e.Type.GivesTask() {
		return false
	}
	_, took := a.ledger.Get(tasks.Received, e.To, e.Task.ID)
	return took
}

// origin is the task or message that e passes on: the one that is named, or where
// e gives a task the one of the same id that this agent took.
func (a *Agent) origin(e mailbox.Envelope, forwardOf string) (_ origin, found bool, err error) {
	if forwardOf == "" && (e.Task == nil || !e.Type.GivesTask()) {
		return origin{}, false, nil
	}
	for _, r := range a.ledger.List() {
		if r.Direction == tasks.Received && (forwardOf == "" && r.ID == e.Task.ID ||
			forwardOf != "" && (r.ID == forwardOf || mailbox.Names(forwardOf, r.MessageID))) {
			return origin{r.Hops, r.Trace, r.MessageID}, true, nil
		}
	}
	if forwardOf == "" {
		return origin{}, false, nil
	}
	if was, ok := a.handed.Get(forwardOf); ok {
		return was, true, nil
	}
	return origin{}, false, mailbox.Invalid("forward_of", "no message or task %q was received; name the id of one",
		forwardOf)
}

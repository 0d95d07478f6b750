package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"feishu-relay/book"
	"feishu-relay/mailbox"
)

// stepLife is how long a step of a task waits for who gave it: as long as that
// one knows the task. The usual hour is too short for a machine that is shut down
// over night.
const stepLife = 7 * 24 * time.Hour

// metaOverdue marks, in the metadata of a task's failure, that the deadline
// passed here and the bot sent nothing: its result may still come.
const metaOverdue = "overdue"

// taskID is the id of the task that e, one of the types about tasks, is about.
func taskID(e mailbox.Envelope) string {
	if e.Task == nil {
		return ""
	}
	return e.Task.ID
}

// takeTask decides about a task, answers who gave it, and makes it ready for the bot
// when it is accepted.
func (a *Agent) takeTask(item mailbox.Item, e mailbox.Envelope) (*handled, error) {
	t, known := a.tasks.get(Received, e.From, taskID(e))
	switch {
	case known:
	case a.seen(rejectedItem(item)): // before a crash
		return a.finish(EventRefused, "it was rejected before a restart", a.receipt(e))
	default:
		if no := a.unacceptable(e); no != nil {
			return a.reject(item, e, no)
		}
		t = newTask(Received, e.From, e)
		t.State = mailbox.Accepted
	}
	again, over := t.MessageID != e.ID, !t.open()
	step := a.stepFor(a.step(t, t.State, t.Reason, nil))
	if over && !again { // the end itself was sent, with what the bot wrote
		step = nil
	}
	if err := a.send(step, t.record()); err != nil {
		return nil, err
	}
	a.Announce()
	a.opts.Trace("noted")
	if again || over {
		return a.finish(EventControl, "", a.receipt(e))
	}
	if err := a.tell(a.receipt(e)); err != nil {
		return nil, err
	}
	a.enqueue(item, e)
	return nil, nil
}

// unacceptable is why a task is not taken.
func (a *Agent) unacceptable(e mailbox.Envelope) *mailbox.Error {
	if no := a.unwanted(e); no != nil {
		return no
	}
	if passed(e.Task.Deadline) {
		return mailbox.Invalid("task.deadline", "the deadline has passed")
	}
	if passed(e.Expires()) {
		return mailbox.Invalid("metadata.ttl", lifeOver)
	}
	if open := len(a.tasks.taken()); open >= a.opts.MaxTasks {
		return mailbox.Refused(mailbox.AgentBusy, "", "%s works on %d of %d tasks; try again when one has ended",
			a.opts.Self, open, a.opts.MaxTasks)
	}
	return a.tasks.full()
}

// reject answers a task that the ledger does not keep. Its mail is noted with the answer, so that a
// crash cannot turn that round.
func (a *Agent) reject(item mailbox.Item, e mailbox.Envelope, no *mailbox.Error) (*handled, error) {
	why := string(no.Code) + ": " + no.Message
	code := mailbox.Part{Type: mailbox.PartData, Data: fmt.Appendf(nil, `{"code":%q}`, no.Code)}
	step := a.step(newTask(Received, e.From, e), mailbox.Rejected, why, []mailbox.Part{code})
	if err := a.send(&step, marks(kindSeen, rejectedItem(item))...); err != nil {
		return nil, err
	}
	a.opts.Trace("told")
	return a.finish(EventRefused, why, a.receipt(e))
}

// stepType is the type of the envelope about a state. Either set of types drives the
// life cycle; a task is answered in the set that it came in.
func stepType(gave mailbox.Type, state mailbox.TaskState) mailbox.Type {
	switch {
	case gave == mailbox.TypeTaskAssign && state == mailbox.Completed:
		return mailbox.TypeTaskComplete
	case gave == mailbox.TypeTaskAssign && state == mailbox.Failed:
		return mailbox.TypeTaskFailed
	}
	return mailbox.TypeTaskUpdate
}

// step is the envelope about t's state for the agent that gave it.
func (a *Agent) step(t task, state mailbox.TaskState, text string, parts []mailbox.Part) mailbox.Envelope {
	e := mailbox.New(stepType(t.Type, state), a.opts.Self, t.Peer, time.Now())
	e.Task = &mailbox.Task{ID: t.ID, State: state, Deadline: t.Deadline}
	e.Callback, e.ReplyTo = t.Callback, t.MessageID
	e.Metadata = mailbox.Metadata{CorrelationID: t.MessageID, RequiresAck: true, TTL: new(int(stepLife / time.Second))}
	e.Content.Parts = []mailbox.Part{}
	if text != "" {
		e.Content.Parts = append(e.Content.Parts, mailbox.TextPart(text))
	}
	e.Content.Parts = append(e.Content.Parts, parts...)
	return e
}

// stepFor is a step as the mailbox of who gave the task gets it. One of another program hands all its mail to its
// model: it gets no step without content (nil), and each other one with a text.
func (a *Agent) stepFor(e mailbox.Envelope) *mailbox.Envelope {
	if card := cardOf(a.cards, e.To); card != nil && card.Protocol == "" && strings.TrimSpace(e.Text()) == "" {
		if silent(e) {
			return nil
		}
		says := fmt.Sprintf("%s: task %s is %s.", e.From, e.Task.ID, e.Task.State)
		e.Content.Parts = slices.Insert(slices.Clone(e.Content.Parts), 0, mailbox.TextPart(says))
	}
	return &e
}

// silent reports whether a step has no content and the task goes on.
func silent(e mailbox.Envelope) bool {
	said := slices.ContainsFunc(e.Content.Parts, func(p mailbox.Part) bool { return p.Type != mailbox.PartText })
	return !said && !e.Task.State.Ended() && strings.TrimSpace(e.Text()) == ""
}

// UpdateTask moves a task that this agent took, and sends that to who gave it.
func (a *Agent) UpdateTask(ctx context.Context, u TaskUpdate) (TaskRecord, error) {
	a.refreshCards(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.update(u, "", nil)
}

// update is UpdateTask with an id for the news, "": a new one, and records that go with it.
func (a *Agent) update(u TaskUpdate, id string, with []book.Record) (TaskRecord, error) {
	t, err := a.taken(u.TaskID, u.From)
	if err != nil {
		return TaskRecord{}, err
	}
	e := a.step(t, u.State, u.Text, u.Parts)
	e.ID = cmp.Or(id, e.ID)
	hasContent := len(u.Text)+len(u.Parts) > 0
	switch {
	case t.State != u.State || u.State == mailbox.Working || t.Overdue && hasContent:
	case !t.open() && hasContent && t.Said != e.Fingerprint():
		return TaskRecord{}, mailbox.Invalid("state", "the task is %s already, and how it ended was sent: what you add, "+
			"send as a message to %s", t.State, t.Peer)
	default:
		return t.TaskRecord, nil // a repeat
	}
	t, _, err = t.moved(u.State, endText(e), time.Now())
	if err != nil {
		return TaskRecord{}, err
	}
	if !t.open() {
		t.Said = e.Fingerprint()
	}
	if err := a.send(a.stepFor(e), append(with, t.record())...); err != nil {
		return TaskRecord{}, err
	}
	a.opts.Trace("told")
	a.Announce()
	if !t.open() {
		a.queue.reopen(t.Peer, t.MessageID)
	}
	return t.TaskRecord, nil
}

// taken finds a task that this agent took; without an id, the oldest that is open.
func (a *Agent) taken(id string, from mailbox.AgentID) (task, error) {
	found := a.tasks.list(func(t *task) bool {
		return t.Direction == Received && (from == "" || t.Peer == from) &&
			(t.ID == id || id == "" && (t.State == mailbox.Accepted || t.State == mailbox.Working))
	})
	switch {
	case len(found) == 0 && id == "":
		return task{}, mailbox.Refused(mailbox.TaskNotFound, "task_id", "no task is open")
	case len(found) == 0:
		return task{}, mailbox.Refused(mailbox.TaskNotFound, "task_id", "%s has taken no task %q", a.opts.Self, id)
	case len(found) > 1 && id != "":
		return task{}, mailbox.Invalid("from", "several agents gave a task of this id; name one")
	}
	return found[len(found)-1], nil
}

// takeStep notes what another agent reports of a task that it was given. The bot
// gets it where it ends the task or has content; that the task
// was accepted must not wake it.
func (a *Agent) takeStep(item mailbox.Item, e mailbox.Envelope) (*handled, error) {
	t, ok := a.tasks.get(Given, e.From, taskID(e))
	if !ok {
		return a.refuse(e, mailbox.Refused(mailbox.TaskNotFound, "task.id", "%s gave %s no such task", a.opts.Self, e.From))
	}
	notice := a.seen(noticeKey(e.ID))
	overdue := e.Metadata.Extra[metaOverdue] != nil && e.Task.State == mailbox.Failed
	if !notice && !overdue && e.Task.State != "" { // else it is noted already, or by our own clock
		now, changed, err := t.moved(e.Task.State, endText(e), time.Now())
		if no, refused := errors.AsType[*mailbox.Error](err); refused {
			return a.refuse(e, no)
		}
		if t = now; changed {
			if err := a.commit(t.record()); err != nil {
				return nil, err
			}
		}
	}
	a.opts.Trace("noted")
	if !notice {
		a.acked(t.MessageID, e.From) // who reports of a task has received it
	}
	if silent(e) || overdue || t.told(e) || a.overtaken(t, e) {
		return a.finish(EventControl, "", a.receipt(e))
	}
	if err := a.tell(a.receipt(e)); err != nil {
		return nil, err
	}
	a.enqueue(item, e)
	return nil, nil
}

// overtaken reports whether a step has nothing that the bot still needs: the
// task ended otherwise, or the bot was given its end. Progress that was noted
// and not delivered yet, as before a crash, is needed.
func (a *Agent) overtaken(t task, e mailbox.Envelope) bool {
	if e.Task.State == "" || t.State == e.Task.State {
		return false
	}
	return e.Task.State.Ended() || t.Told == t.State
}

// told reports whether the bot was given the end that e reports.
func (t *task) told(e mailbox.Envelope) bool { return t.Told != "" && t.Told == e.Task.State }

// toldEnd is the record that the bot was given e, the end of a task that it gave; nil: e is something else.
func (a *Agent) toldEnd(e mailbox.Envelope) []book.Record {
	if !e.Type.TaskStep() || e.Task == nil || !e.Task.State.Ended() {
		return nil
	}
	t, ok := a.tasks.get(Given, e.From, e.Task.ID)
	if !ok {
		return nil
	}
	t.Told = e.Task.State
	return []book.Record{t.record()}
}

// endText is the text of a step that ends a task: its result, or why it has none.
func endText(e mailbox.Envelope) string {
	if e.Task.State.Ended() {
		return e.Text()
	}
	return ""
}

// conversation is where a result belongs: a conversation that this agent named
// when it gave a task to the sender, as it named it, or a
// group that the bot is in. Anything else would let another agent speak
// wherever it likes.
func (a *Agent) conversation(e mailbox.Envelope) *mailbox.Callback {
	if !e.Type.Result() {
		return nil
	}
	about, _ := a.tasks.get(Given, e.From, taskID(e))
	wanted := cmp.Or(e.Callback, about.Callback)
	if wanted == nil || wanted.Chat() == "" || wanted.Channel == "mailbox" {
		return nil
	}
	named := func(t *task) bool {
		c := t.Callback
		return t.Direction == Given && t.Peer == e.From && c != nil && c.Channel == wanted.Channel &&
			c.Chat() == wanted.Chat()
	}
	if !named(&about) {
		about = a.tasks.newest(named)
	}
	if about.Callback != nil {
		return about.Callback
	}
	if a.opts.Hears(wanted.Channel, wanted.Chat()) {
		// whose session it is we do not let others say
		return &mailbox.Callback{Channel: wanted.Channel, ChatID: wanted.Chat()}
	}
	return nil
}

// expiryNotice is for the bot, whose message was not taken: a nack in the
// name of its receiver.
func expiryNotice(n *letter) mailbox.Envelope {
	says := fmt.Sprintf("%s did not take your message %s: %s. It is among the dead letters, from which it can be sent "+
		"again.", n.Head.To, n.Head.ID, n.Reason)
	e := mailbox.NackFor(n.Head, n.Head.To, time.Now(), n.Code, n.Reason)
	e.Content.Parts = slices.Insert(e.Content.Parts, 0, mailbox.TextPart(says))
	e.Metadata.TTL = new(0)
	return e
}

// notify sends the bot a notice of this side's making in the name of another agent, with the records.
func (a *Agent) notify(e mailbox.Envelope, with ...book.Record) error {
	return a.tell(&e, append(with, marks(kindSeen, noticeKey(e.ID))...)...)
}

// giveUp ends a task without word from the other side. Of one that this agent gave, its bot gets notice,
// which takes the path of all results; of one that it took, who gave it. The records go with it.
func (a *Agent) giveUp(t task, reason string, with ...book.Record) error {
	t = t.givenUp(reason, time.Now())
	var e mailbox.Envelope
	if t.Direction == Given {
		e = a.step(t, t.State, fmt.Sprintf("%s did not finish the task: %s", t.Peer, t.Reason), nil)
		e.From, e.To, e.Trace = t.Peer, a.opts.Self, []mailbox.AgentID{t.Peer}
		e.Metadata = mailbox.Metadata{CorrelationID: t.MessageID, TTL: new(0)}
		return a.notify(e, append(with, t.record())...)
	}
	e = a.step(t, t.State, t.Reason, nil)
	e.Metadata.Extra = map[string]json.RawMessage{metaOverdue: json.RawMessage("true")}
	return a.tell(&e, append(with, t.record())...)
}

// endOverdue ends what has run out of time, on both sides: who crashed in a task sends nothing. It removes what is
// too old, and returns when something is due next.
func (a *Agent) endOverdue(now time.Time) (next time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	overdue, old, next := a.tasks.due(now)
	for _, t := range overdue {
		reason := fmt.Sprintf("no news for %s", maxSilence)
		if !t.Deadline.IsZero() {
			reason = fmt.Sprintf("the deadline %s passed", t.Deadline.Format(time.RFC3339))
		}
		if err := a.giveUp(t, reason+"; it was "+string(t.State)); err != nil {
			return next, err
		}
		if t.Direction == Received {
			a.Announce()
			a.queue.reopen(t.Peer, t.MessageID)
		}
		next = now // to be removed one day
	}
	for _, t := range old {
		if err := a.commit(book.Record{Kind: kindTask, Key: t.key()}); err != nil {
			return next, err
		}
	}
	return next, nil
}

// taskOf finds the task that a message of this agent gave.
func (a *Agent) taskOf(message string) task {
	return a.tasks.newest(func(t *task) bool { return t.Direction == Given && t.MessageID == message })
}

// Tasks returns the tasks taken and given, the newest first.
func (a *Agent) Tasks() []TaskRecord { return a.taskRecords(func(*task) bool { return true }) }

// Task returns the tasks of that id, the newest first: it may be given by several, and taken and given.
func (a *Agent) Task(id string) []TaskRecord {
	return a.taskRecords(func(t *task) bool { return t.ID == id })
}

func (a *Agent) taskRecords(want func(*task) bool) []TaskRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []TaskRecord{}
	for _, t := range a.tasks.list(want) {
		out = append(out, t.TaskRecord)
	}
	return out
}

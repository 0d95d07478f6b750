package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// record is the ledger's record of the task that e gives.
func record(dir Direction, peer mailbox.AgentID, e mailbox.Envelope) TaskRecord {
	return TaskRecord{ID: e.Task.ID, Direction: dir, Peer: peer, Type: e.Type, State: mailbox.Pending,
		Deadline: e.Task.Deadline, Text: e.Text(), MessageID: e.ID, Callback: e.Callback, Hops: e.Hops, Trace: e.Trace}
}

// takeTask decides about a task, answers who gave it, and makes it ready for the bot
// when it is accepted.
func (a *Agent) takeTask(ctx context.Context, item mailbox.Item, e mailbox.Envelope) (err error) {
	id := taskID(e)
	r, known := a.ledger.Get(Received, e.From, id)
	switch {
	case !known:
		r = record(Received, e.From, e)
		if no := a.unacceptable(e); no != nil {
			return a.reject(ctx, item, e, r, no)
		}
		if a.opts.Seen.Seen(rejectedItem(item)) {
			return a.reject(ctx, item, e, r, &mailbox.Error{Code: mailbox.AgentBusy, Message: rejectedBefore})
		}
		added, _, err := a.ledger.Add(r)
		if full, ok := errors.AsType[*mailbox.Error](err); ok {
			return a.reject(ctx, item, e, r, full)
		} else if err != nil {
			return err
		}
		r = added
	case a.rejectedBefore(r):
		end := TaskUpdate{TaskID: id, From: e.From, State: mailbox.Rejected, Text: rejectedBefore}
		if r, err = a.UpdateTask(ctx, end); err != nil {
			return err
		}
	}
	if r.State == mailbox.Pending {
		if r, _, err = a.ledger.Move(Received, e.From, id, mailbox.Accepted, "", time.Now()); err != nil {
			return err
		}
		a.Announce()
	}
	a.opts.Trace("noted")
	again, over := r.MessageID != e.ID, r.State.Ended()
	if again || !over { // else the end itself was sent, with what the bot wrote
		if err := a.answer(ctx, a.stepFor(ctx, a.step(r, r.State, r.Reason, nil))); err != nil {
			return err
		}
	}
	if again || over {
		return a.finish(ctx, item, e, EventControl, "", a.receipt(e))
	}
	if err := a.answer(ctx, a.receipt(e)); err != nil {
		return err
	}
	return a.enqueue(item, e)
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
	if open := len(a.ledger.Open()); open >= a.opts.MaxTasks {
		return mailbox.Refused(mailbox.AgentBusy, "", "%s works on %d of %d tasks; try again when one has ended",
			a.opts.Self, open, a.opts.MaxTasks)
	}
	return nil
}

// rejectedBefore is the reason that the giver of a task gets where a crash lost
// the one that it was rejected for.
const rejectedBefore = "it was rejected before a restart"

// rejectedBefore reports whether a crash kept the rejection of r from being noted.
func (a *Agent) rejectedBefore(r TaskRecord) bool {
	return r.State == mailbox.Accepted && a.opts.Seen.Seen(rejectedKey(r))
}

// noteRejection is called before the giver gets the answer, with rejectedKey or rejectedItem.
func (a *Agent) noteRejection(r TaskRecord, key string) {
	a.remember(a.opts.Seen, r.MessageID, key)
	a.opts.Trace("rejecting")
}

// reject answers a task that the ledger does not keep.
func (a *Agent) reject(ctx context.Context, item mailbox.Item, e mailbox.Envelope, r TaskRecord,
	no *mailbox.Error) error {
	a.noteRejection(r, rejectedItem(item))
	why := string(no.Code) + ": " + no.Message
	code := mailbox.Part{Type: mailbox.PartData, Data: fmt.Appendf(nil, `{"code":%q}`, no.Code)}
	if err := a.answer(ctx, new(a.step(r, mailbox.Rejected, why, []mailbox.Part{code}))); err != nil {
		return err
	}
	a.opts.Trace("told")
	return a.finish(ctx, item, e, EventRefused, why, a.receipt(e))
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

// step is the envelope about r's state for the agent that gave it.
func (a *Agent) step(r TaskRecord, state mailbox.TaskState, text string, parts []mailbox.Part) mailbox.Envelope {
	e := mailbox.New(stepType(r.Type, state), a.opts.Self, r.Peer, time.Now())
	e.Task = &mailbox.Task{ID: r.ID, State: state, Deadline: r.Deadline}
	e.Callback, e.ReplyTo = r.Callback, r.MessageID
	e.Metadata = mailbox.Metadata{CorrelationID: r.MessageID, RequiresAck: true, TTL: new(int(stepLife / time.Second))}
	e.Content.Parts = []mailbox.Part{}
	if text != "" {
		e.Content.Parts = append(e.Content.Parts, mailbox.TextPart(text))
	}
	e.Content.Parts = append(e.Content.Parts, parts...)
	return e
}

// stepFor is a step as the mailbox of who gave the task gets it. One of another program hands
// all its mail to its model: it gets no step without content (nil), and each other one
// with a text.
func (a *Agent) stepFor(ctx context.Context, e mailbox.Envelope) *mailbox.Envelope {
	card, ok := a.cards.get(ctx, e.To)
	if ok && card.Protocol == "" && strings.TrimSpace(e.Text()) == "" {
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

// UpdateTask moves a task that this agent took, and sends that to who gave it. The news
// is safe before the step is noted: after a crash in between it is sent again.
func (a *Agent) UpdateTask(ctx context.Context, u TaskUpdate) (TaskRecord, error) {
	return a.update(ctx, u, "")
}

// update is UpdateTask with an id for the news; "": a new one.
func (a *Agent) update(ctx context.Context, u TaskUpdate, id string) (TaskRecord, error) {
	a.moving.Lock()
	defer a.moving.Unlock()
	r, err := a.taken(u.TaskID, u.From)
	if err != nil {
		return TaskRecord{}, err
	}
	e := a.step(r, u.State, u.Text, u.Parts)
	e.ID = cmp.Or(id, e.ID)
	hasContent := len(u.Text)+len(u.Parts) > 0
	switch {
	case r.State != u.State || u.State == mailbox.Working || r.Overdue && hasContent:
	case r.State.Ended() && hasContent && !a.repeatsEnd(r, e):
		return TaskRecord{}, mailbox.Invalid("state", "the task is %s already, and how it ended was sent: what you add, "+
			"send as a message to %s", r.State, r.Peer)
	default:
		return r, nil // a repeat
	}
	if _, err = r.takes(u.State, time.Now()); err != nil {
		return TaskRecord{}, err
	}
	step := a.stepFor(ctx, e)
	m, err := a.opts.Signing.Seal(*cmp.Or(step, &e))
	if err != nil {
		return TaskRecord{}, err
	}
	if u.State == mailbox.Rejected {
		a.noteRejection(r, rejectedKey(r))
	}
	if step != nil {
		if err := a.dispatch(ctx, m); err != nil {
			return TaskRecord{}, err
		}
	}
	a.opts.Trace("told")
	sent, ended := sentEndKeys(e)
	a.remember(a.opts.Seen, e.ID, sent, ended)
	r, _, err = a.ledger.Move(Received, r.Peer, r.ID, u.State, endText(e), time.Now())
	a.Announce()
	if r.State.Ended() {
		a.queue.reopen(r.Peer, r.MessageID)
	}
	return r, err
}

// repeatsEnd reports whether e repeats what this agent sent when it ended r. Where that was not
// known any more, since the keys are evicted, the task's record decides: it has texts of at most
// maxTaskText bytes whole.
func (a *Agent) repeatsEnd(r TaskRecord, e mailbox.Envelope) bool {
	sent, ended := sentEndKeys(e)
	if a.opts.Seen.Seen(sent) || a.opts.Seen.Seen(ended) {
		return a.opts.Seen.Seen(sent)
	}
	other := func(p mailbox.Part) bool { return p.Type != mailbox.PartText }
	return !slices.ContainsFunc(e.Content.Parts, other) && cutText(endText(e)) == cmp.Or(r.Result, r.Reason)
}

// taken finds a task that this agent took.
func (a *Agent) taken(id string, from mailbox.AgentID) (TaskRecord, error) {
	candidates := a.ledger.Open()
	if id != "" {
		candidates = a.ledger.Find(id)
	}
	candidates = slices.DeleteFunc(candidates, func(r TaskRecord) bool {
		return r.Direction != Received || from != "" && r.Peer != from
	})
	switch {
	case len(candidates) == 1:
		return candidates[0], nil
	case len(candidates) > 1 && id == "":
		return TaskRecord{}, mailbox.Invalid("task_id", "%d tasks are open; name one", len(candidates))
	case len(candidates) > 1:
		return TaskRecord{}, mailbox.Invalid("from", "several agents gave a task of this id; name one")
	case id == "":
		return TaskRecord{}, mailbox.Refused(mailbox.TaskNotFound, "task_id", "no task is open")
	}
	return TaskRecord{}, mailbox.Refused(mailbox.TaskNotFound, "task_id", "%s has taken no task %q", a.opts.Self, id)
}

// metaNotice marks, in the metadata of a result or a nack, that this side made it:
// the deadline passed, or the task or message could not be delivered.
const metaNotice = "notice"

// takeStep notes what another agent reports of a task that it was given. The bot
// gets it where it ends the task or has content; that the task
// was accepted must not wake it.
func (a *Agent) takeStep(ctx context.Context, item mailbox.Item, e mailbox.Envelope) error {
	r, ok := a.ledger.Get(Given, e.From, taskID(e))
	if !ok {
		return a.refuse(ctx, item, e, mailbox.Refused(mailbox.TaskNotFound, "task.id", "%s gave %s no such task",
			a.opts.Self, e.From))
	}
	notice := e.Metadata.Extra[metaNotice] != nil && e.ID == noticeID(a.opts.Self, r)
	overdue := e.Metadata.Extra[metaOverdue] != nil && e.Task.State == mailbox.Failed
	if !notice && !overdue && e.Task.State != "" { // else it is noted already, or by our own clock
		now, _, err := a.ledger.Move(Given, e.From, r.ID, e.Task.State, endText(e), time.Now())
		if no, ok := errors.AsType[*mailbox.Error](err); ok {
			return a.refuse(ctx, item, e, no)
		} else if err != nil {
			return err
		}
		r = now
	}
	a.opts.Trace("noted")
	if !notice {
		a.out.Acked(r.MessageID, e.From) // who reports of a task has received it
	}
	if silent(e) || overdue || a.overtaken(r, e) || a.opts.Seen.Seen(stepKey(e)) {
		return a.finish(ctx, item, e, EventControl, "", a.receipt(e))
	}
	if err := a.answer(ctx, a.receipt(e)); err != nil {
		return err
	}
	return a.enqueue(item, e)
}

// overtaken reports whether a step has nothing that the bot still needs: the
// task ended otherwise, or the bot was given its end. Progress that was noted
// and not delivered yet, as before a crash, is needed.
func (a *Agent) overtaken(r TaskRecord, e mailbox.Envelope) bool {
	if e.Task.State == "" || r.State == e.Task.State {
		return false
	}
	return e.Task.State.Ended() || a.opts.Seen.Seen(endKey(r.Peer, r.ID, r.State))
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
	about, _ := a.ledger.Get(Given, e.From, taskID(e))
	wanted := cmp.Or(e.Callback, about.Callback)
	if wanted == nil || wanted.Chat() == "" || wanted.Channel == "mailbox" {
		return nil
	}
	named := func(r *TaskRecord) bool {
		c := r.Callback
		return r.Direction == Given && r.Peer == e.From && c != nil && c.Channel == wanted.Channel &&
			c.Chat() == wanted.Chat()
	}
	if !named(&about) {
		about = a.ledger.Newest(named)
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

// died gives the bot notice of a task that could not be delivered, and of a message
// that expired.
func (a *Agent) died(d DeadLetter) {
	e := d.Envelope
	a.observe(EventDead, e, string(d.Code))
	ctx, cancel := context.WithTimeout(context.Background(), retryMax)
	defer cancel()
	switch {
	case e.Type.GivesTask():
		a.opts.Trace("dead")
		a.failTask(ctx, d)
	case (d.Expired || d.Code == mailbox.BadSignature || !e.Metadata.RequiresAck) && !e.Type.Control():
		if err := a.send(ctx, expiryNotice(d)); err != nil {
			a.log.Error("the bot is not told of an undelivered message; it is among the dead letters",
				"message_id", d.ID, "err", err)
		}
	}
}

// expiryNotice is for the bot, whose message was not taken: a nack in the
// name of its receiver.
func expiryNotice(d DeadLetter) mailbox.Envelope {
	says := fmt.Sprintf("%s did not take your message %s: %s. It is among the dead letters", d.Envelope.To, d.ID, d.Reason)
	if d.Code == mailbox.BadSignature {
		says += "; send it again."
	} else {
		says += ", from which it can be sent again."
	}
	e := mailbox.NackFor(d.Envelope, d.Envelope.To, time.Now(), d.Code, d.Reason)
	e.Content.Parts = slices.Insert(e.Content.Parts, 0, mailbox.TextPart(says))
	e.Metadata.TTL = new(0)
	e.Metadata.Extra = map[string]json.RawMessage{metaNotice: json.RawMessage("true")}
	return e
}

// isExpiryNotice reports whether e is one that this side made.
func (a *Agent) isExpiryNotice(e mailbox.Envelope) bool {
	return e.Type == mailbox.TypeNack && e.Metadata.Extra[metaNotice] != nil && a.out.IsDead(mailbox.Original(e), e.From)
}

// failTask ends the task of a dead letter that waits to be taken. Should it arrive
// after all, its result still counts.
func (a *Agent) failTask(ctx context.Context, d DeadLetter) {
	r, ok := a.ledger.Get(Given, d.Envelope.To, taskID(d.Envelope))
	if !ok || r.State != mailbox.Pending {
		return
	}
	r, err := a.ledger.FailPending(r.Peer, r.ID, fmt.Sprintf("%s: %s", d.Code, d.Reason), time.Now())
	if err != nil {
		a.log.Error("a failed task cannot be stored", "task_id", r.ID, "err", err)
		return
	}
	if r.Overdue { // else it has gone on in between
		a.notify(ctx, r)
	}
}

// noticeID is the id of the notice that r, which is overdue, has failed.
// Made twice, it is the same.
func noticeID(self mailbox.AgentID, r TaskRecord) string {
	sum := sha256.Sum256([]byte(string(r.Peer) + "\x00" + r.ID))
	return fmt.Sprintf("msg_%d_%s_%s", r.UpdatedAt.UnixMilli(), self, hex.EncodeToString(sum[:6]))
}

// notify gives the bot notice that a task it gave has ended without word from the other
// side. It takes the path of all results, so that it is not lost either.
func (a *Agent) notify(ctx context.Context, r TaskRecord) {
	e := a.step(r, r.State, fmt.Sprintf("%s did not finish the task: %s", r.Peer, r.Reason), nil)
	e.ID, e.From, e.To, e.Trace = noticeID(a.opts.Self, r), r.Peer, a.opts.Self, []mailbox.AgentID{r.Peer}
	e.Metadata = mailbox.Metadata{CorrelationID: r.MessageID, TTL: new(0),
		Extra: map[string]json.RawMessage{metaNotice: json.RawMessage("true")}}
	if err := a.send(ctx, e); err != nil {
		a.log.Error("the bot is told only after a restart that a task failed", "task_id", r.ID, "err", err)
	}
}

// resume sends the answers and notices that a crash prevented.
func (a *Agent) resume(ctx context.Context) {
	for _, r := range a.ledger.List() {
		if r.Direction == Received && a.rejectedBefore(r) {
			if _, err := a.UpdateTask(ctx, TaskUpdate{TaskID: r.ID, From: r.Peer, State: mailbox.Rejected,
				Text: rejectedBefore}); err != nil {
				a.log.Error("a task that was rejected before a restart is still open", "task_id", r.ID, "err", err)
			}
		}
		if r.Direction == Given && r.Overdue && !a.opts.Seen.Seen(endKey(r.Peer, r.ID, r.State)) {
			a.notify(ctx, r)
		}
	}
	dead, err := a.out.DeadLetters()
	if err != nil {
		a.log.Warn("dead letters cannot be read", "err", err)
	}
	for _, d := range dead {
		if d.Envelope.Type.GivesTask() {
			a.failTask(ctx, d)
		}
	}
}

// taskOf finds the task that a message of this agent gave.
func (a *Agent) taskOf(message string) TaskRecord {
	return a.ledger.Newest(func(r *TaskRecord) bool { return r.Direction == Given && r.MessageID == message })
}

// Tasks returns the tasks taken and given, the newest first.
func (a *Agent) Tasks() []TaskRecord { return a.ledger.List() }

// Task returns the tasks of that id: it may be given by several, and taken and given.
func (a *Agent) Task(id string) []TaskRecord { return a.ledger.Find(id) }

// watchDeadlines ends what has run out of time, on both sides: who crashed in a
// task sends nothing.
func (a *Agent) watchDeadlines(ctx context.Context) error {
	for {
		if err := a.ledger.files.Ready(ctx); err != nil {
			return err
		}
		due, failed := a.ledger.Expire(time.Now())
		for _, r := range due {
			if r.Direction == Given {
				a.notify(ctx, r)
				continue
			}
			a.Announce()
			a.queue.reopen(r.Peer, r.MessageID)
			e := a.step(r, mailbox.Failed, r.Reason, nil)
			e.Metadata.Extra = map[string]json.RawMessage{metaOverdue: json.RawMessage("true")}
			if err := a.send(ctx, e); err != nil {
				a.log.Warn("the notice of a passed deadline was not sent; the other agent has its own clock",
					"task_id", r.ID, "err", err)
			}
		}
		if failed != nil {
			return failed
		}
	}
}

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"feishu-relay/internal/runes"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	keepEnded   = 7 * 24 * time.Hour // how long a task is kept after its end
	maxEnded    = 1000               // ended tasks kept; beyond it the one that ended first is removed
	maxOpen     = 10_000             // tasks that have not ended, taken and given together; then Add refuses
	maxSilence  = 24 * time.Hour     // for which nothing may be heard of a task without a deadline
	maxTaskFile = 256 << 10          // bytes of a file
)

// ledger is the tasks of one agent, in memory and in a folder, which is the
// ledger's own: one file a task. Its methods are safe for concurrent use. The
// Trace and Callback of a record that it returns are not to be changed.
type ledger struct {
	files *spool.Spool[TaskRecord] // a task is due when it expires, an ended one when it is removed

	mu      sync.Mutex
	records map[string]TaskRecord // by name; guarded by mu
	ended   int                   // of records; guarded by mu
}

// taskName is the name of a task's file, without suffix: ids are their givers', so two may
// give the same one. The peer and the id are made one name, so that no two tasks share it
// ("/" is in no agent's id).
func taskName(dir Direction, peer mailbox.AgentID, id string) string {
	return string(dir) + "_" + safefile.Name(string(peer)+"/"+id)
}

func (r *TaskRecord) name() string { return taskName(r.Direction, r.Peer, r.ID) }

func taskFileOptions(log *slog.Logger) spool.Options {
	return spool.Options{Suffix: ".json", MaxFile: maxTaskFile, Logger: log}
}

// openLedger opens the ledger in folder root, with what an earlier process left in
// it. A file that holds no task is quarantined.
func openLedger(root *os.Root, log *slog.Logger) (*ledger, error) {
	l := &ledger{records: map[string]TaskRecord{}, files: spool.New[TaskRecord](root, taskFileOptions(log))}
	err := l.files.Load(func(name string, r TaskRecord) error {
		r, err := tidyTask(r)
		if err == nil && r.name() != name {
			err = errors.New("its name is not that of its task")
		}
		if err == nil {
			l.enter(r)
		}
		if err == nil && !r.open() && time.Since(r.UpdatedAt) > keepEnded {
			l.remove(name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open tasks %s: %w", root.Name(), err)
	}
	l.prune()
	return l, nil
}

// Add writes a task down; what is missing of State, CreatedAt and UpdatedAt is
// filled in, and a long text is cut. Where the task is known already (the same
// direction, peer and id), that one is returned and nothing changes. Too many
// open tasks are refused with AGENT_BUSY.
func (l *ledger) Add(r TaskRecord) (rec TaskRecord, added bool, err error) {
	now := time.Now()
	r.State = cmp.Or(r.State, mailbox.Pending)
	r.CreatedAt = cmp.Or(r.CreatedAt, now)
	r.UpdatedAt = cmp.Or(r.UpdatedAt, r.CreatedAt)
	r, err = tidyTask(r)
	if err != nil {
		return TaskRecord{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.records[r.name()]; ok {
		return known, false, nil
	}
	if open := len(l.records) - l.ended; open >= maxOpen && r.open() {
		return TaskRecord{}, false, mailbox.Refused(mailbox.AgentBusy, "",
			"%d tasks are open, which is the most: try again when some have ended", open)
	}
	return r, true, l.save(r)
}

// Get returns one task.
func (l *ledger) Get(dir Direction, peer mailbox.AgentID, id string) (TaskRecord, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[taskName(dir, peer, id)]
	return r, ok
}

// Find returns the tasks of that id, the newest first: several agents may have
// given it, and it may have been taken and given on.
func (l *ledger) Find(id string) []TaskRecord {
	return l.list(func(r *TaskRecord) bool { return r.ID == id })
}

// List returns all tasks, the newest first.
func (l *ledger) List() []TaskRecord {
	return l.list(func(*TaskRecord) bool { return true })
}

// Open returns the tasks that this agent took and has not ended, the newest first.
func (l *ledger) Open() []TaskRecord {
	return l.list(func(r *TaskRecord) bool {
		return r.Direction == Received && (r.State == mailbox.Accepted || r.State == mailbox.Working)
	})
}

// Newest returns the newest task that want picks; the zero record: none.
func (l *ledger) Newest(want func(*TaskRecord) bool) (newest TaskRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if want(&r) && (newest.ID == "" || byAge(r, newest) < 0) {
			newest = r
		}
	}
	return newest
}

// byAge orders tasks, the newest first.
func byAge(x, y TaskRecord) int {
	return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID), cmp.Compare(x.Peer, y.Peer),
		cmp.Compare(x.Direction, y.Direction))
}

func (l *ledger) list(want func(*TaskRecord) bool) []TaskRecord {
	all := []TaskRecord{}
	l.mu.Lock()
	for _, r := range l.records {
		if want(&r) {
			all = append(all, r)
		}
	}
	l.mu.Unlock()
	slices.SortFunc(all, byAge)
	return all
}

// Move takes a task to another state, and reports whether that changed
// anything. What it changed is on disk when it returns. The text is the result of a
// completed task, else the reason.
//
// A task taken follows [checkStep]. Of a task given, the other agent's word is
// believed as far as it goes on, also when updates in between are missing;
// one that comes late ("accepted" after "completed") changes nothing. In
// either, the state that a task ended in may be repeated, and one that is
// Overdue may still become completed or failed, once: a late result is better
// than a lost one. One that was given up before its deadline goes on when the
// other agent accepts it or works on it.
//
// Errors are [*mailbox.Error]: TASK_NOT_FOUND, or what checkStep says.
func (l *ledger) Move(dir Direction, peer mailbox.AgentID, id string, to mailbox.TaskState, text string,
	now time.Time) (rec TaskRecord, changed bool, err error) {
	return l.change(dir, peer, id, now, func(r *TaskRecord) (bool, error) {
		changes, err := r.takes(to, now)
		r.State, r.Reason, r.Result, r.Overdue = to, text, "", false
		if to == mailbox.Completed {
			r.Reason, r.Result = "", text
		}
		return changes, err
	})
}

// FailPending ends a task that this agent gave and that could not be delivered. It
// becomes failed and Overdue: should it arrive after all, its result still
// counts. A task that has gone on or ended stays as it is.
func (l *ledger) FailPending(peer mailbox.AgentID, id, reason string, now time.Time) (TaskRecord, error) {
	r, _, err := l.change(Given, peer, id, now, func(r *TaskRecord) (bool, error) {
		changes := r.State == mailbox.Pending
		r.State, r.Reason, r.Overdue = mailbox.Failed, reason, true
		return changes, nil
	})
	return r, err
}

// change keeps what f makes of a task, where f reports that it changes anything.
func (l *ledger) change(dir Direction, peer mailbox.AgentID, id string, now time.Time,
	f func(*TaskRecord) (changes bool, err error)) (rec TaskRecord, changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, ok := l.records[taskName(dir, peer, id)]
	if !ok {
		relation := map[Direction]string{Given: "given to", Received: "from"}[dir]
		return TaskRecord{}, false, mailbox.Refused(mailbox.TaskNotFound, "task.id", "there is no task %.200q %s %.64q",
			id, relation, peer)
	}
	r := was
	if changes, err := f(&r); err != nil || !changes {
		return was, false, err
	}
	r.UpdatedAt = now
	r, _ = tidyTask(r)
	if err := l.save(r); err != nil {
		return was, false, err
	}
	return r, true, nil
}

// Forget removes a task that this agent meant to give, and that could not be
// sent: its id is free again. With an error, its file stays, and the task is still known.
func (l *ledger) Forget(peer mailbox.AgentID, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := taskName(Given, peer, id)
	if l.records[name].State != mailbox.Pending {
		return nil
	}
	if err := l.files.Delete(name); err != nil {
		return fmt.Errorf("remove task %.200q, which was not sent: %w", id, err)
	}
	l.forget(name)
	return nil
}

// Expire ends the tasks that are due: the deadline has passed, or nothing was
// heard for maxSilence where there is no deadline. They become failed and Overdue,
// and are returned, the one due first first. One that could not be written
// down stays as it is, and the error says so. Tasks that ended long ago are removed.
func (l *ledger) Expire(now time.Time) (expired []TaskRecord, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.files.Due(now) {
		r := l.records[name]
		if !r.open() {
			l.remove(name)
			continue
		}
		reason := fmt.Sprintf("no news for %s", maxSilence)
		if !r.Deadline.IsZero() {
			reason = fmt.Sprintf("the deadline %s passed", r.Deadline.Format(time.RFC3339))
		}
		r.Reason = reason + "; it was " + string(r.State)
		r.State, r.Overdue, r.UpdatedAt = mailbox.Failed, true, now
		r, _ = tidyTask(r)
		if e := l.write(r); e != nil {
			err = errors.Join(err, e)
			l.files.Schedule(name, now)
			continue
		}
		expired = append(expired, r)
	}
	l.prune() // once, and not while names that are due are left
	return expired, err
}

// save is write, and makes room where too many have ended. l.mu is held.
func (l *ledger) save(r TaskRecord) error {
	defer l.prune()
	return l.write(r)
}

// write writes r down, then knows it. l.mu is held.
func (l *ledger) write(r TaskRecord) error {
	err := l.files.Save(r.name(), r)
	switch {
	case errors.Is(err, spool.ErrLarge):
		return mailbox.Invalid("task", "too much is to be kept of it: %v", err)
	case err != nil:
		return fmt.Errorf("write down task %.200q: %w", r.ID, err)
	}
	l.enter(r)
	return nil
}

// enter adds a record that is on disk. l.mu is held, here and below, or nobody else
// knows l.
func (l *ledger) enter(r TaskRecord) {
	due := cmp.Or(r.Deadline, r.UpdatedAt.Add(maxSilence))
	l.forget(r.name())
	if !r.open() {
		due = r.UpdatedAt.Add(keepEnded)
		l.ended++
	}
	l.records[r.name()] = r
	l.files.Schedule(r.name(), due)
}

// prune removes the tasks that ended first where too many have; Expire removes those that ended long ago.
func (l *ledger) prune() {
	for l.ended > maxEnded {
		var first TaskRecord
		for _, r := range l.records {
			if !r.open() && (first.ID == "" || r.UpdatedAt.Before(first.UpdatedAt)) {
				first = r
			}
		}
		l.remove(first.name())
	}
}

func (l *ledger) remove(name string) {
	l.forget(name)
	l.files.Remove(name)
}

// forget drops a task from memory, if it is there.
func (l *ledger) forget(name string) {
	if r, ok := l.records[name]; ok && !r.open() {
		l.ended--
	}
	delete(l.records, name)
}

// Direction is whether the agent took a task or gave it.
type Direction string

// The directions.
const (
	Received Direction = "received"
	Given    Direction = "sent"
)

// TaskRecord is what is known of a task.
type TaskRecord struct {
	ID        string            `json:"id"`
	Direction Direction         `json:"direction"`
	Peer      mailbox.AgentID   `json:"peer"` // who gave it, or who was given it
	State     mailbox.TaskState `json:"state"`
	Deadline  time.Time         `json:"deadline,omitzero"`
	Overdue   bool              `json:"overdue,omitempty"` // failed because the deadline passed, or for silence
	Text      string            `json:"text,omitempty"`    // what is to be done, cut
	Reason    string            `json:"reason,omitempty"`  // of the last step: why rejected or failed
	Result    string            `json:"result,omitempty"`  // of a completed task, cut
	Type      mailbox.Type      `json:"type,omitempty"`    // of the envelope that gave it: task or task_assign
	MessageID string            `json:"message_id"`        // of the envelope that gave it
	Callback  *mailbox.Callback `json:"callback,omitempty"`
	Hops      int               `json:"ttl"`   // of that envelope: forwardings left
	Trace     []mailbox.AgentID `json:"trace"` // of that envelope
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// maxTaskText is the most bytes of a text, reason or result; the rest is cut off.
const maxTaskText = 4 << 10

// tidyTask brings r into the form in which it is kept, so that what is written is what is read,
// and returns why it cannot be kept.
func tidyTask(r TaskRecord) (TaskRecord, error) {
	r.Text, r.Reason, r.Result = cutText(r.Text), cutText(r.Reason), cutText(r.Result)
	r.Trace = append([]mailbox.AgentID{}, r.Trace...)
	if r.Callback != nil {
		r.Callback = new(*r.Callback)
	}
	for _, t := range []*time.Time{&r.Deadline, &r.CreatedAt, &r.UpdatedAt} {
		if *t = t.Round(0).UTC(); t.Year() < 0 || t.Year() > 9999 {
			return r, mailbox.Invalid("task.deadline", "the year %d is out of range", t.Year())
		}
	}
	peer, _ := errors.AsType[*mailbox.Error](mailbox.CheckAgent(r.Peer))
	switch {
	case r.Direction != Received && r.Direction != Given:
		return r, mailbox.Invalid("direction", "want %s or %s", Received, Given)
	case peer != nil:
		return r, mailbox.Invalid("peer", "%s", peer.Message)
	case !r.State.Known():
		return r, mailbox.Invalid("task.state", "want one of %s", joinStates(taskStates, ", "))
	case r.ID == "":
		return r, mailbox.Invalid("task.id", "required")
	}
	for field, id := range map[string]string{"task.id": r.ID, "id": r.MessageID} {
		if len(id) > mailbox.MaxID || !utf8.ValidString(id) {
			return r, mailbox.Invalid(field, "want UTF-8, at most %d bytes", mailbox.MaxID)
		}
	}
	return r, nil
}

func cutText(text string) string {
	const mark = "…"
	if text = strings.ToValidUTF8(text, "\uFFFD"); len(text) > maxTaskText {
		text = runes.Cut(text, maxTaskText-len(mark)) + mark
	}
	return text
}

// open reports whether r has not ended.
func (r *TaskRecord) open() bool { return !r.State.Ended() }

var taskStates = mailbox.TaskStates()

// nextStates is which states may follow one. Working follows itself: that is
// progress. An agent that ends what it had only accepted has worked in between,
// and need not have said so.
var nextStates = map[mailbox.TaskState][]mailbox.TaskState{
	mailbox.Pending:  {mailbox.Accepted, mailbox.Rejected},
	mailbox.Accepted: {mailbox.Working, mailbox.Rejected, mailbox.Completed, mailbox.Failed},
	mailbox.Working:  {mailbox.Working, mailbox.Completed, mailbox.Failed},
}

// checkStep reports why a task cannot go from one state to another (docs/mailbox.md, Rules), as a
// [*mailbox.Error] about the field "state". It knows nothing of tasks that are
// overdue: see [ledger.Move].
func checkStep(from, to mailbox.TaskState) error {
	for _, state := range []mailbox.TaskState{from, to} {
		if !state.Known() {
			return mailbox.Invalid("state", "there is no state %.40q: want one of %s", state, joinStates(taskStates, ", "))
		}
	}
	switch {
	case slices.Contains(nextStates[from], to):
		return nil
	case from.Ended():
		return mailbox.Invalid("state", "the task is %s, which is its end: it cannot become %s", from, to)
	}
	return mailbox.Invalid("state", "the task is %s and cannot become %s: want %s", from, to,
		joinStates(nextStates[from], " or "))
}

func joinStates(states []mailbox.TaskState, between string) string {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	return strings.Join(names, between)
}

// takes reports whether going to a state changes r, and why it is refused.
func (r *TaskRecord) takes(to mailbox.TaskState, now time.Time) (bool, error) {
	err := checkStep(r.State, to)
	silent := r.Direction == Given && r.Overdue && (r.Deadline.IsZero() || now.Before(r.Deadline))
	switch {
	case silent && (to == mailbox.Accepted || to == mailbox.Working):
		return true, nil
	case err == nil, r.Overdue && (to == mailbox.Completed || to == mailbox.Failed):
		return true, nil
	case r.State == to && to.Ended():
		return false, nil
	case r.Direction == Given && to.Known(): // ahead: nearer to the task's end
		return !r.State.Ended() && slices.Index(taskStates, to) > slices.Index(taskStates, r.State), nil
	}
	return false, err
}

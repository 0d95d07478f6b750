package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	keepEnded = 7 * 24 * time.Hour // how long a task is kept after its end
	maxEnded  = 1000               // ended tasks kept; beyond it the one that ended first is removed
	maxFile   = 256 << 10          // bytes of a file

	// DefaultSilence is the usual Options.Silence.
	DefaultSilence = 24 * time.Hour
)

// Options of a ledger. The zero value of each field is usable.
type Options struct {
	Logger  *slog.Logger  // nil: discard
	Silence time.Duration // a task without a deadline is due when it took no step for this long; 0: DefaultSilence
	Max     int           // tasks that have not ended, taken and given together; then Add refuses; 0: 10,000
}

// Ledger is the tasks of one agent, in memory and in a folder, which is the
// ledger's own: one file a task. Its methods are safe for concurrent use. The
// Trace and Callback of a record that it returns are not to be changed.
type Ledger struct {
	opts  Options
	files *spool.Spool[Record] // a task is due when it expires, an ended one when it is removed

	mu      sync.Mutex
	records map[string]Record // by name; guarded by mu
}

// name is the name of a task's file, without suffix: ids are their givers', so two may
// give the same one. The peer and the id are made one name, so that no two tasks share it
// ("/" is in no agent's id).
func name(dir Direction, peer mailbox.AgentID, id string) string {
	return string(dir) + "_" + safefile.Name(string(peer)+"/"+id)
}

func (r *Record) name() string { return name(r.Direction, r.Peer, r.ID) }

func fileOptions(log *slog.Logger) spool.Options {
	return spool.Options{Suffix: ".json", Version: 1, MaxFile: maxFile, Logger: log}
}

// Open opens the ledger in folder root, with what an earlier process left in
// it. A file that holds no task is quarantined.
func Open(root *os.Root, opts Options) (*Ledger, error) {
	opts.Silence = cmp.Or(opts.Silence, DefaultSilence)
	opts.Max = cmp.Or(opts.Max, 10_000)
	l := &Ledger{opts: opts, files: spool.New[Record](root, fileOptions(opts.Logger)), records: map[string]Record{}}
	err := l.files.Load(func(name string, r Record) error {
		r, err := tidy(r)
		if err == nil && r.name() != name {
			err = errors.New("its name is not that of its task")
		}
		if err == nil {
			l.enter(r)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open tasks %s: %w", root.Name(), err)
	}
	l.prune(time.Now())
	return l, nil
}

// Add writes a task down; what is missing of State, CreatedAt and UpdatedAt is
// filled in, and a long text is cut. Where the task is known already (the same
// direction, peer and id), that one is returned and nothing changes. Too many
// open tasks are refused with AGENT_BUSY.
func (l *Ledger) Add(r Record) (rec Record, added bool, err error) {
	now := time.Now()
	r.State = cmp.Or(r.State, mailbox.Pending)
	r.CreatedAt = cmp.Or(r.CreatedAt, now)
	r.UpdatedAt = cmp.Or(r.UpdatedAt, r.CreatedAt)
	r, err = tidy(r)
	if err != nil {
		return Record{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.records[r.name()]; ok {
		return known, false, nil
	}
	if open := len(l.find((*Record).open)); open >= l.opts.Max && r.open() {
		return Record{}, false, mailbox.Refused(mailbox.AgentBusy, "",
			"%d tasks are open, which is the most: try again when some have ended", open)
	}
	if err := l.save(r, now); err != nil {
		return Record{}, false, err
	}
	return r, true, nil
}

// Get returns one task.
func (l *Ledger) Get(dir Direction, peer mailbox.AgentID, id string) (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[name(dir, peer, id)]
	return r, ok
}

// Find returns the tasks of that id, the newest first: several agents may have
// given it, and it may have been taken and given on.
func (l *Ledger) Find(id string) []Record {
	return l.list(func(r *Record) bool { return r.ID == id })
}

// List returns all tasks, the newest first.
func (l *Ledger) List() []Record {
	return l.list(func(*Record) bool { return true })
}

// Open returns the tasks that this agent took and has not ended, the newest first.
func (l *Ledger) Open() []Record {
	return l.list(func(r *Record) bool {
		return r.Direction == Received && (r.State == mailbox.Accepted || r.State == mailbox.Working)
	})
}

func (l *Ledger) list(want func(*Record) bool) []Record {
	l.mu.Lock()
	all := l.find(want)
	l.mu.Unlock()
	slices.SortFunc(all, func(x, y Record) int {
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID),
			cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Direction, y.Direction))
	})
	return all
}

// find returns tasks in no order. l.mu is held.
func (l *Ledger) find(want func(*Record) bool) []Record {
	all := make([]Record, 0, len(l.records))
	for _, r := range l.records {
		if want(&r) {
			all = append(all, r)
		}
	}
	return all
}

// Move takes a task to another state, and reports whether that changed
// anything. What it changed is on disk when it returns.
//
// A task taken follows [Step]. Of a task given, the other agent's word is
// believed as far as it goes on, also when updates in between are missing;
// one that comes late ("accepted" after "completed") changes nothing. In
// either, the state that a task ended in may be repeated, and one that is
// Overdue may still become completed or failed, once: a late result is better
// than a lost one. One that was given up before its deadline goes on when the
// other agent accepts it or works on it.
//
// Errors are [*mailbox.Error]: TASK_NOT_FOUND, or what Step says.
func (l *Ledger) Move(dir Direction, peer mailbox.AgentID, id string, to mailbox.TaskState, reason string,
	now time.Time) (rec Record, changed bool, err error) {
	return l.change(dir, peer, id, now, func(r *Record) (bool, error) {
		changes, err := r.Takes(to, now)
		r.State, r.Reason, r.Overdue = to, reason, false
		return changes, err
	})
}

// GiveUp ends a task that this agent gave and that could not be handed over. It
// becomes failed and Overdue: should it arrive after all, its result still
// counts. A task that has gone on or ended stays as it is.
func (l *Ledger) GiveUp(peer mailbox.AgentID, id, reason string, now time.Time) (Record, error) {
	r, _, err := l.change(Sent, peer, id, now, func(r *Record) (bool, error) {
		changes := r.State == mailbox.Pending
		r.State, r.Reason, r.Overdue = mailbox.Failed, reason, true
		return changes, nil
	})
	return r, err
}

// change keeps what f makes of a task, where f reports that it changes anything.
func (l *Ledger) change(dir Direction, peer mailbox.AgentID, id string, now time.Time,
	f func(*Record) (changes bool, err error)) (rec Record, changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, ok := l.records[name(dir, peer, id)]
	if !ok {
		relation := map[Direction]string{Sent: "given to", Received: "from"}[dir]
		return Record{}, false, mailbox.Refused(mailbox.TaskNotFound, "task.id", "there is no task %.200q %s %.64q",
			id, relation, peer)
	}
	r := was
	if changes, err := f(&r); err != nil || !changes {
		return was, false, err
	}
	r.UpdatedAt = now
	r, _ = tidy(r)
	if err := l.save(r, now); err != nil {
		return was, false, err
	}
	return r, true, nil
}

// Forget removes a task that this agent meant to give, and that could not be
// sent: its id is free again.
func (l *Ledger) Forget(peer mailbox.AgentID, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name := name(Sent, peer, id); l.records[name].State == mailbox.Pending {
		l.remove(name)
	}
}

// Expire ends the tasks that are due: the deadline has passed, or nothing was
// heard for Silence where there is no deadline. They become failed and Overdue,
// and are returned, the one due first first. One that could not be written
// down stays as it is, and the error says so. Tasks that ended long ago are removed.
func (l *Ledger) Expire(now time.Time) (expired []Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.files.Due(now) {
		r := l.records[name]
		if !r.open() {
			l.remove(name)
			continue
		}
		reason := fmt.Sprintf("no news for %s", l.opts.Silence)
		if !r.Deadline.IsZero() {
			reason = fmt.Sprintf("the deadline %s passed", r.Deadline.Format(time.RFC3339))
		}
		r.Reason = reason + "; it was " + string(r.State)
		r.State, r.Overdue, r.UpdatedAt = mailbox.Failed, true, now
		r, _ = tidy(r)
		if e := l.save(r, now); e != nil {
			err = errors.Join(err, e)
			l.files.Schedule(name, now)
			continue
		}
		expired = append(expired, r)
	}
	return expired, err
}

// NextDue returns when Expire has something to do; false: not before [Ledger.Changed].
func (l *Ledger) NextDue() (next time.Time, ok bool) { return l.files.Next() }

// Changed returns a channel that receives a value when NextDue may have become earlier.
func (l *Ledger) Changed() <-chan struct{} { return l.files.Changed() }

// save writes r down, then knows it. l.mu is held.
func (l *Ledger) save(r Record, now time.Time) error {
	err := l.files.Save(r.name(), r)
	switch {
	case errors.Is(err, spool.ErrLarge):
		return mailbox.Invalid("task", "too much is to be kept of it: %v", err)
	case err != nil:
		return fmt.Errorf("write down task %.200q: %w", r.ID, err)
	}
	l.enter(r)
	if !r.open() {
		l.prune(now)
	}
	return nil
}

// enter takes in a record that is on disk. l.mu is held, here and below, or nobody else
// knows l.
func (l *Ledger) enter(r Record) {
	l.records[r.name()] = r
	due := cmp.Or(r.Deadline, r.UpdatedAt.Add(l.opts.Silence))
	if !r.open() {
		due = r.UpdatedAt.Add(keepEnded)
	}
	l.files.Schedule(r.name(), due)
}

// prune removes ended tasks that are too old or too many.
func (l *Ledger) prune(now time.Time) {
	ended := l.find(func(r *Record) bool { return !r.open() })
	slices.SortFunc(ended, func(x, y Record) int { return x.UpdatedAt.Compare(y.UpdatedAt) })
	for i, r := range ended {
		if len(ended)-i <= maxEnded && now.Sub(r.UpdatedAt) <= keepEnded {
			return
		}
		l.remove(r.name())
	}
}

func (l *Ledger) remove(name string) {
	delete(l.records, name)
	l.files.Remove(name)
}

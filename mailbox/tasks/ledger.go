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

	"feishu-relay/mailbox"
)

// Bounds.
const (
	keepEnded = 7 * 24 * time.Hour // how long a task is kept after its end
	maxEnded  = 1000               // ended tasks kept; beyond it the one that ended first goes

	// DefaultSilence is the usual Options.Silence.
	DefaultSilence = 24 * time.Hour
)

// Options of a ledger. The zero value of each field is usable.
type Options struct {
	Logger  *slog.Logger  // nil: discard
	Silence time.Duration // a task without a deadline is due when it took no step for so long; 0: DefaultSilence
	Max     int           // tasks that have not ended, taken and given together; then Add refuses; 0: 10,000
}

// Ledger is the tasks of one agent, in memory and in a folder, which is the
// ledger's own: one file a task. Its methods are safe for concurrent use. The
// Trace and Callback of a record that it returns are not to be changed.
type Ledger struct {
	root    *os.Root
	opts    Options
	changed chan struct{}

	mu      sync.Mutex
	records map[key]Record // guarded by mu
	ended   []key          // those that have ended, the first one first; guarded by mu
}

// key names a task: ids are their givers', so two may give the same one.
type key struct {
	direction Direction
	peer      mailbox.AgentID
	id        string
}

func (r *Record) key() key { return key{r.Direction, r.Peer, r.ID} }

// Open opens the ledger in folder root, with what an earlier process left in
// it. A file that holds no task is renamed to *.broken, with a warning.
func Open(root *os.Root, opts Options) (*Ledger, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.Silence = cmp.Or(opts.Silence, DefaultSilence)
	opts.Max = cmp.Or(opts.Max, 10_000)
	l := &Ledger{root: root, opts: opts, changed: make(chan struct{}, 1), records: map[key]Record{}}
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("open tasks %s: %w", root.Name(), err)
	}
	for k, r := range l.records {
		if Terminal(r.State) {
			l.ended = append(l.ended, k)
		}
	}
	slices.SortFunc(l.ended, func(x, y key) int { return l.records[x].UpdatedAt.Compare(l.records[y].UpdatedAt) })
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
	if r.CreatedAt.IsZero() {
		r.CreatedAt = now
	}
	if r.UpdatedAt.IsZero() {
		r.UpdatedAt = r.CreatedAt
	}
	r = tidy(r)
	if err := check(r); err != nil {
		return Record{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.records[r.key()]; ok {
		return known, false, nil
	}
	if open := len(l.records) - len(l.ended); open >= l.opts.Max && !Terminal(r.State) {
		return Record{}, false, &mailbox.Error{Code: mailbox.AgentBusy,
			Message: fmt.Sprintf("%d tasks are open, which is the most: try again when some have ended", open)}
	}
	if err := l.put(r); err != nil {
		return Record{}, false, err
	}
	l.prune(now)
	return r, true, nil
}

// Get returns one task.
func (l *Ledger) Get(dir Direction, peer mailbox.AgentID, id string) (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[key{dir, peer, id}]
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
	all := make([]Record, 0, len(l.records))
	for _, r := range l.records {
		if want(&r) {
			all = append(all, r)
		}
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(x, y Record) int {
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID),
			cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Direction, y.Direction))
	})
	return all
}

// Move takes a task to another state, and reports whether that changed
// anything. What it changed is on disk when it returns.
//
// A task taken follows [Step]. Of a task given, the other agent's word is
// believed as far as it leads on, also when updates in between are missing;
// one that comes late ("accepted" after "completed") changes nothing. In
// either, the state that a task ended in may be told again, and one that is
// Overdue may still become completed or failed, once: a late result is better
// than a lost one. One that was given up before its deadline goes on when the
// other agent accepts it or works on it.
//
// Errors are [*mailbox.Error]: TASK_NOT_FOUND, or what Step says.
func (l *Ledger) Move(dir Direction, peer mailbox.AgentID, id string, to mailbox.TaskState, reason string,
	now time.Time) (rec Record, changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[key{dir, peer, id}]
	if !ok {
		return Record{}, false, notFound(dir, peer, id)
	}
	if changes, err := r.takes(to, now); !changes {
		return r, false, err
	}
	r.State, r.Reason, r.Overdue, r.UpdatedAt = to, reason, false, now
	r = tidy(r)
	if err := l.put(r); err != nil {
		return l.records[r.key()], false, err
	}
	l.prune(now)
	return r, true, nil
}

// takes reports whether going to a state changes r, and why it is refused.
func (r *Record) takes(to mailbox.TaskState, now time.Time) (bool, error) {
	err := Step(r.State, to)
	silent := r.Direction == Sent && r.Overdue && (r.Deadline.IsZero() || now.Before(r.Deadline))
	switch {
	case silent && (to == mailbox.Accepted || to == mailbox.Working):
		return true, nil
	case err == nil, r.Overdue && (to == mailbox.Completed || to == mailbox.Failed):
		return true, nil
	case r.State == to && Terminal(to):
		return false, nil
	case r.Direction == Sent && slices.Contains(states, to):
		return ahead(r.State, to), nil
	}
	return false, err
}

func notFound(dir Direction, peer mailbox.AgentID, id string) error {
	relation := "from"
	if dir == Sent {
		relation = "given to"
	}
	return &mailbox.Error{Code: mailbox.TaskNotFound, Field: "task.id",
		Message: fmt.Sprintf("there is no task %.200q %s %.64q", id, relation, peer)}
}

// Expire ends the tasks that are due: the deadline has passed, or nothing was
// heard for Silence where there is no deadline. They become failed and Overdue,
// and are returned, the one due first first. One that could not be written
// down stays as it is, and the error says so.
func (l *Ledger) Expire(now time.Time) (expired []Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []Record
	for _, r := range l.records {
		if !Terminal(r.State) && !now.Before(l.due(&r)) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(x, y Record) int {
		return cmp.Or(l.due(&x).Compare(l.due(&y)), cmp.Compare(x.ID, y.ID), cmp.Compare(x.Peer, y.Peer))
	})
	for _, r := range due {
		reason := fmt.Sprintf("no news for %s", l.opts.Silence)
		if !r.Deadline.IsZero() {
			reason = fmt.Sprintf("the deadline %s passed", r.Deadline.Format(time.RFC3339))
		}
		reason += "; it was " + string(r.State)
		r.State, r.Reason, r.Overdue, r.UpdatedAt = mailbox.Failed, reason, true, now
		r = tidy(r)
		if e := l.put(r); e != nil {
			err = errors.Join(err, e)
			continue
		}
		expired = append(expired, r)
	}
	l.prune(now)
	return expired, err
}

// NextDue tells when Expire has something to do; false: not before [Ledger.Changed].
func (l *Ledger) NextDue() (next time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if Terminal(r.State) {
			continue
		}
		if due := l.due(&r); !ok || due.Before(next) {
			next, ok = due, true
		}
	}
	return next, ok
}

func (l *Ledger) due(r *Record) time.Time {
	if !r.Deadline.IsZero() {
		return r.Deadline
	}
	return r.UpdatedAt.Add(l.opts.Silence)
}

// Changed returns a channel on which something comes after changes, however
// many: a hint for one reader to look at NextDue again.
func (l *Ledger) Changed() <-chan struct{} { return l.changed }

// put writes r down, then knows it. l.mu is held.
func (l *Ledger) put(r Record) error {
	if err := l.save(r); err != nil {
		return err
	}
	k := r.key()
	if was, ok := l.records[k]; ok && Terminal(was.State) {
		l.ended = slices.DeleteFunc(l.ended, func(e key) bool { return e == k }) // it ends once more, now
	}
	if Terminal(r.State) {
		l.ended = append(l.ended, k)
	}
	l.records[k] = r
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return nil
}

// prune forgets ended tasks that are too old or too many. l.mu is held, or
// nobody else knows l.
func (l *Ledger) prune(now time.Time) {
	for len(l.ended) > 0 {
		r := l.records[l.ended[0]]
		if len(l.ended) <= maxEnded && now.Sub(r.UpdatedAt) <= keepEnded {
			return
		}
		if err := l.root.Remove(r.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.opts.Logger.Warn("remove an old task", "file", r.file(), "err", err)
		}
		delete(l.records, l.ended[0])
		l.ended = l.ended[1:]
	}
}

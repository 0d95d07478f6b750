package outcome

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
)

const (
	pollEvery = 500 * time.Millisecond

	// maxAgents is how many agents' files are followed: those that were written
	// last when the following began. A further agent is followed when one of
	// these is gone.
	maxAgents = 64
	// startSize is how much is read of what stood there, of all agents together;
	// each has an equal part, and of its part the newest. These are more lines
	// than an index holds outcomes.
	startSize = 8 << 20
)

// Follow reads the files of all agents, twice a second.
func (f *Files) Follow(ctx context.Context, take func(line []byte), caughtUp func(whole bool)) error {
	r := &filesReader{store: f, take: take, agents: map[string]*trail{}, whole: true}
	defer r.close()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for caught := false; ; {
		seen, err := r.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.report(err)
		if seen && !caught {
			caught = true
			caughtUp(r.whole)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// filesReader is one run of Follow.
type filesReader struct {
	store  *Files
	take   func([]byte)
	agents map[string]*trail // by the name of the file, without its end
	begun  bool              // the folder was seen
	whole  bool              // all that was ever added has been handed over
	failed bool              // said so already
}

// pass reads what is new in all files, and reports whether it saw the folder.
func (r *filesReader) pass(ctx context.Context) (seen bool, err error) {
	root, err := r.store.folder.Open(false)
	if errors.Is(err, fs.ErrNotExist) {
		r.begun = true
		return true, nil // nobody has shared anything
	}
	if err != nil {
		return false, err
	}
	if err := r.list(root); err != nil {
		return false, err
	}
	var wrong error
	for _, name := range slices.Sorted(maps.Keys(r.agents)) {
		t := r.agents[name]
		err := t.step(ctx, root, r.take)
		r.whole = r.whole && err == nil && !t.passed
		wrong = cmp.Or(wrong, err)
	}
	return true, wrong
}

// list begins to follow the agents that are new, and leaves those that are gone.
func (r *filesReader) list(root *os.Root) error {
	names, err := safefile.Names(root)
	if err != nil {
		return err
	}
	there := map[string]int64{} // agents, and when each was last written
	for _, file := range names {
		name, ok := strings.CutSuffix(file, olderEnd)
		if ok {
			r.whole = false // or it was not rotated before, which nobody can tell
		} else if name, ok = strings.CutSuffix(file, fileEnd); !ok {
			continue
		}
		info, err := root.Lstat(file)
		if err == nil && info.Mode().IsRegular() {
			there[name] = max(there[name], info.ModTime().UnixNano())
		}
	}
	maps.DeleteFunc(r.agents, func(name string, t *trail) bool {
		_, ok := there[name]
		if !ok {
			t.close()
		}
		return !ok
	})
	fresh := slices.SortedFunc(maps.Keys(there), func(a, b string) int { return cmp.Compare(there[b], there[a]) })
	fresh = slices.DeleteFunc(fresh, func(name string) bool { return r.agents[name] != nil })
	if room := maxAgents - len(r.agents); len(fresh) > room {
		r.whole = false
		fresh = fresh[:room]
	}
	for _, name := range fresh {
		t := &trail{name: name}
		if !r.begun {
			t.part = r.store.start / int64(len(fresh))
		}
		r.agents[name] = t
	}
	r.begun = true
	return nil
}

// report logs a fault once.
func (r *filesReader) report(err error) {
	if err != nil && !r.failed {
		r.store.log.Warn("outcomes of others cannot be read; trying again", "err", err)
	}
	r.failed = err != nil
}

func (r *filesReader) close() {
	for _, t := range r.agents {
		t.close()
	}
}

// trail follows the files of one agent, the older generation first.
type trail struct {
	name string
	part int64       // how much is read of what stands there at first; 0: all
	tail *tail       // nil: nothing is open
	read fs.FileInfo // the current file as it was when it was read; nil: it was not

	passed bool // something before part was passed over
}

func (t *trail) close() {
	if t.tail != nil {
		_ = t.tail.file.Close() // only read from
	}
	t.tail, t.read = nil, nil
}

// step reads what is new.
func (t *trail) step(ctx context.Context, root *os.Root, take func([]byte)) error {
	for ctx.Err() == nil {
		if t.tail == nil {
			if err := t.begin(root); err != nil || t.tail == nil {
				return err
			}
		}
		// The name is looked at first: once it is another file's, nobody writes
		// to this one any more, and what is read now is all there will be.
		named, err := root.Stat(t.name + fileEnd)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look at outcomes: %w", err)
		}
		current := err == nil && os.SameFile(named, t.tail.info)
		if current && t.read != nil && named.Size() == t.read.Size() && named.ModTime().Equal(t.read.ModTime()) {
			return nil
		}
		if err := t.tail.read(ctx, take); err != nil {
			return err
		}
		if current {
			t.read = named
			return nil
		}
		if moved, err := t.advance(root, take); err != nil || !moved {
			return err
		}
	}
	return nil
}

// begin opens the older generation, or the current one where there is none, or
// where that alone has the part that is to be read.
func (t *trail) begin(root *os.Root) error {
	older, current := size(root, t.name+olderEnd), size(root, t.name+fileEnd)
	name, from := t.name+olderEnd, int64(0)
	if older < 0 || t.part > 0 && current >= t.part {
		name = t.name + fileEnd
		older, current = current, 0
	}
	if t.part > 0 {
		from = max(0, older+max(0, current)-t.part)
	}
	opened, err := openTail(root, name, from)
	if err == nil && opened != nil {
		t.tail, t.part, t.passed = opened, 0, from > 0
	}
	return err
}

// advance goes on from a file that is not the current one any more, which was
// read to its end: to the current one, or where the file was replaced, removed,
// or rotated twice meanwhile, to the beginning.
func (t *trail) advance(root *os.Root, take func([]byte)) (moved bool, err error) {
	next, err := openTail(root, t.name+fileEnd, 0)
	if err != nil || next == nil {
		return false, err
	}
	if !t.tail.is(root, t.name+olderEnd) { // looked at now, since next may have been rotated away as it was opened
		_ = next.file.Close() // only read from
		t.close()
		return true, nil
	}
	if t.tail.torn {
		take(nil)
	}
	t.close()
	t.tail = next
	return true, nil
}

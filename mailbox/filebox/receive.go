package filebox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

const (
	// unfinished is how long a file that is no JSON is taken for one that its
	// writer has not finished; then it is shown as it is.
	unfinished = 5 * time.Second
	// racy is how old a folder's last change must be for the same time to mean
	// the same content: clocks of file systems are coarse.
	racy = 5 * time.Second
)

// Receive implements [mailbox.Store]. What cannot be a message (a link, a folder,
// more than 1 MiB) is moved to malformed, with a warning, and not shown. While
// it runs, the cards that were set are kept in the registry.
func (s *Store) Receive(ctx context.Context, agent mailbox.AgentID, take func(mailbox.Item), looked func()) error {
	if err := check("the", agent); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var guard sync.WaitGroup
	defer guard.Wait()
	defer cancel()
	guard.Go(func() { s.guardCards(ctx) })

	r := receiver{store: s, agent: agent, take: take, looked: looked, shown: map[string]mark{},
		open: map[string]time.Time{}, said: map[string]bool{}}
	folder := filepath.Join(s.dir.Path, string(agent), inbox)
	r.notices = safefile.Notices{Dir: folder, Recheck: s.recheck, Off: s.deaf, Log: s.log}
	defer r.notices.Close()
	return r.run(ctx)
}

// mark is what is remembered of a message that was shown.
type mark struct {
	sum  [sha256.Size]byte // of what it says: another message in a file of the same name is new
	mod  time.Time
	size int64
}

// receiver shows one agent's mail. It belongs to one goroutine. Its maps hold
// names of the inbox only: each scan forgets what lies there no more.
type receiver struct {
	store   *Store
	agent   mailbox.AgentID
	take    func(mailbox.Item)
	looked  func() // may be nil
	notices safefile.Notices

	shown   map[string]mark
	open    map[string]time.Time // no JSON yet: when it was first seen
	said    map[string]bool      // cannot be read or moved, and it was said
	scanned time.Time            // when the folder was last scanned
	folder  fs.FileInfo          // as it was then
}

func (r *receiver) run(ctx context.Context) error {
	r.store.prune(r.agent)
	pruned := time.Now()
	err := r.scan(ctx, true, "")
	if err == nil && r.looked != nil {
		r.looked()
	}
	for err == nil {
		var why safefile.Notice
		why, err = r.notices.Next(ctx)
		switch {
		case err != nil:
		case why.Ticked:
			err = r.scan(ctx, false, "")
			if time.Since(pruned) > pruneAfter {
				r.store.prune(r.agent)
				pruned = time.Now()
			}
		case why.Lost, why.Gone:
			err = r.scan(ctx, true, "")
		case isMail(why.Name) && !why.Chmod:
			err = r.scan(ctx, false, why.Name)
		}
	}
	return err
}

// scan looks at everything in the inbox, unless the folder is as it was; or only at the file
// of that name, to which something happened. A folder that is removed or replaced while it
// is read is looked at again.
func (r *receiver) scan(ctx context.Context, force bool, name string) error {
	err := r.scanOnce(ctx, force, name)
	for try := 1; try < maxTries && vanished(err) && ctx.Err() == nil; try++ {
		err = r.scanOnce(ctx, true, "")
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("inbox of %s: %w", r.agent, err)
	}
	return err
}

func (r *receiver) scanOnce(ctx context.Context, force bool, name string) error {
	box, err := r.store.folder(r.agent, inbox)
	if err != nil {
		return err
	}
	defer box.Close()
	if name != "" {
		r.look(box, name, true)
		return nil
	}
	anew := r.notices.Arm() // before the look: what comes behind it is noticed
	now, err := box.Stat(".")
	if err != nil {
		return err
	}
	if !force && !anew && len(r.open) == 0 && r.folder != nil && os.SameFile(now, r.folder) &&
		now.ModTime().Equal(r.folder.ModTime()) && r.scanned.Sub(now.ModTime()) > racy {
		return nil
	}
	r.folder, r.scanned = now, time.Now()
	list, err := r.list(box)
	if err != nil {
		return err
	}
	for _, name := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.look(box, name, false)
	}
	return nil
}

// list returns the messages, oldest first. A folder that is listed while files
// come may show the later of two and not the earlier; a second listing has the
// earlier for certain, and only what is not later than all of the first counts.
func (r *receiver) list(box *os.Root) ([]string, error) {
	first, err := mail(box)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(first))
	for _, name := range first {
		there[name] = true
	}
	forget(r.shown, there)
	forget(r.open, there)
	forget(r.said, there)
	if len(first) == len(r.shown) {
		return first, nil // nothing new
	}
	second, err := mail(box)
	if err != nil {
		return nil, err
	}
	newest := ageOf(first[len(first)-1])
	return slices.DeleteFunc(second, func(name string) bool { return newest.compare(ageOf(name)) < 0 }), nil
}

func forget[V any](m map[string]V, there map[string]bool) {
	for name := range m {
		if !there[name] {
			delete(m, name)
		}
	}
}

// look shows a message that was not shown. changed says that something happened
// to the file, so that its time and size prove nothing.
func (r *receiver) look(box *os.Root, name string, changed bool) {
	before, shown := r.shown[name]
	if shown && !changed {
		info, err := box.Lstat(name)
		if err != nil || info.ModTime().Equal(before.mod) && info.Size() == before.size {
			return
		}
	}
	raw, info, err := read(box, name, mailbox.MaxEnvelope)
	_, long := errors.AsType[tooLong](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(r.shown, name)
		return
	case errors.Is(err, errNoFile), long:
		r.setAside(name, err)
		return
	case err != nil:
		r.say(name, "mail that cannot be read; it stays where it is", err)
		return
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax && r.fresh(name, info) {
			return
		}
	}
	delete(r.open, name)
	now := mark{sum: content(fields), mod: info.ModTime(), size: info.Size()}
	r.shown[name] = now
	if !shown || now.sum != before.sum {
		r.take(mailbox.Item{Key: name, Raw: raw})
	}
}

// content hashes the fields of a message but for the metadata, which change when
// it is sent again.
func content(fields map[string]json.RawMessage) [sha256.Size]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "metadata" {
			fmt.Fprintf(h, "%q %q ", name, fields[name])
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// fresh reports whether a file that is no JSON may still become one.
func (r *receiver) fresh(name string, info fs.FileInfo) bool {
	now := time.Now()
	first, ok := r.open[name]
	if !ok {
		first = now
		r.open[name] = now
	}
	age := now.Sub(info.ModTime())
	if age < 0 { // another host's clock
		age = now.Sub(first)
	}
	return age < unfinished
}

func (r *receiver) setAside(name string, why error) {
	if err := r.store.move(r.agent, name, malformed); err != nil {
		r.say(name, "what is no message could not be set aside", err)
		return
	}
	r.store.log.Warn("set aside what is no message", "agent", r.agent, "file", name, "folder", malformed,
		"reason", why.Error())
}

// say warns about a file, once.
func (r *receiver) say(name, what string, err error) {
	if !r.said[name] {
		r.said[name] = true
		r.store.log.Warn(what, "agent", r.agent, "file", name, "err", err)
	}
}

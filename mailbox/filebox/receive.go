package filebox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// unfinished is how long a file that is no JSON is taken for one that its
// writer has not finished; then it is shown as it is.
const unfinished = 5 * time.Second

// Receive implements [mailbox.Store]. What cannot be a message (a link, a folder,
// more than 1 MiB) is moved to malformed, with a warning, and not shown. A file that is written again is shown again.
func (s *Store) Receive(ctx context.Context, agent mailbox.AgentID, take func(mailbox.Item), looked func()) error {
	if err := checkAgent("the", agent); err != nil {
		return err
	}
	r := receiver{store: s, agent: agent, take: take, files: map[string]*file{}}
	folder := filepath.Join(s.dir.Path, string(agent), inbox)
	r.notices = safefile.Notices{Dir: folder, Recheck: s.recheck, Off: s.unnotified, Log: s.log}
	defer r.notices.Close()
	s.prune(agent)
	pruned := time.Now()
	err := r.scan(ctx, "")
	if err == nil && looked != nil {
		looked()
	}
	for err == nil {
		var why safefile.Notice
		switch why, err = r.notices.Next(ctx); {
		case err != nil:
		case why.Ticked, why.Lost:
			err = r.scan(ctx, "")
		case isMail(why.Name):
			err = r.scan(ctx, why.Name)
		}
		if time.Since(pruned) > pruneAfter {
			s.prune(agent)
			pruned = time.Now()
		}
	}
	return err
}

// file is what is remembered of a file in the inbox.
type file struct {
	shown  bool
	info   fs.FileInfo // as it was when it was shown: another message in a file of the same name is new
	first  time.Time   // when it was first seen to be no JSON; zero: it is
	warned bool        // it cannot be read or moved, and that was logged
}

// receiver shows one agent's mail. It belongs to one goroutine.
type receiver struct {
	store   *Store
	agent   mailbox.AgentID
	take    func(mailbox.Item)
	notices safefile.Notices
	files   map[string]*file // of the inbox, as of the last scan
}

// scan looks at everything in the inbox; or only at the file
// of that name, to which something happened. A folder that is removed or replaced while it
// is read is looked at again.
func (r *receiver) scan(ctx context.Context, name string) error {
	err := r.scanOnce(ctx, name)
	for try := 1; try < maxTries && vanished(err) && ctx.Err() == nil; try++ {
		err = r.scanOnce(ctx, "")
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("inbox of %s: %w", r.agent, err)
	}
	return err
}

func (r *receiver) scanOnce(ctx context.Context, name string) error {
	box, err := r.store.folder(r.agent, inbox)
	if err != nil {
		return err
	}
	defer box.Close()
	if name != "" {
		r.look(box, name)
		return nil
	}
	r.notices.Arm() // before the look: what comes behind it is noticed
	list, err := r.list(box)
	if err != nil {
		return err
	}
	for _, name := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.look(box, name)
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
	maps.DeleteFunc(r.files, func(name string, _ *file) bool {
		_, listed := slices.BinarySearchFunc(first, name, byAge)
		return !listed
	})
	if !slices.ContainsFunc(first, func(name string) bool { f := r.files[name]; return f == nil || !f.shown }) {
		return first, nil // nothing new
	}
	second, err := mail(box)
	newest := first[len(first)-1]
	return slices.DeleteFunc(second, func(name string) bool { return byAge(newest, name) < 0 }), err
}

// look shows a message that was not shown.
func (r *receiver) look(box *os.Root, name string) {
	f := r.files[name]
	if f == nil {
		f = &file{}
		r.files[name] = f
	}
	if info, err := box.Lstat(name); err == nil && f.shown && same(info, f.info) {
		return
	}
	raw, info, err := read(box, name, mailbox.MaxEnvelope)
	_, long := errors.AsType[tooLong](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(r.files, name)
		return
	case errors.Is(err, errNoFile), long:
		r.quarantine(f, name, err)
		return
	case err != nil:
		r.warn(f, name, "mail that cannot be read; it stays where it is", err)
		return
	}
	var fields map[string]json.RawMessage
	if _, syntax := errors.AsType[*json.SyntaxError](json.Unmarshal(raw, &fields)); syntax {
		f.first = cmp.Or(f.first, time.Now())
		if age := time.Since(info.ModTime()); age < unfinished && (age >= 0 || time.Since(f.first) < unfinished) {
			return // a time in the future is of another host's clock
		}
	}
	*f = file{shown: true, info: info, warned: f.warned}
	r.take(mailbox.Item{Key: name, Raw: raw})
}

// quarantine moves what cannot be a message out of the inbox.
func (r *receiver) quarantine(f *file, name string, why error) {
	if err := r.store.move(r.agent, name, malformed); err != nil {
		r.warn(f, name, "what is not a message could not be set aside", err)
		return
	}
	r.store.log.Warn("quarantined a line that is not a message", "agent", r.agent, "file", name, "folder", malformed,
		"reason", why.Error())
}

// warn logs a fault of a file, once.
func (r *receiver) warn(f *file, name, what string, err error) {
	if !f.warned {
		f.warned = true
		r.store.log.Warn(what, "agent", r.agent, "file", name, "err", err)
	}
}

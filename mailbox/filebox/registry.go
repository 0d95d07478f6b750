package filebox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mrand "math/rand/v2"
	"os"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
)

const (
	registry     = "_registry.json"
	registryLock = registry + ".lock"

	// lockWait is how long the registry's lock is waited for: a process that
	// was stopped in the middle may hold it.
	lockWait = 10 * time.Second
	// wholeWait is how long a registry that is no JSON is looked at again, since
	// another program may be writing it; one that nobody touched for written is
	// taken for broken at once.
	wholeWait = 500 * time.Millisecond
	written   = 2 * time.Second
	// maxTries bounds the rewrites of one change that other programs got in
	// between.
	maxTries = 50
)

// snapshot is the registry's file at one time.
type snapshot struct {
	data []byte
	info fs.FileInfo // nil: there was none
}

// brokenError says that the registry is no JSON, or too large to be read.
type brokenError struct {
	at  snapshot // without data where it is too large
	why error
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("the registry %s is broken: %v; the next heartbeat of a sidecar repairs it", registry, e.why)
}

// readFile reads a registry's file; a missing one is an empty snapshot.
func readFile(root *os.Root, name string) (snapshot, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return snapshot{}, nil
	case err != nil:
		return snapshot{}, err
	case !info.Mode().IsRegular():
		return snapshot{}, fmt.Errorf("the registry %s is no regular file: move it away", name)
	case info.Size() > maxRegistry:
		return snapshot{info: info}, errTooBig
	}
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return snapshot{}, nil
	}
	if err != nil {
		return snapshot{}, err
	}
	defer f.Close()
	return readOpen(f)
}

func readOpen(f *os.File) (snapshot, error) {
	info, err := f.Stat() // before the reading: a later change shows
	if err != nil {
		return snapshot{}, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxRegistry+1))
	if err != nil {
		return snapshot{}, err
	}
	if len(data) > maxRegistry {
		return snapshot{info: info}, errTooBig
	}
	return snapshot{data: data, info: info}, nil
}

// load reads the registry with read, and again for a while as long as it is no
// JSON: a program that writes it in place leaves it empty or cut for a moment.
// A registry that stays so gives a [*brokenError].
func load(ctx context.Context, read func() (snapshot, error)) (snapshot, entries, error) {
	end := time.Now().Add(wholeWait)
	for {
		snap, err := read()
		if errors.Is(err, errTooBig) {
			return snap, nil, &brokenError{snap, errTooBig}
		}
		if err != nil {
			return snapshot{}, nil, err
		}
		list, err := parseRegistry(snap.data)
		if errors.Is(err, errTooMany) {
			return snap, nil, &brokenError{snap, errTooMany}
		}
		cut := err != nil || snap.info != nil && len(snap.data) == 0
		if !cut {
			return snap, list, err
		}
		now := time.Now()
		if now.After(end) || now.Sub(snap.info.ModTime()) > written {
			return snap, nil, &brokenError{snap, errNoRegistry}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return snapshot{}, nil, err
		}
	}
}

// pause waits for up to d.
func pause(ctx context.Context, d time.Duration) error {
	return wait.Sleep(ctx, d/2+mrand.N(d/2+1))
}

// locked calls work under the lock that our processes change the registry under.
func (s *Store) locked(ctx context.Context, work func() error) error {
	lock := jsonl.Log{Folder: &s.dir, Name: registryLock, Fair: true}
	defer lock.Close()
	waiting, cancel := context.WithTimeoutCause(ctx, s.patient,
		fmt.Errorf("the registry's lock %s is held by another process for more than %v: does one hang?", registryLock, s.patient))
	defer cancel()
	return jsonl.Retry(waiting, func(waited time.Duration) error {
		return lock.Do(waited, func(int64) error { return work() })
	})
}

// errOvertaken says that another program wrote the registry since it was read.
var errOvertaken = errors.New("the registry was written meanwhile")

// commit replaces the registry as it was read by data. When it returns
// [errOvertaken] nothing was written. A newer is what another program had
// written in the last moment and data replaced: its changes are to be merged
// and committed; if that was no JSON the error is a [*brokenError], and data
// stands.
func commit(ctx context.Context, root *os.Root, was snapshot, data []byte) (newer entries, err error) {
	aside := registry + "." + strings.ToLower(rand.Text()[:randomChars]) + temp
	if err := write(root, aside, data); err != nil {
		return nil, err
	}
	defer func() { _ = root.Remove(aside) }() // ours, or what it replaced
	now, err := root.Lstat(registry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if was.info != nil {
			return nil, errOvertaken
		}
		return nil, create(root, aside)
	case err != nil:
		return nil, err
	case was.info == nil || !same(now, was.info):
		return nil, errOvertaken
	}
	f, err := safefile.Open(root, registry, os.O_RDONLY) // for where two files cannot change places
	if err != nil {
		return nil, overtaken(err)
	}
	defer f.Close()
	read := func() (snapshot, error) { return readFile(root, aside) }
	err = exchange(root, aside, registry)
	if errors.Is(err, errors.ErrUnsupported) {
		read = func() (snapshot, error) { return readOpen(f) }
		err = root.Rename(aside, registry)
	}
	if err != nil {
		return nil, overtaken(err)
	}
	replaced, err := read()
	if err != nil || bytes.Equal(replaced.data, was.data) {
		return nil, err
	}
	_, newer, err = load(ctx, read) // which may be in the middle of its writing
	return newer, err
}

// create gives aside the registry's name where there is none.
func create(root *os.Root, aside string) error {
	err := root.Link(aside, registry)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return errOvertaken
	}
	return root.Rename(aside, registry) // a file system without links
}

// overtaken turns the error about a registry that is gone into errOvertaken.
func overtaken(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errOvertaken
	}
	return err
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

package filebox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// The folders of an agent.
const (
	inbox     = "inbox"
	processed = "processed"
	malformed = "malformed"
)

// folder reaches the mailbox's folder, and makes it again after it was removed,
// renamed or replaced.
type folder struct {
	path string

	mu     sync.Mutex
	root   *os.Root // nil while it is not open; guarded by mu
	info   fs.FileInfo
	closed bool
}

// open returns the folder that is at the path now, making a missing one.
func (d *folder) open() (*os.Root, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	now, err := os.Stat(d.path)
	if d.root != nil {
		if err == nil && os.SameFile(now, d.info) {
			return d.root, nil
		}
		_ = d.root.Close() // the folder is another one; nothing is left to save
		d.root = nil
	}
	root, err := safefile.OpenDir(d.path)
	if err != nil {
		return nil, err
	}
	if d.info, err = root.Stat("."); err != nil {
		return nil, errors.Join(fmt.Errorf("look at folder: %w", err), root.Close())
	}
	d.root = root
	return root, nil
}

func (d *folder) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.root == nil {
		return nil
	}
	err := d.root.Close()
	d.root = nil
	return err
}

// agent opens an agent's folder, a missing one is an error ([fs.ErrNotExist]).
func (s *Store) agent(id mailbox.AgentID) (*os.Root, error) {
	root, err := s.dir.open()
	if err != nil {
		return nil, err
	}
	return root.OpenRoot(string(id))
}

// inbox opens an agent's inbox, making it where it is missing.
func (s *Store) inbox(id mailbox.AgentID) (*os.Root, error) {
	root, err := s.dir.open()
	if err != nil {
		return nil, err
	}
	box, err := root.OpenRoot(filepath.Join(string(id), inbox))
	if !errors.Is(err, fs.ErrNotExist) {
		return box, err
	}
	return s.makeSub(id, inbox)
}

// makeSub makes a folder of an agent and opens it.
func (s *Store) makeSub(id mailbox.AgentID, name string) (*os.Root, error) {
	root, err := s.dir.open()
	if err != nil {
		return nil, err
	}
	agent, err := safefile.OpenSub(root, string(id))
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	return safefile.OpenSub(agent, name)
}

// vanished reports whether err comes from a folder that was removed or replaced
// in the middle of a call: then the call is worth a second try.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrClosed)
}

// names lists what lies in a folder, in no order.
func names(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list folder: %w", err)
	}
	defer dir.Close()
	list, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list folder: %w", err)
	}
	return list, nil
}

package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Folder opens a folder by its path, and opens it again after it was removed,
// renamed or replaced. Path is required. It is safe for concurrent use.
type Folder struct {
	Path   string
	Closed error // error of Open after Close; nil: Open opens the folder again

	mu     sync.Mutex
	root   *os.Root // nil while it is not open; guarded by mu, as the rest is
	info   fs.FileInfo
	closed bool
}

// Open returns the folder that is at the path now; the Folder closes it. With
// create it makes a missing folder.
func (d *Folder) Open(create bool) (*os.Root, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed && d.Closed != nil {
		return nil, d.Closed
	}
	now, err := os.Stat(d.Path)
	if d.root != nil {
		if err == nil && os.SameFile(now, d.info) {
			return d.root, nil
		}
		_ = d.root.Close() // the path has another folder; nothing to save
		d.root = nil
	}
	if err != nil && !create {
		return nil, fmt.Errorf("stat folder: %w", err)
	}
	root, err := OpenDir(d.Path)
	if err != nil {
		return nil, err
	}
	if d.info, err = root.Stat("."); err != nil {
		return nil, errors.Join(fmt.Errorf("stat folder: %w", err), root.Close())
	}
	d.root = root
	return root, nil
}

// Stat describes the named file in the folder that is at the path now.
func (d *Folder) Stat(name string) (fs.FileInfo, error) { return os.Stat(filepath.Join(d.Path, name)) }

// Close closes the folder if it is open.
func (d *Folder) Close() error {
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

// Names lists the entries of a folder, in no order.
func Names(root *os.Root) ([]string, error) {
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

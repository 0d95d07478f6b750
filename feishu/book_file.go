package feishu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
)

const (
	// bookDelay is how long changes are gathered before they are written.
	bookDelay = 200 * time.Millisecond
	// bookRetry is how long a book that could not be written waits.
	bookRetry = 10 * time.Second
	// maxBookFile is the most bytes a book's file may have; a larger one is broken.
	maxBookFile = 32 << 20
)

// bookOnDisk is the file's content.
type bookOnDisk struct {
	Self  Self         `json:"self"`
	Bots  []Bot        `json:"bots"`
	Chats []Chat       `json:"chats"`
	Names []nameOnDisk `json:"names,omitempty"` // the newest last
}

type nameOnDisk struct {
	ID string `json:"id"`
	Who
}

// load reads the file, if there is one.
func (b *Book) load() {
	data, err := b.file.read()
	var disk bookOnDisk
	if err == nil && data != nil && json.Unmarshal(data, &disk) != nil {
		err = errors.New("it is no book")
	}
	if err != nil {
		b.file.setAside(err)
		return
	}
	b.self = Self{}
	b.LearnSelf(disk.Self)
	for _, bot := range disk.Bots {
		b.LearnBot(bot)
	}
	for _, chat := range disk.Chats {
		b.SetChat(chat)
	}
	for _, n := range disk.Names {
		b.LearnName(n.ID, n.Who)
	}
	b.file.written() // what was just read need not be written
}

func (b *Book) snapshot() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]nameOnDisk, 0, b.names.Len())
	for _, id := range b.names.Keys() {
		who, _ := b.names.Peek(id)
		names = append(names, nameOnDisk{id, who})
	}
	return json.Marshal(bookOnDisk{Self: b.self, Bots: b.bots, Chats: b.chats.Values(), Names: names})
}

// Flush writes the book if it changed since it was last written.
func (b *Book) Flush() error { return b.file.flush() }

// Close is [Book.Flush]; what changes later is written by another Flush only.
// It may be called more than once.
func (b *Book) Close() error {
	b.file.stop()
	return b.file.flush()
}

// bookFile writes a book to disk, in the background some time after it changed.
type bookFile struct {
	root     *os.Root // nil: in memory only
	name     string
	log      *slog.Logger
	snapshot func() ([]byte, error)

	disk sync.Mutex // held while writing

	mu     sync.Mutex
	timer  *time.Timer // guarded by mu; not nil while a write is due
	dirty  bool        // guarded by mu
	failed bool        // guarded by mu; the last write failed, and that was said
	closed bool        // guarded by mu
}

// read returns nil where there is no file.
func (f *bookFile) read() ([]byte, error) {
	if f.root == nil {
		return nil, nil
	}
	file, err := safefile.Open(f.root, f.name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBookFile+1))
	if err == nil && len(data) > maxBookFile {
		err = errTooLarge
	}
	return data, err
}

func (f *bookFile) setAside(why error) {
	aside := f.name + ".broken"
	if err := f.root.Rename(f.name, aside); err != nil {
		f.log.Warn("stored ids of bots and chats cannot be read; learning them again", "file", f.name, "error", why,
			"kept", false)
		return
	}
	f.log.Warn("the stored ids of bots and chats are invalid; they are learned again", "file", f.name, "error", why,
		"kept", aside)
}

// schedule has the book written soon.
func (f *bookFile) schedule() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty = true
	f.arm(bookDelay)
}

// arm starts the timer unless it runs. The caller holds mu.
func (f *bookFile) arm(after time.Duration) {
	if f.timer == nil && !f.closed && f.root != nil {
		f.timer = time.AfterFunc(after, func() { _ = f.flush() }) // flush says it
	}
}

func (f *bookFile) written() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disarm()
	f.dirty = false
}

func (f *bookFile) disarm() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

func (f *bookFile) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.disarm()
}

func (f *bookFile) flush() error {
	f.disk.Lock()
	defer f.disk.Unlock()
	f.mu.Lock()
	f.disarm()
	dirty := f.dirty && f.root != nil
	f.dirty = false
	f.mu.Unlock()
	if !dirty {
		return nil
	}
	data, err := f.snapshot()
	if err == nil {
		err = safefile.ReplaceFast(f.root, f.name, data)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.failed = false
		return nil
	}
	f.dirty = true
	f.arm(bookRetry)
	if !f.failed {
		f.failed = true
		f.log.Warn("ids of bots and chats cannot be stored; kept in memory for now", "file", f.name,
			"error", err)
	}
	return fmt.Errorf("write %s: %w", f.name, err)
}

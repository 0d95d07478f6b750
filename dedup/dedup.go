// Package dedup remembers which messages were handled, so that a repeat is
// handled no second time, also after a restart.
//
// # Claim, deliver, settle
//
// A key is claimed before its message is handled and settled afterwards. Only
// a settled key is remembered: when the handling failed, or the process died
// in the middle, a repeat gets its chance. So a crash between delivery and
// settling may repeat one delivery; it never loses one.
//
//	switch w.Claim(key) {
//	case dedup.Done:    // handled before
//	case dedup.Pending: // somebody is at it
//	case dedup.New:
//		err := deliver()
//		w.Settle(key, err == nil)
//		w.Flush() // after what must not be repeated
//	}
//
// # Memory and disk
//
// The last [DefaultSize] settled keys are kept in memory (least recently used
// goes first) and in a journal of one JSON string a line. Settled keys are
// collected and written together, at [flushAt] of them or by [Window.Flush]. The
// journal is rewritten when it holds three times the keys that count.
//
// A window belongs to one agent: shared by two, it would starve one of them.
package dedup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/internal/jsonl"
)

// Bounds.
const (
	DefaultSize = 5000
	flushAt     = 64   // settled keys after which they are written without being asked
	maxUnsaved  = 6400 // settled keys that wait while the disk fails; beyond, the next write is of all in memory
	maxKey      = 4096 // bytes of a journal line (512 of a key, escaped); a longer one is passed over on reading
)

// State is what a claim finds.
type State int

// The states of a key.
const (
	New     State = iota // not seen: it is the caller's now, until Settle
	Pending              // claimed and not settled
	Done                 // settled
)

// Window is the set of keys handled. It is safe for concurrent use.
type Window struct {
	mu      sync.Mutex
	done    *lru.Cache[string, struct{}] // guarded by mu
	pending map[string]struct{}          // guarded by mu; as many as are being handled

	journal *jsonl.Journal // nil: memory only; guarded by mu
	unsaved bytes.Buffer   // settled and not written; guarded by mu
	line    *json.Encoder  // writes a key to unsaved
	waiting int            // keys settled and not written; guarded by mu
}

// Memory returns a window of size keys (0: DefaultSize) that a restart forgets.
func Memory(size int) *Window {
	if size <= 0 {
		size = DefaultSize
	}
	done, err := lru.New[string, struct{}](size)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Window{done: done, pending: map[string]struct{}{}}
}

// Open returns a window of size keys (0: DefaultSize) with the journal name
// below root, made when it is missing. Lines of it that are no JSON string (a torn one, a
// hand's edit) are passed over.
func Open(root *os.Root, name string, size int) (*Window, error) {
	w := Memory(size)
	w.line = json.NewEncoder(&w.unsaved)
	var err error
	w.journal, err = jsonl.OpenJournal(root, name, maxKey, func(line []byte) {
		if key, ok := parseKey(line); ok {
			w.done.Add(key, struct{}{})
		}
	})
	return w, err
}

// parseKey reads a line of the journal. Nearly all keys are plain ASCII, for
// which this is several times as fast as the decoder: a restart waits for it.
func parseKey(line []byte) (key string, ok bool) {
	if n := len(line); n > 2 && line[0] == '"' && line[n-1] == '"' && plain(line[1:n-1]) {
		return string(line[1 : n-1]), true
	}
	return key, json.Unmarshal(line, &key) == nil && key != ""
}

// plain reports whether text stands for itself in a JSON string.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Claim takes key for the caller when it is new, and tells what it is.
func (w *Window) Claim(key string) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.done.Get(key); ok {
		return Done
	}
	if _, ok := w.pending[key]; ok {
		return Pending
	}
	w.pending[key] = struct{}{}
	return New
}

// Settle ends a claim: a key that was handled is remembered, another forgotten.
// An error is the journal's; the key counts as handled in memory all the same.
func (w *Window) Settle(key string, handled bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, key)
	if !handled {
		return nil
	}
	w.done.Add(key, struct{}{})
	if w.journal == nil {
		return nil
	}
	if err := w.line.Encode(key); err != nil {
		return fmt.Errorf("write dedup journal: %w", err)
	}
	if w.waiting++; w.waiting%flushAt != 0 { // not at each one while the disk fails
		return nil
	}
	return w.flush()
}

// Seen reports whether key was settled, without claiming it.
func (w *Window) Seen(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done.Contains(key)
}

// Flush writes what was settled to the journal. After an error the same keys
// are tried again by the next call.
func (w *Window) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Window) flush() error {
	if w.waiting == 0 || w.journal == nil {
		return nil
	}
	if w.waiting > maxUnsaved {
		w.unsaved.Reset() // the rewrite takes them from memory, when the disk is back
	}
	most := 3 * max(w.done.Len(), 1000) // lines
	if w.waiting > maxUnsaved || w.journal.Lines()+w.waiting > most || w.journal.Size() > int64(most*maxKey) {
		return w.rewrite()
	}
	if err := w.journal.Append(w.unsaved.Bytes()); err != nil {
		return err
	}
	w.forgetUnsaved()
	return nil
}

func (w *Window) forgetUnsaved() {
	w.unsaved.Reset()
	w.waiting = 0
}

// rewrite replaces the journal by what is in memory, oldest first.
func (w *Window) rewrite() error {
	var all bytes.Buffer
	line := json.NewEncoder(&all)
	keys := w.done.Keys()
	for _, key := range keys {
		if err := line.Encode(key); err != nil {
			return fmt.Errorf("write dedup journal: %w", err)
		}
	}
	if err := w.journal.Replace(all.Bytes()); err != nil {
		return err
	}
	w.forgetUnsaved()
	return nil
}

// Close writes what is left and closes the journal.
func (w *Window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.journal == nil {
		return nil
	}
	err := errors.Join(w.flush(), w.journal.Close())
	w.journal = nil
	return err
}

// Package dedup remembers which messages were handled, so that a repeat is not
// handled again, even after a restart.
//
// # Claim, deliver, settle
//
// A key is claimed before its message is handled and settled afterwards. Only a
// settled key is remembered: if the handling failed, or the process died
// meanwhile, a repeat is handled. So a crash between delivery and settling may
// repeat one delivery; it never loses one.
//
//	switch w.Claim(key) {
//	case dedup.Done:    // handled before
//	case dedup.Pending: // being handled now
//	case dedup.New:
//		err := deliver()
//		w.Settle(key, err == nil)
//		w.Flush() // after an effect that must not be repeated
//	}
//
// # Memory and disk
//
// The last [DefaultSize] settled keys are kept in memory (the least recently
// used is dropped first) and in a journal of one JSON string a line. Settled
// keys are collected and written together, every [flushAt] keys or by
// [Window.Flush]. The journal is rewritten when it has three times as many lines
// as keys are kept.
//
// A window belongs to one agent: of two that share one, only the first would
// get each message.
package dedup

import (
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
	flushAt     = 64   // settled keys after which they are written without Flush
	maxUnsaved  = 6400 // settled keys that wait while the disk fails; beyond it the next write rewrites the journal
	maxKey      = 4096 // bytes of a journal line (512 of a key, escaped); a longer one is skipped on reading
)

// State is the state of a key at a claim.
type State int

// The states of a key.
const (
	New     State = iota // not seen: now claimed by the caller, until Settle
	Pending              // claimed and not settled
	Done                 // settled
)

// Window is the set of handled keys. It is safe for concurrent use.
type Window struct {
	mu      sync.Mutex
	done    *lru.Cache[string, struct{}] // guarded by mu, as the following are
	pending map[string]struct{}          // claimed and not settled
	durable bool                         // the window has an open journal
	unsaved []byte                       // lines of settled keys that are not written
	waiting int                          // number of lines in unsaved

	// writing is held while the journal is written: the next call then writes all keys
	// settled meanwhile.
	writing sync.Mutex
	journal *jsonl.Journal // nil: memory only; guarded by writing
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

// Open returns a window of size keys (0: DefaultSize) with the journal name below root,
// making it if it is missing. It skips lines that are not a JSON string, such as a torn
// or edited one.
func Open(root *os.Root, name string, size int) (*Window, error) {
	w := Memory(size)
	w.durable = true
	var err error
	w.journal, err = jsonl.OpenJournal(root, name, maxKey, func(line []byte) {
		if key, ok := parseKey(line); ok {
			w.done.Add(key, struct{}{})
		}
	})
	return w, err
}

// parseKey reads a line of the journal. Nearly all keys are plain ASCII, which
// it reads several times as fast as the decoder does: a restart waits for it.
func parseKey(line []byte) (key string, ok bool) {
	if n := len(line); n > 2 && line[0] == '"' && line[n-1] == '"' && plain(line[1:n-1]) {
		return string(line[1 : n-1]), true
	}
	return key, json.Unmarshal(line, &key) == nil && key != ""
}

// plain reports whether text needs no escapes in a JSON string.
func plain[T string | []byte](text T) bool {
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// Claim claims key for the caller if it is new, and returns the state that key
// had.
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

// Settle ends a claim: a handled key is remembered, another one is released. An
// error is the journal's; the key still counts as handled in memory.
func (w *Window) Settle(key string, handled bool) error {
	due, err := w.settle(key, handled)
	if due && err == nil {
		err = w.Flush()
	}
	return err
}

// settle is Settle without writing; due reports that the journal should be
// written now.
func (w *Window) settle(key string, handled bool) (due bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, key)
	if !handled {
		return false, nil
	}
	w.done.Add(key, struct{}{})
	if !w.durable {
		return false, nil
	}
	if w.waiting++; w.waiting <= maxUnsaved {
		if w.unsaved, err = appendLine(w.unsaved, key); err != nil {
			return false, err
		}
	}
	return w.waiting%flushAt == 0, nil // not for each key while the disk fails
}

// appendLine appends key as a line of the journal.
func appendLine(to []byte, key string) ([]byte, error) {
	if plain(key) {
		return append(append(append(to, '"'), key...), "\"\n"...), nil
	}
	line, err := json.Marshal(key)
	if err != nil {
		return to, fmt.Errorf("write dedup journal: %w", err)
	}
	return append(append(to, line...), '\n'), nil
}

// Seen reports whether key was settled, without claiming it.
func (w *Window) Seen(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done.Contains(key)
}

// Flush writes the settled keys to the journal. After an error the next call
// retries.
func (w *Window) Flush() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	return w.flush()
}

func (w *Window) flush() error {
	w.mu.Lock()
	lines, n := w.unsaved, w.waiting
	w.unsaved, w.waiting = nil, 0
	most := 3 * max(w.done.Len(), 1000) // lines
	w.mu.Unlock()
	if n == 0 || w.journal == nil {
		return nil
	}
	var err error
	if n > maxUnsaved || w.journal.Lines()+n > most || w.journal.Size() > int64(most*maxKey) {
		err = w.rewrite()
	} else {
		err = w.journal.Append(lines)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.unsaved, w.waiting = append(lines, w.unsaved...), w.waiting+n
		if w.waiting > maxUnsaved {
			w.unsaved = nil // the next rewrite takes them from memory
		}
	} else if w.waiting == 0 {
		w.unsaved = lines[:0]
	}
	return err
}

// rewrite replaces the journal with the keys in memory, oldest first.
func (w *Window) rewrite() error {
	w.mu.Lock()
	keys := w.done.Keys()
	w.mu.Unlock()
	var all []byte
	for _, key := range keys {
		var err error
		if all, err = appendLine(all, key); err != nil {
			return err
		}
	}
	return w.journal.Replace(all)
}

// Close writes the remaining keys and closes the journal.
func (w *Window) Close() error {
	w.mu.Lock()
	w.durable = false
	w.mu.Unlock()
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.journal == nil {
		return nil
	}
	err := errors.Join(w.flush(), w.journal.Close())
	w.journal = nil
	return err
}

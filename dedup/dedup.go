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
//	}
//
// # Memory and disk
//
// The last [DefaultSize] settled keys are kept in memory (the least recently
// used is dropped first) and in a journal of one JSON string a line, which is
// rewritten when it has three times as many lines as keys are kept.
//
// A window belongs to one agent: of two that share one, only the first would
// get each message.
package dedup

import (
	"encoding/json"
	"os"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"feishu-relay/internal/jsonl"
)

// Bounds.
const (
	DefaultSize = 5000
	maxKey      = 4096 // bytes of a journal line (512 of a key, escaped); a longer one is skipped on reading
	minLines    = 3000 // of the journal before it is rewritten
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
	done    *lru.LRU[string, struct{}] // guarded by mu, as the following are
	pending map[string]struct{}        // claimed and not settled
	journal *jsonl.Journal             // nil: memory only
	behind  bool                       // the journal lacks a settled key: the next write rewrites it
}

// Memory returns a window of size keys (0: DefaultSize) that a restart forgets.
func Memory(size int) *Window {
	if size <= 0 {
		size = DefaultSize
	}
	done, _ := lru.NewLRU[string, struct{}](size, nil) // fails only for a size below 1
	return &Window{done: done, pending: map[string]struct{}{}}
}

// Open returns a window of size keys (0: DefaultSize) with the journal name below root,
// making it if it is missing. It skips lines that are not a JSON string, such as a torn
// or edited one.
func Open(root *os.Root, name string, size int) (*Window, error) {
	w := Memory(size)
	var err error
	w.journal, err = jsonl.OpenJournal(root, name, maxKey, func(line []byte) {
		var key string
		if json.Unmarshal(line, &key) == nil && key != "" {
			w.done.Add(key, struct{}{})
		}
	})
	return w, err
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

// Settle ends a claim: a handled key is remembered, and is in the journal on return; another one is released. An
// error is the journal's: the key counts as handled in memory, and the next Settle writes it again.
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
	var err error
	if w.behind || w.journal.Lines() >= max(3*w.done.Len(), minLines) {
		err = w.journal.Replace(lines(w.done.Keys()))
	} else {
		err = w.journal.Append(lines([]string{key}))
	}
	w.behind = err != nil
	return err
}

// lines is keys as lines of the journal.
func lines(keys []string) (all []byte) {
	for _, key := range keys {
		line, _ := json.Marshal(key) // always possible
		all = append(append(all, line...), '\n')
	}
	return all
}

// Seen reports whether key was settled, without claiming it.
func (w *Window) Seen(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done.Contains(key)
}

// Close closes the journal; what is settled afterwards is kept in memory only.
func (w *Window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.journal == nil {
		return nil
	}
	err := w.journal.Close()
	w.journal = nil
	return err
}

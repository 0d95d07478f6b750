package feishu

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"feishu-relay/book"
)

// Record is one of a store. A nil Value deletes it.
type Record = book.Record

// KindDraft is the kind of the gateway's drafts.
const KindDraft = "draft"

// Store is the book of what a sidecar knows of Feishu. A nil Store keeps nothing. It is safe for concurrent use.
type Store struct {
	mu   sync.Mutex
	book *book.Book // guarded by mu
}

// OpenStore opens the book in the folder dir. What was deleted in it is off the disk some ten minutes later.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	b, err := book.Open(dir, book.Options{Logger: log, Forget: 10 * time.Minute, Kinds: map[string]book.Bound{
		kindSelf: {}, kindBots: {}, kindChat: {Count: 2 * maxChats}, kindName: {Count: 2 * maxNames},
		KindDraft: {}}})
	return &Store{book: b}, err
}

// Put writes records, and deletes those without a value. They are on disk when it returns nil.
func (s *Store) Put(records ...Record) error {
	if s == nil || len(records) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.Commit(records...)
}

// Each passes each record to f, those that were put last at the end.
func (s *Store) Each(f func(kind, key string, value json.RawMessage)) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.Each(func(kind, key string, value json.RawMessage) error {
		f(kind, key, value)
		return nil
	})
}

// Close closes the book. It may be called more than once.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.Close()
}

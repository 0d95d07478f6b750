package feishu

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"feishu-relay/book"
)

// The kinds of records: the own bot and the list of bots, which have one record each, chats, names by id, the gateway's
// drafts, and the messages of private chats with other agents.
const (
	kindSelf  = "self"
	kindBots  = "bots"
	kindChat  = "chat"
	kindName  = "name"
	KindDraft = "draft"
	KindPeer  = "peer"
)

// keepAgain is how long after a write that failed it is tried again.
const keepAgain = 10 * time.Second

// Store is the book of what a sidecar knows of Feishu. A nil Store keeps nothing. It is safe for concurrent use.
type Store struct {
	log *slog.Logger

	mu      sync.Mutex
	book    *book.Book     // guarded by mu
	refused map[record]any // values that the disk has refused; guarded by mu
	again   *time.Timer    // when they are tried again; guarded by mu
}

// record names a record.
type record struct{ kind, key string }

// OpenStore opens the book in the folder dir. What was deleted in it is off the disk some ten minutes later.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b, err := book.Open(dir, book.Options{Logger: log, Forget: 10 * time.Minute, Kinds: map[string]book.Bound{
		kindSelf: {}, kindBots: {}, kindChat: {Count: 2 * maxChats}, kindName: {Count: 2 * maxNames},
		KindDraft: {}, KindPeer: {}}})
	return &Store{book: b, log: log, refused: map[record]any{}}, err
}

// Put writes a record, or deletes it if value is nil. It is on disk when it returns nil.
func (s *Store) Put(kind, key string, value any) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.Commit(book.Record{Kind: kind, Key: key, Value: value})
}

// Keep is Put for what may be on disk later: if the disk refuses it, it is tried again. value does not change any more.
func (s *Store) Keep(kind, key string, value any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[record{kind, key}] = value
	s.write()
}

// write writes what was refused, until the disk refuses again. mu is held.
func (s *Store) write() {
	for r, value := range s.refused {
		err := s.book.Commit(book.Record{Kind: r.kind, Key: r.key, Value: value})
		if err != nil && !errors.Is(err, book.ErrTooLarge) {
			if s.again == nil {
				s.log.Error("what is known of Feishu cannot be written; it is kept in memory for now", "err", err)
				s.again = time.AfterFunc(keepAgain, s.tryAgain)
			}
			return
		}
		delete(s.refused, r)
	}
}

func (s *Store) tryAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.write(); len(s.refused) > 0 {
		s.again.Reset(keepAgain)
	} else {
		s.again = nil
	}
}

// Refused is how many records are in memory only, since the disk has refused them.
func (s *Store) Refused() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refused)
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
	if s.again != nil {
		s.again.Stop()
	}
	s.write()
	return s.book.Close()
}

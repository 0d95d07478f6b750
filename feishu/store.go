package feishu

import (
	"encoding/json"
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

// Store is the book of what a sidecar knows of Feishu. A nil Store keeps nothing. It is safe for concurrent use.
type Store struct {
	mu   sync.Mutex
	book *book.Book // guarded by mu
}

// OpenStore opens the book in the folder dir. What was deleted in it is off the disk some ten minutes later.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	b, err := book.Open(dir, book.Options{Logger: log, Forget: 10 * time.Minute, Kinds: map[string]book.Bound{
		kindSelf: {}, kindBots: {}, kindChat: {Count: 2 * maxChats}, kindName: {Count: 2 * maxNames},
		KindDraft: {}, KindPeer: {}}})
	return &Store{book: b}, err
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

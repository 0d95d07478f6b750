package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"feishu-relay/book"
)

// The kinds of records in an agent's book.
const (
	kindMail = "mail" // the envelope of a message that was sent, until it is settled
	kindSent = "sent" // what is known of it: a sentMail under the same key
	kindDead = "dead" // a deadRecord under the same key
	kindTask = "task"
	kindPair = "pair" // the messages that were exchanged with an agent lately
	// What was handled, without a value: see the keys in keys.go.
	kindSeen = "seen"
	kindCopy = "copy" // stamps of signed mail
)

// Beyond these bounds the oldest is forgotten: then a message may be delivered again, and a copy of a signed
// one accepted.
const (
	maxSeen   = 35_000 // about 7 a message
	maxCopies = 50_000
)

// state is the agent's book, which any goroutine may write to.
type state struct {
	mu   sync.Mutex
	book *book.Book // guarded by mu
}

// openState opens the book in the agent's own folder.
func openState(root *os.Root, log *slog.Logger) (*state, error) {
	unbounded := book.Bound{Count: math.MaxInt, Bytes: math.MaxInt64} // the tables have bounds of their own
	b, err := book.Open(filepath.Join(root.Name(), "state"), book.Options{Logger: log, Kinds: map[string]book.Bound{
		kindMail: unbounded, kindSent: unbounded, kindDead: {Count: maxDead, Bytes: maxDeadBytes}, kindTask: unbounded,
		kindPair: {Count: maxPairs}, kindSeen: {Count: maxSeen}, kindCopy: {Count: maxCopies},
	}})
	if err != nil {
		return nil, err
	}
	return &state{book: b}, nil
}

// commit writes records with one write. With an error, none is there.
func (s *state) commit(records ...book.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.Commit(records...)
}

// load reads a record into v, or returns [book.ErrNotFound].
func (s *state) load(kind, key string, v any) error {
	raw, err := s.book.Load(kind, key)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// has reports whether there is a record; "" is not a key.
func (s *state) has(kind, key string) bool {
	if key == "" {
		return false
	}
	_, err := s.book.Load(kind, key)
	return err == nil
}

// marks are records without a value; "" is not a key.
func marks(kind string, keys ...string) (records []book.Record) {
	for _, key := range keys {
		if key != "" {
			records = append(records, book.Record{Kind: kind, Key: key, Value: struct{}{}})
		}
	}
	return records
}

// each passes all records to f, in the order of their commits. One that f refuses is
// left out, with a warning, and deleted.
func (s *state) each(log *slog.Logger, f func(kind, key string, value json.RawMessage) error) error {
	var broken []book.Record
	err := s.book.Each(func(kind, key string, value json.RawMessage) error {
		if err := f(kind, key, value); err != nil {
			log.Warn("a record of the mailbox is left out", "kind", kind, "key", key, "err", err)
			broken = append(broken, book.Record{Kind: kind, Key: key})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the mailbox's book: %w", err)
	}
	if len(broken) > 0 {
		return s.commit(broken...)
	}
	return nil
}

func (s *state) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.Close()
}

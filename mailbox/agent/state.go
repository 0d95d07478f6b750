package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"feishu-relay/book"
	"feishu-relay/mailbox"
)

// The kinds of records in an agent's book.
const (
	kindMail   = "mail"   // the envelope of a letter, as it was encoded
	kindLetter = "letter" // what is known of it: a letterState under the same key
	kindTask   = "task"
	kindPair   = "pair" // the messages that were exchanged with an agent lately
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

// openBook opens the book in the agent's own folder.
func openBook(root *os.Root, log *slog.Logger) (*book.Book, error) {
	unbounded := book.Bound{Count: math.MaxInt, Bytes: math.MaxInt64} // the tables have bounds of their own
	return book.Open(filepath.Join(root.Name(), "state"), book.Options{Logger: log, Kinds: map[string]book.Bound{
		kindMail: unbounded, kindLetter: unbounded, kindTask: unbounded, kindPair: {Count: maxPairs},
		kindSeen: {Count: maxSeen}, kindCopy: {Count: maxCopies},
	}})
}

// restore takes in what is in the book. A record that cannot be read is left out, with a warning, and deleted, as is an
// envelope without its letter.
func (a *Agent) restore() error {
	broken, orphans := []book.Record{}, map[string]bool{} // orphans by name
	err := a.book.Each(func(kind, key string, value json.RawMessage) (err error) {
		switch kind {
		case kindMail:
			orphans[key] = true
		case kindLetter:
			err = a.restoreLetter(key, value)
		case kindTask:
			var t task
			err = json.Unmarshal(value, &t)
			a.tasks[key] = t
		case kindPair:
			var list []exchange
			err = json.Unmarshal(value, &list)
			a.pairs.Add(mailbox.AgentID(key), list)
		}
		if err != nil {
			a.log.Warn("a record of the mailbox is left out", "kind", kind, "key", key, "err", err)
			broken = append(broken, book.Record{Kind: kind, Key: key})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the mailbox's book: %w", err)
	}
	for n := range a.all() {
		delete(orphans, n.name)
	}
	for name := range orphans {
		broken = append(broken, book.Record{Kind: kindMail, Key: name})
	}
	return a.commit(broken...)
}

// commit writes records with one write, and takes in the tasks and exchanges among them. With an error, none is there.
func (a *Agent) commit(records ...book.Record) error {
	if err := a.book.Commit(records...); err != nil {
		return err
	}
	for _, r := range records {
		switch v := r.Value.(type) {
		case task:
			a.tasks[r.Key] = v
		case []exchange:
			a.pairs.Add(mailbox.AgentID(r.Key), v)
		case nil:
			if r.Kind == kindTask {
				delete(a.tasks, r.Key)
			}
		}
	}
	return nil
}

// has reports whether the book has a record.
func (a *Agent) has(kind, key string) bool {
	_, err := a.book.Load(kind, key)
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

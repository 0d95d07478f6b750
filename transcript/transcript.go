// Package transcript keeps the shared record of the messages of each group: one
// JSONL file a chat, in a folder that any number of sidecars share.
//
// # Use
//
// [Open] a folder, [Store.Append] messages, read the end of a chat with
// [Store.Tail], show and search it page by page with [Store.Page]. A Store is safe for
// concurrent use; chats do not wait for each other, and readers do not wait for
// writers.
//
// # Each message once
//
// The transcript is its own index: an appender takes the lock of the file,
// reads the lines that others wrote since its last call, and appends only if it
// has not read the message_id. There is no second file that could disagree
// after a crash. An appender remembers the last 8,192 messages of a chat; at
// first it reads only the end of the file, and the rest when a message arrives
// that is older than that end.
//
// Other programs may write the same messages without a message_id. A line without
// one is the same message as a line of the same role, sender and content near it,
// whose time differs by at most five seconds: readers get one of them, the one with
// an id if they read both.
//
// # Edits
//
// The file is only appended to: an edit of a recorded message is a line of its own
// that names the message in edit_of. Tails and pages return the message once, with the
// newest content.
//
// # Torn lines, other writers
//
// A process that is killed while it writes leaves a part of a line. The next append ends that
// line first, so that no other message is lost. Files and the folder may also be edited, cut,
// replaced or moved away at any time: the next call uses the files that are at the path then.
// A line that is not an entry is skipped and counted in [Store.Skipped]; a whole entry in the
// same line after a part of another is still found. Line ends may be CRLF, invalid UTF-8 is
// read as U+FFFD, and a ts may be a string, a fraction or seconds.
//
// # Files
//
// The file of chat oc_x on channel feishu is feishu_oc_x.jsonl. Beyond 64 MiB it is
// renamed to feishu_oc_x.jsonl.1, the next one to feishu_oc_x.jsonl.2 and so on: a
// rotated file keeps its name. The newest eight are kept. The cost of reading the
// end does not depend on the size: it is read backwards, in blocks. Appends
// survive the death of the process, but may not survive a power cut.
package transcript

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// ErrBusy is returned by Append if another process held the lock of the chat's
// file for ten seconds: that process is stopped or paused. Nothing was written.
var ErrBusy = errors.New("transcript is locked by another process")

// Options of a [Store]; nil and zero fields mean the defaults.
type Options struct {
	// Logger gets warnings about skipped lines and failed rotations; nil
	// discards.
	Logger *slog.Logger

	rotateSize int64 // bytes at which a chat's file is rotated
	keep       int   // rotated files of a chat
	maxOpen    int   // chats whose files are kept open; beyond it the one least recently appended to is closed
}

// Store is a folder of transcripts.
type Store struct {
	opts    Options
	dir     safefile.Folder
	chats   *lru.Cache[chatKey, *chatLog] // those appended to
	skipped atomic.Int64
	closed  atomic.Bool
}

type chatKey struct{ channel, chatID string }

// Open opens the folder dir, and makes it if it is missing. It opens no file yet.
func Open(dir string, opts *Options) (*Store, error) {
	s := &Store{dir: safefile.Folder{Path: dir, Closed: os.ErrClosed}}
	o := &s.opts
	if opts != nil {
		*o = *opts
	}
	o.rotateSize, o.keep = cmp.Or(o.rotateSize, 64<<20), cmp.Or(o.keep, 8)
	o.maxOpen = cmp.Or(o.maxOpen, 128) // with all their ids they take about 50 MB
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if kind := safefile.NetworkFS(dir); kind != "" {
		o.Logger.Warn("transcripts are on a network file system: locks and appends of several hosts are unreliable there",
			"dir", dir, "kind", kind)
	}
	_, err := s.dir.Open(true)
	if err == nil {
		s.chats, err = lru.NewWithEvict(o.maxOpen, func(_ chatKey, l *chatLog) { l.retire() })
	}
	if err != nil {
		return nil, fmt.Errorf("open transcripts: %w", err)
	}
	return s, nil
}

// Close closes the files. It does not wait for running calls, which finish or return
// [os.ErrClosed], as all later ones do. It may be called again.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.chats.Purge()
	return s.dir.Close()
}

// Skipped counts the lines that were not entries, each time one was read.
func (s *Store) Skipped() int64 { return s.skipped.Load() }

// Append adds e at the end of the chat's transcript, unless it contains a message
// with this message_id or, for an entry without one, the same message; added reports
// whether it appended e. A content that does not fit into a line of [relay.MaxLine] bytes
// is cut and ends in [relay.CutMark]; [relay.ErrTooLarge] means that e is too long without it.
//
// A nil error means that the message is in the file, written by this or another
// process. After an error it is unknown whether it is there; the caller should
// retry. Entries of one goroutine are in the order of its calls.
func (s *Store) Append(channel, chatID string, e Entry) (added bool, err error) {
	if !e.valid() {
		return false, errors.New("append to transcript: the role is neither user nor assistant")
	}
	a := addition{Entry: e}
	// The chat's mutex is released between attempts.
	err = retry(func() (err error) {
		if s.closed.Load() {
			return os.ErrClosed
		}
		l := s.lock(chatKey{channel, chatID})
		defer l.unlock()
		added, err = l.append(&a)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("append to transcript %s: %w", fileName(channel, chatID), err)
	}
	return added, nil
}

// retry calls try until it gets the lock of a file, at most for lockWait.
func retry(try func() error) error {
	if err := try(); !errors.Is(err, jsonl.ErrLocked) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), lockWait, ErrBusy)
	defer cancel()
	return jsonl.Retry(ctx, try)
}

// lock returns the appending side of a chat, locked.
func (s *Store) lock(key chatKey) *chatLog {
	for {
		l, ok := s.chats.Get(key)
		if !ok {
			l = &chatLog{store: s, name: fileName(key.channel, key.chatID)}
			l.log = jsonl.Log{Folder: &s.dir, Name: l.name, Max: s.opts.rotateSize}
			if other, ok, _ := s.chats.PeekOrAdd(key, l); ok {
				l = other
			}
		}
		l.mu.Lock()
		if !l.retired.Load() {
			return l
		}
		l.unlock() // it was evicted between the lines above
	}
}

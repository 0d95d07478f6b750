// Package transcript keeps the shared record of the messages of each group: one
// JSONL file a chat, in a folder that any number of sidecars share.
//
// # Use
//
// [Open] a folder, [Store.Append] messages, read the end of a chat with
// [Store.Tail], walk further back with [Store.Back], show and search it page by
// page with [Store.Page], watch it with [Store.Follow]. A Store is safe for
// concurrent use; chats do not wait for each other, and readers do not wait for
// writers.
//
// # Each message once
//
// The transcript is its own index: an appender takes the lock of the file,
// reads the lines that others wrote since its last call, and appends only if it
// has not read the message_id. There is no second file that could disagree
// after a crash. An appender remembers at most [MaxIDs] messages a chat; at
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
// The file of chat oc_x on channel feishu is feishu_oc_x.jsonl. Beyond
// [Options.RotateSize] it is renamed to feishu_oc_x.jsonl.1, the next one to
// feishu_oc_x.jsonl.2 and so on: a rotated file keeps its name, so that a
// reader never reads it twice. The oldest are deleted. The cost of reading the
// end does not depend on the size: it is read backwards, in blocks. Appends
// survive the death of the process, but may not survive a power cut.
package transcript

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// Errors that callers test for.
var (
	// ErrClosed is returned by every call after [Store.Close].
	ErrClosed = errors.New("transcript is closed")
	// ErrReadOnly is returned by Append if the store was opened read-only.
	ErrReadOnly = errors.New("transcript was opened read-only")
	// ErrBusy is returned by Append if another process held the lock of the chat's
	// file for ten seconds: that process is stopped or paused. TryAppend does not
	// wait that long. Nothing was written.
	ErrBusy = errors.New("transcript is locked by another process")
	// ErrEntry is returned by Append for an entry that can never be written:
	// its role is unknown, or it is too long without its content.
	ErrEntry = errors.New("entry cannot be written")
)

// Options of a [Store]; nil and zero fields mean the defaults.
type Options struct {
	// RotateSize is the size in bytes at which a chat's file is rotated; 0
	// means 64 MiB.
	RotateSize int64
	// Keep is how many rotated files of a chat are kept; 0 means 8. Older ones
	// are deleted.
	Keep int
	// MaxOpen is how many chats' files are kept open between appends; 0 means
	// 256. The one least recently appended to is closed.
	MaxOpen int
	// Memory is about how many bytes of all chats are kept in memory; 0 means
	// 32 MiB. Beyond it the least recently used chat is dropped, and read again
	// when needed.
	Memory int64
	// ReadOnly opens a folder that must exist and makes no file in it.
	ReadOnly bool
	// Logger gets warnings about skipped lines and failed rotations; nil
	// discards.
	Logger *slog.Logger
}

// Store is a folder of transcripts.
type Store struct {
	opts    Options
	log     *slog.Logger
	dir     safefile.Folder
	chats   *lru.Cache[chatKey, *chatLog] // those appended to
	memory  atomic.Int64                  // bytes of memory that chats take
	seed    maphash.Seed
	skipped atomic.Int64
	done    context.Context // ended by Close
	listed  listing
	close   func() error
}

// Open opens the folder dir, and makes it if it is missing, unless
// opts.ReadOnly is set. It opens no file yet.
func Open(dir string, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.RotateSize <= 0 {
		o.RotateSize = 64 << 20
	}
	if o.Keep <= 0 {
		o.Keep = 8
	}
	if o.MaxOpen <= 0 {
		o.MaxOpen = 256
	}
	if o.Memory <= 0 {
		o.Memory = 32 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if kind := safefile.NetworkFS(dir); kind != "" && !o.ReadOnly {
		o.Logger.Warn("transcripts are on a network file system: locks and appends of several hosts are unreliable there",
			"dir", dir, "kind", kind)
	}
	s := &Store{opts: o, log: o.Logger, dir: safefile.Folder{Path: dir, Closed: ErrClosed},
		seed: maphash.MakeSeed()}
	var end context.CancelFunc
	s.done, end = context.WithCancel(context.Background())
	_, err := s.dir.Open(!o.ReadOnly)
	if err == nil {
		s.chats, err = lru.NewWithEvict(o.MaxOpen, func(_ chatKey, l *chatLog) { l.retire() })
	}
	if err != nil {
		end()
		return nil, errors.Join(fmt.Errorf("open transcripts: %w", err), s.dir.Close())
	}
	s.close = sync.OnceValue(func() error {
		end()
		s.chats.Purge()
		return s.dir.Close()
	})
	return s, nil
}

// is reports whether a name in the folder refers to the file that info describes.
func (s *Store) is(file string, info fs.FileInfo) bool {
	named, err := s.dir.Stat(file)
	return err == nil && os.SameFile(named, info)
}

// Close closes the files and ends every [Store.Follow]. It does not wait for
// running calls, which finish or return an error. It may be called again.
func (s *Store) Close() error { return s.close() }

func (s *Store) closed() bool { return s.done.Err() != nil }

// Skipped counts the lines that were not entries, each time one was read.
func (s *Store) Skipped() int64 { return s.skipped.Load() }

// Append adds e at the end of the chat's transcript, unless it contains a message
// with this message_id or, for an entry without one, the same message; added reports
// whether it appended e. A content that does not fit into a line of [MaxLine] bytes
// is cut and ends in [CutMark].
//
// A nil error means that the message is in the file, written by this or another
// process. After an error it is unknown whether it is there; the caller should
// retry. Entries of one goroutine are in the order of its calls.
func (s *Store) Append(channel, chatID string, e Entry) (added bool, err error) {
	return s.append(channel, chatID, e, lockWait)
}

// TryAppend is [Store.Append] for a caller that has other chats to serve: it waits
// for the lock only a few milliseconds, as long as other processes need to write,
// and then returns [ErrBusy].
func (s *Store) TryAppend(channel, chatID string, e Entry) (added bool, err error) {
	return s.append(channel, chatID, e, tryWait)
}

func (s *Store) append(channel, chatID string, e Entry, longest time.Duration) (added bool, err error) {
	if s.opts.ReadOnly {
		return false, ErrReadOnly
	}
	if err := e.check(); err != nil {
		return false, fmt.Errorf("append to transcript: %w", err)
	}
	a := addition{Entry: e, buffer: buffers.Get().(*bytes.Buffer)}
	defer buffers.Put(a.buffer)
	name := ""
	// The chat's mutex is released between attempts.
	err = jsonl.Retry(context.Background(), func(waited time.Duration) error {
		if s.closed() {
			return ErrClosed
		}
		l := s.chat(chatKey{channel, chatID})
		l.mu.Lock()
		for l.retired.Load() { // evicted between the two lines above: get it again
			l.unlock()
			l = s.chat(chatKey{channel, chatID})
			l.mu.Lock()
		}
		defer l.unlock()
		name = l.name
		var err error
		added, err = l.append(&a, waited)
		if errors.Is(err, jsonl.ErrLocked) {
			if waited < longest {
				return err
			}
			err = ErrBusy
		}
		l.log.EndTurn() // even if another process has written the message meanwhile
		return err
	})
	switch {
	case err == nil:
		return added, nil
	case s.closed():
		return false, ErrClosed
	}
	return added, fmt.Errorf("append to transcript %s: %w", name, err)
}

// addition is an entry to be appended.
type addition struct {
	Entry
	line   []byte        // the encoded entry, once it is needed
	buffer *bytes.Buffer // holds line
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

type chatKey struct{ channel, chatID string }

func (s *Store) chat(key chatKey) *chatLog {
	if l, ok := s.chats.Get(key); ok {
		return l
	}
	l := &chatLog{store: s, name: fileName(key.channel, key.chatID)}
	l.log = jsonl.Log{Folder: &s.dir, Name: l.name, Max: s.opts.RotateSize, Fair: true, Left: l.closing}
	if other, ok, _ := s.chats.PeekOrAdd(key, l); ok {
		return other
	}
	return l
}

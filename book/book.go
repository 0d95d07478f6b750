package book

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"feishu-relay/internal/jsonl"
)

// Bounds of every book.
const (
	maxLine    = 16 << 20 // bytes of a record's line: Commit refuses a longer one, Open skips it
	keepBuffer = 1 << 20  // bytes of the buffer that is kept between commits; a larger one is freed
	minGarbage = 4 << 20  // bytes of garbage in the files before a snapshot begins
	maxNamed   = 20       // malformed lines of a file that are logged; the others are counted
)

var (
	// ErrNotFound means that the book has no record with this kind and key.
	ErrNotFound = errors.New("no such record")
	// ErrTooLarge means that a record is larger than the bytes that its kind may have.
	ErrTooLarge = errors.New("the record is too large")
	// ErrChanged means that another program changed a file of the open book.
	ErrChanged = errors.New("the file was changed by another program; restart the sidecar to read it again")
)

// Options of a book. Kinds is required.
type Options struct {
	// Kinds are the kinds that may be committed. Records of another kind that are in the files, as
	// after a downgrade, are kept within the default bounds.
	Kinds map[string]Bound
	// Sync waits in each commit until the disk has it: it survives a power cut, and takes milliseconds.
	Sync bool
	// Forget is how long deleted, replaced and dropped values may stay in the files, at most, if
	// Commit is called at least as often. 0: until a snapshot is due because of its size.
	Forget time.Duration
	Now    func() time.Time // the clock; nil: time.Now
	Logger *slog.Logger     // nil: discard

	garbage int64 // minGarbage; tests set a smaller one
	step    step  // nil in the product
}

// Record is one record of a book.
type Record struct {
	Kind string
	Key  string // valid UTF-8; may be empty if the kind has one record
	// Value is encoded as JSON, unless it is Encoded. A nil Value deletes the record.
	Value any
}

// Encoded is a value in JSON on one line, which the book does not check.
type Encoded []byte

// Book is an open book. One goroutine, its owner, calls Commit, Each and Close; Load and
// Stats may be called from any.
type Book struct {
	opts Options
	disk disk
	lock *os.File

	// The following belong to the owner.
	log    *file // commits are written to it
	torn   bool  // log may have bytes after its size, which have to be removed first
	buf    bytes.Buffer
	enc    *json.Encoder      // to buf
	ends   []int              // of the lines in buf
	cancel context.CancelFunc // ends the running snapshot

	running sync.WaitGroup // the snapshot

	mu           sync.Mutex
	closed       bool // guarded by mu, as the rest is
	index        index
	files        []*file // in the order of the records; the last is log
	skipped      int
	snapshots    int
	retry        int64     // size of the files below which no snapshot begins, since the last one failed
	garbageSince time.Time // since when the files have the text of a removed record; zero: they have none
}

// Open opens the book in the folder dir, making it if it is missing. It fails if another
// process has the book, and if a file cannot be read or written.
func Open(dir string, o Options) (_ *Book, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.garbage == 0 {
		o.garbage = minGarbage
	}
	b := &Book{opts: o, index: newIndex(o.Kinds), cancel: func() {}}
	b.enc = json.NewEncoder(&b.buf)
	b.enc.SetEscapeHTML(false)
	if b.disk, err = openDisk(dir, o.step); err != nil {
		return nil, fmt.Errorf("open book: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.lock, err = b.disk.lock(); err != nil {
		return nil, fmt.Errorf("open book %s: %w", dir, err)
	}
	if err := b.read(); err != nil {
		return nil, fmt.Errorf("open book %s: %w", dir, err)
	}
	return b, nil
}

// read reads the newest snapshot and the logs after it, and removes what is obsolete.
func (b *Book) read() error {
	logs, snapshot, err := b.disk.list()
	if err != nil {
		return err
	}
	if snapshot > 0 {
		if err := b.readFile(snapshotName(snapshot), snapshot, true); err != nil {
			return err
		}
	}
	for _, n := range logs {
		if err := b.readFile(logName(n), n, false); err != nil {
			return err
		}
	}
	if len(logs) > 0 {
		b.log = b.files[len(b.files)-1]
	} else if err := b.begin(max(snapshot, 1)); err != nil {
		return err
	}
	b.index.expire(b.opts.Now().Unix())
	for _, k := range b.index.kinds {
		k.dropped = 0 // they were dropped before
	}
	if b.size() > b.index.live {
		b.garbageSince = time.Unix(1, 0) // it may be old
	}
	info, err := b.log.Stat()
	if err != nil || info.Size() == b.log.size {
		return err
	}
	b.opts.Logger.Warn("removed an unfinished batch from the book", "file", b.log.Name(), "bytes", info.Size()-b.log.size)
	return b.disk.truncate(b.log)
}

// begin makes log n and lets commits go to it.
func (b *Book) begin(n int) error {
	f, err := b.disk.create(logName(n), n)
	if err != nil {
		return err
	}
	if b.opts.Sync {
		if err := b.disk.syncDir(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log, b.files = f, append(b.files, f)
	return nil
}

// readFile adds a file to the book and its records to the index. In a log only whole
// batches count, and the file ends with the last of them.
func (b *Book) readFile(name string, n int, snapshot bool) error {
	f, err := b.disk.open(name, n)
	if err != nil {
		return err
	}
	b.files = append(b.files, f)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	type change struct {
		kind    *kind
		key     string
		place   place
		deleted bool
	}
	var batch []change
	now, malformed := b.opts.Now().Unix(), 0
	err = f.lines(info.Size(), func(text jsonl.Line, number int) error {
		l, ok := parse(text.Text)
		if ok {
			p := place{f, text.Start, int32(len(text.Text)), uint32(min(max(l.time, 0), now))}
			batch = append(batch, change{b.index.kind(l.kind), string(l.key), p, l.value == nil})
		} else if malformed++; malformed <= maxNamed {
			b.opts.Logger.Warn("skipped a malformed line of the book", "file", f.Name(), "line", number)
		}
		if ok && l.more && !snapshot || !ok && len(batch) > 0 {
			return nil
		}
		for _, c := range batch {
			b.index.apply(c.kind, c.key, c.place, c.deleted)
		}
		batch, f.size = batch[:0], text.End
		return nil
	})
	if malformed > maxNamed {
		b.opts.Logger.Warn("skipped more malformed lines of the book", "file", f.Name(), "lines", malformed-maxNamed)
	}
	b.skipped += malformed
	return err
}

// Commit writes records with one write, in their order. If it returns nil they are in the
// book, and also after a kill. If it returns an error the book is as before, and the next
// Commit may succeed. (If the disk refuses even to remove what was written of a batch, a kill
// at that time leaves it unknown whether the batch is in the book.) Without records Commit
// only removes what has become too old.
func (b *Book) Commit(records ...Record) error {
	if b.closed {
		return fmt.Errorf("commit: %w", fs.ErrClosed)
	}
	now := b.opts.Now()
	if err := b.encode(records, now.Unix()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if len(records) > 0 {
		if err := b.write(b.buf.Bytes()); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	b.mu.Lock()
	begin, freed := 0, b.index.freed
	for i, r := range records {
		p := place{b.log, b.log.size + int64(begin), int32(b.ends[i] - begin - 1), uint32(now.Unix())}
		b.index.apply(b.index.kinds[r.Kind], r.Key, p, r.Value == nil)
		begin = b.ends[i]
	}
	b.log.size += int64(begin)
	b.index.expire(now.Unix())
	if b.index.freed != freed && b.garbageSince.IsZero() {
		b.garbageSince = now
	}
	b.mu.Unlock()
	if b.buf.Cap() > keepBuffer {
		b.buf = bytes.Buffer{}
	}
	b.maybeSnapshot(now)
	return nil
}

// encode writes the lines of records to buf and their ends to ends.
func (b *Book) encode(records []Record, now int64) error {
	b.buf.Reset()
	b.ends = b.ends[:0]
	for i, r := range records {
		k := b.index.kinds[r.Kind]
		if k == nil || !utf8.ValidString(r.Key) {
			return fmt.Errorf("record %q %q: want a kind of Options.Kinds and a key in UTF-8", r.Kind, r.Key)
		}
		begin := b.buf.Len()
		b.buf.Write(appendHead(b.buf.AvailableBuffer(), r.Kind, r.Key, now, i < len(records)-1))
		if r.Value != nil {
			b.buf.WriteString(`,"v":`)
		}
		if text, encoded := r.Value.(Encoded); encoded { // the encoder would read it once more
			b.buf.Write(text)
		} else if r.Value != nil {
			if err := b.enc.Encode(r.Value); err != nil {
				return fmt.Errorf("record %q %q: %w", r.Kind, r.Key, err)
			}
			b.buf.Truncate(b.buf.Len() - len("\n"))
		}
		b.buf.WriteString("}\n")
		if n := b.buf.Len() - begin; n > maxLine || int64(n) > k.Bytes {
			return fmt.Errorf("record %q %q of %d bytes: %w", r.Kind, r.Key, n, ErrTooLarge)
		}
		b.ends = append(b.ends, b.buf.Len())
	}
	return nil
}

// write appends data to the log. After an error the log has no byte of it, or torn is set.
func (b *Book) write(data []byte) error {
	if b.torn {
		if err := b.disk.truncate(b.log); err != nil {
			return fmt.Errorf("remove a partial write: %w", err)
		}
		b.torn = false
	}
	err := b.disk.write(b.log, data, b.log.size)
	if err == nil && b.opts.Sync {
		err = b.disk.sync(b.log)
	}
	if err != nil {
		b.torn = b.disk.truncate(b.log) != nil
	}
	return err
}

// Load returns the value of a record from the disk, or [ErrNotFound].
func (b *Book) Load(kind, key string) (json.RawMessage, error) {
	for {
		p, ok := b.find(kind, key)
		if !ok {
			return nil, fmt.Errorf("load %s %s: %w", kind, key, ErrNotFound)
		}
		text := make([]byte, p.size)
		_, err := p.file.ReadAt(text, p.at)
		if errors.Is(err, fs.ErrClosed) && !b.isClosed() {
			continue // a snapshot has moved the record
		}
		l, ok := parse(text)
		if err == nil && (!ok || string(l.kind) != kind || string(l.key) != key) {
			err = ErrChanged
		}
		if err != nil {
			return nil, fmt.Errorf("load %s %s: %w", kind, key, err)
		}
		return l.value, nil
	}
}

// Each passes each record to f in the order of the commits, until f returns an error. The
// value is valid during the call. f may call Load, but not Commit.
func (b *Book) Each(f func(kind, key string, value json.RawMessage) error) error {
	if b.closed {
		return fmt.Errorf("read book: %w", fs.ErrClosed)
	}
	b.running.Wait()
	for _, file := range b.files {
		if err := file.lines(file.size, func(text jsonl.Line, _ int) error {
			l, ok := parse(text.Text)
			if p, is := b.find(string(l.kind), string(l.key)); !ok || !is || p.file != file || p.at != text.Start {
				return nil // malformed or garbage
			}
			return f(string(l.kind), string(l.key), l.value)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Close cancels a running snapshot and lets another process have the book. It may be
// called more than once.
func (b *Book) Close() error {
	b.cancel()
	b.running.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var err error
	for _, f := range b.files {
		err = errors.Join(err, f.Close())
	}
	if b.lock != nil {
		err = errors.Join(err, b.lock.Close())
	}
	return errors.Join(err, b.disk.root.Close())
}

func (b *Book) find(kind, key string) (place, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.index.find(kind, key); p != nil {
		return *p, true
	}
	return place{}, false
}

func (b *Book) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// size is the size of all files. The caller holds mu.
func (b *Book) size() (n int64) {
	for _, f := range b.files {
		n += f.size
	}
	return n
}

package transcript

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"feishu-relay/internal/jsonl"
)

// Bounds of reading a page.
const (
	// maxPageBytes is the most bytes read for the entries of a page. Beyond it
	// the page ends before it is full.
	maxPageBytes = 8 << 20
	// maxContextBytes is the most bytes read for the context of its first
	// entry. Beyond it that context is shorter.
	maxContextBytes = 1 << 20
)

// Query selects a page of a transcript.
type Query struct {
	// Limit is how many entries are shown at most; 0 or less: none.
	Limit int
	// Before is the Earlier of the previous page; "": the page ends with the
	// newest entry.
	Before string
	// Text selects the entries whose content, sender or sender_name contains
	// it, ignoring case; "": all entries.
	Text string
	// Context is how many entries before each selected one are added.
	Context int
}

// Page is a piece of a transcript.
type Page struct {
	// Entries are the selected ones and their context, oldest first. A selected
	// entry directly follows the Context entries that precede it in the chat.
	Entries []Entry
	// Shown are the indexes in Entries of the selected ones.
	Shown []int
	// Earlier is the cursor of the page before this one; "" if this is the
	// first. It remains valid when messages are appended and the file is
	// rotated.
	Earlier string
}

// Page returns a page of a chat, an empty one for a chat without a transcript.
// The cost does not depend on where in the transcript it is. A page may have
// fewer entries than the limit, even none, and still have an Earlier.
//
// If a message occurs several times in a page, only the oldest copy is returned. A
// message may be on two pages: callers that join pages compare message_id. An edit
// replaces the content of its message; after a page with a Before, 256 KiB of the same
// file are searched for edits.
//
// The error is [ErrCursor] or [ErrCursorGone] if Before is not valid.
func (s *Store) Page(channel, chatID string, q Query) (Page, error) {
	if s.closed() {
		return Page{}, ErrClosed
	}
	if q.Limit <= 0 {
		return Page{}, nil
	}
	name := fileName(channel, chatID)
	for range 3 { // read again if the file was cut meanwhile
		page, err := s.page(name, q)
		if errors.Is(err, jsonl.ErrReplaced) {
			continue
		}
		if err != nil {
			return Page{}, fmt.Errorf("read a page of transcript %s: %w", name, err)
		}
		return page, nil
	}
	return Page{}, fmt.Errorf("read a page of transcript %s: %w", name, jsonl.ErrReplaced)
}

func (s *Store) page(name string, q Query) (Page, error) {
	p := pager{store: s, q: q, find: newFinder(q.Text), seen: map[string]struct{}{}}
	f, from, err := s.openBefore(name, q.Before)
	if err != nil {
		return Page{}, err
	}
	if f != nil {
		defer f.Close()
		if q.Before != "" {
			if err := p.edits.takeAfter(f, from); err != nil {
				return Page{}, err
			}
		}
	}
	if _, err := s.walkLines(name, f, from, p.take); err != nil {
		return Page{}, err
	}
	return p.page(), nil
}

// openBefore opens the file in which the page before a cursor ends, and returns
// the place of its end. Without a cursor that is the end of the current file;
// the file is nil if it does not exist.
func (s *Store) openBefore(name, before string) (*os.File, place, error) {
	if before == "" {
		f, size, err := s.openToRead(name)
		return f, place{offset: size}, err
	}
	c, err := parseCursor(before)
	if err != nil {
		return nil, place{}, err
	}
	return s.find(name, c)
}

// pager collects a page from lines passed to it newest first.
type pager struct {
	store *Store
	q     Query
	find  finder

	entries []Entry             // newest first, repeats included
	traces  []trace             // parallel to entries
	shown   []bool              // parallel to entries
	seen    map[string]struct{} // ids of the shown entries
	edits   edits
	found   int // messages shown
	context int // entries still wanted for the last shown one

	read   int64  // bytes, up to and with oldest
	oldest place  // of the last line that was considered for Shown
	line   []byte // that line
	behind int64  // bytes read after it
	more   bool   // the chat has lines before oldest
}

// take adds a line and reports whether more are wanted. Once the page is full,
// lines serve as context and show whether there is an earlier page.
func (p *pager) take(at place, line []byte) bool {
	full := p.found >= p.q.Limit || p.read >= maxPageBytes
	if full {
		p.behind += int64(len(line)) + 1
	} else {
		p.read += int64(len(line)) + 1
		p.oldest, p.line = at, append(p.line[:0], line...)
	}
	if e, ok := p.store.entry(line); ok && !p.edits.take(&e) {
		now := p.edits.shown(e)
		p.add(e, !full && p.find.in(&now))
		p.more = full
	}
	if p.behind >= maxContextBytes {
		p.more = true // unless reading reaches the beginning
		return false
	}
	return !p.more || p.context > 0
}

func (p *pager) add(e Entry, shown bool) {
	t := traceOf(&e)
	if i := slices.IndexFunc(p.traces, t.same); i >= 0 {
		if !t.without { // keep the one with an id
			p.append(e, t, p.shown[i])
			p.entries, p.traces = slices.Delete(p.entries, i, i+1), slices.Delete(p.traces, i, i+1)
			p.shown = slices.Delete(p.shown, i, i+1)
			p.seen[e.MessageID] = struct{}{}
		}
		return
	}
	switch {
	case shown:
		p.context = p.q.Context
		if _, again := p.seen[e.MessageID]; !again || e.MessageID == "" {
			p.found++
			p.seen[e.MessageID] = struct{}{}
		}
	case p.context > 0:
		p.context--
	default:
		return
	}
	p.append(e, t, shown)
}

func (p *pager) append(e Entry, t trace, shown bool) {
	p.entries, p.traces, p.shown = append(p.entries, p.edits.shown(e)), append(p.traces, t), append(p.shown, shown)
}

// page returns the collected page, with the oldest copy of each message.
func (p *pager) page() (page Page) {
	clear(p.seen)
	for i, e := range slices.Backward(p.entries) {
		if p.shown[i] {
			if _, again := p.seen[e.MessageID]; again && e.MessageID != "" {
				continue
			}
			p.seen[e.MessageID] = struct{}{}
			page.Shown = append(page.Shown, len(page.Entries))
		}
		page.Entries = append(page.Entries, e)
	}
	if p.more {
		page.Earlier = cursorOf(p.oldest, p.line).String()
	}
	return page
}

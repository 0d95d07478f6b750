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
	// maxPageBytes is how much is read for the entries of a page. With more, it
	// ends before it is full.
	maxPageBytes = 8 << 20
	// maxContextBytes is how much is read for the context of its first entry.
	// With more, that has less of it.
	maxContextBytes = 1 << 20
)

// Query says which page of a transcript is wanted.
type Query struct {
	// Limit is how many entries are shown at most; 0 or less: none.
	Limit int
	// Before is the Earlier of the page that was read before; "": the page ends
	// with the newest entry.
	Before string
	// Text is what an entry that is shown contains in its content, sender or
	// sender_name, be it in capitals or not; "": every entry is shown.
	Text string
	// Context is how many entries before each shown one are wanted besides.
	Context int
}

// Page is a piece of a transcript.
type Page struct {
	// Entries are the shown ones and their context, oldest first. Right before a
	// shown one stand the Context entries that stand before it in the chat.
	Entries []Entry
	// Shown are the places in Entries of those that were asked for.
	Shown []int
	// Earlier is the cursor of the page before this one; "": nothing stands
	// before this one. It holds while messages are appended and the file is
	// rotated.
	Earlier string
}

// Page returns a page of a chat, none for a chat without a transcript. It costs
// the same wherever in the transcript it is. A page may hold fewer entries than
// the limit, also none, and still have an Earlier.
//
// Of a message that stands several times in what is read for a page the oldest
// copy is shown. One that stands on two pages is shown on both: who joins pages
// joins them by message_id. An edit shows as the content of its message; behind a page
// with a Before it is looked for within 256 KiB of the same file.
//
// The error is [ErrCursor] or [ErrCursorGone] where Before does not fit.
func (s *Store) Page(channel, chatID string, q Query) (Page, error) {
	if s.closed() {
		return Page{}, ErrClosed
	}
	if q.Limit <= 0 {
		return Page{}, nil
	}
	name := fileName(channel, chatID)
	for range 3 { // a file that was cut meanwhile is read again
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

// openBefore opens the file in which the page before a cursor ends, and says
// where; without a cursor that is the end of the file that is being written to,
// nil if there is none.
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

// pager collects a page from lines handed to it newest first.
type pager struct {
	store *Store
	q     Query
	find  finder

	entries []Entry             // newest first, repeats included
	traces  []trace             // beside entries
	shown   []bool              // beside entries
	seen    map[string]struct{} // ids of those shown
	edits   edits
	found   int // messages shown
	context int // entries that the last shown one still wants

	read   int64  // bytes, up to and with oldest
	oldest place  // of the last line that was looked at for being shown
	line   []byte // that line
	behind int64  // bytes read after it
	more   bool   // something stands before oldest
}

// take reports whether more is wanted. Lines after the page is full are
// context, and tell whether there is an earlier page.
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
		p.more = true // most likely
		return false
	}
	return !p.more || p.context > 0
}

func (p *pager) add(e Entry, shown bool) {
	t := traceOf(&e)
	if i := slices.IndexFunc(p.traces, t.same); i >= 0 {
		if !t.without { // the one with an id is kept
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

// page returns what was collected, of each message shown its oldest copy.
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

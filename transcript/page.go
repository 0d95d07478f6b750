package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// Errors of a page's cursor.
var (
	// ErrCursor is returned for a text that is not a cursor of a [Page].
	ErrCursor = errors.New("not a cursor of a transcript")
	// ErrCursorGone is returned if no line is at the place that a cursor names any more: the file was
	// deleted, cut or edited.
	ErrCursorGone = errors.New("the line that the cursor names is gone from the transcript")
)

// Bounds of reading a page.
const (
	// maxPageBytes is the most bytes read for the entries of a page. Beyond it
	// the page ends before it is full.
	maxPageBytes = 8 << 20
	// maxBeforePage is the most bytes read before a full page to learn whether there is an entry.
	maxBeforePage = 1 << 20
)

// Query selects a page of a transcript.
type Query struct {
	// Limit is how many entries are shown at most; 0 or less: none.
	Limit int
	// Before is the Earlier of the previous page; "": the page ends with the
	// newest entry.
	Before string
	// Text selects the entries that [Entry.Contains] it; "": all entries.
	Text string
}

// Page is a piece of a transcript.
type Page struct {
	// Entries are the selected ones, oldest first.
	Entries []Entry
	// Earlier is the cursor of the page before this one; "" if this is the
	// first. It remains valid when messages are appended and the file is
	// rotated.
	Earlier string
}

// Page returns a page of a chat, an empty one for a chat without a transcript.
// The cost does not depend on where in the transcript it is. A page may have
// fewer entries than the limit, even none, and still have an Earlier.
//
// A message that occurs several times in a page is returned once. A
// message may be on two pages: callers that join pages compare message_id. An edit
// replaces the content of its message; after a page with a Before, 1 MiB of the same
// file is searched for edits.
//
// The error is [ErrCursor] or [ErrCursorGone] if Before is not valid.
func (s *Store) Page(channel, chatID string, q Query) (Page, error) {
	if s.closed.Load() {
		return Page{}, os.ErrClosed
	}
	if q.Limit <= 0 {
		return Page{}, nil
	}
	name := fileName(channel, chatID)
	before, from, there := end, end, true
	if q.Before != "" {
		var err error
		if before, err = parseCursor(q.Before); err != nil {
			return Page{}, err
		}
		// No line is longer, so the one at the cursor is read, too.
		from, there = place{before.number, before.offset + relay.MaxLine}, false
	}
	p := pager{store: s, q: q}
	for r, err := range s.back(name, from, nil) {
		if err != nil {
			return Page{}, fmt.Errorf("read a page of transcript %s: %w", name, err)
		}
		if r.at.number == before.number && r.at.offset >= before.offset {
			there = there || r.at == before
			if bytes.Contains(r.text, []byte(`"edit_of":`)) {
				if e, found := s.entry(r.text); found {
					p.edits.take(&e)
				}
			}
			continue
		}
		if !there || !p.take(r) {
			break
		}
	}
	if !there {
		return Page{}, fmt.Errorf("read a page of transcript %s: %w", name, ErrCursorGone)
	}
	return p.page(), nil
}

// cursor is the text of a place, at the beginning of a line.
func (p place) cursor() string { return fmt.Sprintf("%d-%d", p.number, p.offset) }

// parseCursor is the inverse of cursor and refuses any other text.
func parseCursor(text string) (p place, err error) {
	number, offset, _ := strings.Cut(text, "-")
	p.number, _ = strconv.Atoi(number)
	p.offset, _ = strconv.ParseInt(offset, 10, 64)
	if p.cursor() != text || p.number < 0 || p.offset < 0 || p.offset > math.MaxInt64-relay.MaxLine {
		return place{}, ErrCursor
	}
	return p, nil
}

// pager collects a page from lines passed to it newest first.
type pager struct {
	gatherer
	store *Store
	q     Query

	read   int   // bytes, up to and with oldest
	oldest place // of the last line that was considered for the page
	behind int   // bytes read after it
	more   bool  // the chat has lines before oldest
}

// take adds a line and reports whether more are wanted. Once the page is full,
// lines show whether there is an earlier one.
func (p *pager) take(r raw) bool {
	full := len(p.entries) >= p.q.Limit || p.read >= maxPageBytes
	if full {
		p.behind += len(r.text) + 1
	} else {
		p.read += len(r.text) + 1
		p.oldest = r.at
	}
	if e, found := p.store.entry(r.text); found && !p.edits.take(&e) {
		now := p.edits.shown(e)
		if k := knownOf(&e); !p.has(e, k) && !full && now.Contains(p.q.Text) {
			p.add(e, k)
		}
		p.more = full
	}
	if p.behind >= maxBeforePage {
		p.more = true // unless reading reaches the beginning
		return false
	}
	return !p.more
}

// page returns the collected page.
func (p *pager) page() Page {
	page := Page{Entries: p.all()}
	if p.more {
		page.Earlier = p.oldest.cursor()
	}
	return page
}

package redisrelay

import (
	"encoding/json"
	"errors"
	"fmt"

	"feishu-relay/internal/redislink"
)

// unknown is the number of an entry that nobody has counted.
const unknown = -1

// place is a position in a stream: behind the entry id, which is the n-th that
// was ever added to it.
type place struct {
	ID redislink.EntryID `json:"id"`
	N  int64             `json:"n"`
}

// cursor is what a reader keeps on disk.
type cursor struct {
	place
	// History is the last entry that was there before this agent's first start.
	History redislink.EntryID `json:"history,omitzero"`
}

func parseCursor(data []byte) (cursor, error) {
	c := cursor{place: place{N: unknown}}
	if err := json.Unmarshal(data, &c); err != nil {
		return cursor{}, fmt.Errorf("parse cursor: %w", err)
	}
	if c.N < unknown {
		return cursor{}, errors.New("parse cursor: n is negative")
	}
	return c, nil
}

// sight is what one look at the stream shows.
type sight struct {
	exists      bool
	added       int64 // entries ever added; unknown before Redis 7
	length      int64
	first, last redislink.EntryID // of the entries there; ever given out
	holds       bool              // the entry at the cursor is there
}

// gone counts the entries that have left the stream, which happens only at its
// front, by the cap.
func (s sight) gone() int64 { return s.added - s.length }

// whole reports whether all entries that were ever added are there.
func (s sight) whole() bool { return !s.exists || s.added == s.length }

// lacks reports whether entries of an earlier look were neither there nor counted any more.
func (s sight) lacks(before sight) bool {
	return before.exists && (!s.exists || s.last.Compare(before.last) < 0 || s.added < before.added)
}

// replaces reports whether the stream is another than the one that was read up
// to at, or an older state of it: reading has to begin again. An entry may be
// missing because the cap trimmed it; then all that is there lies behind it,
// and as many as it counted have left.
func (s sight) replaces(at place) bool {
	switch {
	case at.ID == (redislink.EntryID{}):
		return false
	case !s.exists || s.last.Compare(at.ID) < 0:
		return true
	case s.holds:
		return s.added != unknown && at.N > s.added
	case s.length > 0 && s.first.Compare(at.ID) <= 0: // equal: another entry has its id
		return true
	}
	return s.added != unknown && at.N > s.gone()
}

// adjust numbers a place that is not numbered, where the stream tells, and
// counts the entries that the cap took before they were read.
func (s sight) adjust(at place) (_ place, missed int64) {
	if !s.exists {
		return at, 0
	}
	if s.added == unknown {
		at.N = unknown
		return at, 0
	}
	if at.N > s.added {
		at.N = s.gone() // nothing was read of this stream yet
	}
	passed := s.gone() // at least these must have been read
	if s.last == at.ID {
		passed = s.added
	}
	if at.N == unknown {
		if s.last == at.ID {
			at.N = passed
		}
		return at, 0
	}
	missed = max(0, passed-at.N)
	at.N += missed
	return at, missed
}

// lag counts the entries behind at, as far as the stream tells.
func (s sight) lag(at place) int64 {
	switch {
	case !s.exists || s.last == at.ID:
		return 0
	case s.added == unknown || at.N == unknown:
		return s.length
	}
	return max(0, s.added-at.N)
}

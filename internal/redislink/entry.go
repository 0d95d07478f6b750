package redislink

import (
	"cmp"
	"strconv"
	"strings"
)

// EntryID is the id of a stream's entry; the zero value is before all others.
type EntryID struct{ MS, Seq uint64 }

// ParseEntry reads an id in the form that Redis writes.
func ParseEntry(text string) (EntryID, bool) {
	ms, seq, ok := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(ms, 10, 64)
	b, errB := strconv.ParseUint(seq, 10, 64)
	id := EntryID{a, b}
	return id, ok && errA == nil && errB == nil && id.String() == text
}

func (id EntryID) String() string {
	return strconv.FormatUint(id.MS, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// Compare orders ids by their order in the stream.
func (id EntryID) Compare(other EntryID) int {
	return cmp.Or(cmp.Compare(id.MS, other.MS), cmp.Compare(id.Seq, other.Seq))
}

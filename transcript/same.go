package transcript

import (
	"hash/maphash"
	"slices"
)

// Limits within which lines of equal text are the same message, if one has no
// id.
const (
	// sameWithin is the most milliseconds between their times.
	sameWithin = 5000
	// sameReach is the most lines between them.
	sameReach = 256
)

func near(a, b int64) bool { return a != 0 && b != 0 && a-b <= sameWithin && b-a <= sameWithin }

// trace is a short form of an entry, by which repeats are recognised.
type trace struct {
	sum     uint64 // of role, sender and content
	ts      int64
	without bool // the entry has no id
}

// traceSeed is shared by all stores: traces are compared in this process only.
var traceSeed = maphash.MakeSeed()

func traceOf(e *Entry) trace {
	var h maphash.Hash
	h.SetSeed(traceSeed)
	for _, text := range [...]string{e.Role, e.Sender, e.Content} {
		_, _ = h.WriteString(text) // never fails
		_ = h.WriteByte(0)
	}
	return trace{h.Sum64(), e.TS, e.MessageID == ""}
}

// same reports whether two traces, of which one has no id, are of the same message.
// A line without a time never is.
func (t trace) same(other trace) bool {
	return (t.without || other.without) && t.sum == other.sum && near(t.ts, other.ts)
}

// known reports whether e is the same message as one yielded before, and
// remembers it.
func (f *follower) known(e *Entry) bool {
	now := traceOf(e)
	if slices.ContainsFunc(f.last, now.same) {
		return true
	}
	if len(f.last) < sameReach {
		f.last = append(f.last, now)
		return false
	}
	f.last[f.next] = now
	f.next = (f.next + 1) % sameReach
	return false
}

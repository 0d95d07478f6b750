package policy

import (
	"cmp"
	"slices"
)

// Depths returns the [Depth] of each of entries, counted among all of them in one
// pass. Every copy of a message has the depth of the first. Unlike in Depth, an
// entry without an id is found among entries too, and one without ts has the ts
// of the entry given before it.
func Depths(entries []Entry, c Count) []int {
	dated := slices.Clone(entries)
	last := int64(1) // for the first ones: before all that have a ts
	for i := range dated {
		dated[i].TS = cmp.Or(dated[i].TS, last)
		last = dated[i].TS
	}
	h := newHistory(dated, nil)
	depths := make([]int, len(dated))
	for i := range dated {
		e := &dated[i]
		if e.MessageID != "" {
			e = h.known[e.MessageID]
		}
		if !e.byUser() {
			depths[i] = h.depth(e, c)
		}
	}
	return depths
}

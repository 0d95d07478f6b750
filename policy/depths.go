package policy

import (
	"cmp"
	"slices"
)

// Depths returns the [Depth] of each of entries, counted among all of them, in
// one go. Of a message that stands several times every copy has the depth of the
// first. Other than in Depth, an entry without an id is found among entries all
// the same, and one without ts is taken to be of the time of the one given before
// it.
func Depths(entries []Entry, c Count) []int {
	dated := slices.Clone(entries)
	last := int64(1) // of the first ones: before all that have a ts
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

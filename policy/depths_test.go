package policy_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"feishu-relay/policy"
)

// slowDepths counts each entry by itself, among all and among those up to its
// time, which must be the same. What has no ts or no id is given one, as Depths
// says.
func slowDepths(t testing.TB, h []policy.Entry, c policy.Count) []int {
	t.Helper()
	h = slices.Clone(h)
	last, first := int64(1), map[string]int{}
	for i := range h {
		h[i].TS = cmp.Or(h[i].TS, last)
		last = h[i].TS
		h[i].MessageID = cmp.Or(h[i].MessageID, fmt.Sprint("without ", i))
		if _, again := first[h[i].MessageID]; !again {
			first[h[i].MessageID] = i
		}
	}
	depths := make([]int, len(h))
	for i := range h {
		m := h[first[h[i].MessageID]]
		depths[i] = policy.Depth(h, m, c)
		before := slices.DeleteFunc(slices.Clone(h), func(e policy.Entry) bool { return e.TS > m.TS })
		if got := policy.Depth(before, m, c); got != depths[i] && first[h[i].MessageID] == i {
			t.Errorf("entry %d: depth %d among those up to its time, %d among all", i, got, depths[i])
		}
	}
	return depths
}

func TestDepthsAreTheDepthOfEach(t *testing.T) {
	eachHistory(t, func(t *testing.T, r *rand.Rand, h []policy.Entry, c policy.Count) {
		if r.IntN(3) == 0 { // a topic group
			for i := range h {
				h[i].ThreadID = cmp.Or(h[i].ThreadID, fmt.Sprint("own", i))
			}
		}
		for i := range h {
			switch r.IntN(20) {
			case 0:
				h[i].TS = 0
			case 1:
				h[i].MessageID = ""
			case 2:
				h[i].TS = h[r.IntN(len(h))].TS
			case 3:
				h[i].Role = "other"
			}
		}
		r.Shuffle(len(h)/2, func(i, j int) { h[i], h[j] = h[j], h[i] })
		given := slices.Clone(h)
		want := slowDepths(t, h, c)
		if got := policy.Depths(h, c); !slices.Equal(got, want) {
			t.Errorf("Depths:\n%v, one by one:\n%v", got, want)
		}
		if !slices.Equal(h, given) {
			t.Error("Depths changed its input")
		}
	})
}

// Copies of a message, which differ in what is of little weight, have one depth.
func TestDepthsOfRepeats(t *testing.T) {
	h := say(t, "u@1 | A@2 | B@3 | A@2 u=1 | B@4 id=b3")
	if got := policy.Depths(h, policy.Count{}); !slices.Equal(got, []int{0, 1, 2, 1, 2}) {
		t.Errorf("Depths = %v", got)
	}
	if got := policy.Depths(nil, policy.Count{}); len(got) != 0 {
		t.Errorf("Depths of nothing = %v", got)
	}
}

// Entries without a ts keep the given order.
func TestDepthsWithoutTimes(t *testing.T) {
	h := say(t, "u@0 | A@0 id=- | B@0 id=- | u@5 id=u5 | A@0 id=- | B@0 id=-")
	if got := policy.Depths(h, policy.Count{}); !slices.Equal(got, []int{0, 1, 2, 0, 1, 2}) {
		t.Errorf("Depths = %v", got)
	}
}

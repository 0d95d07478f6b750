package relay_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"feishu-relay/relay"
)

// naive is what Window promises, written down without regard to cost.
type naive struct {
	start   int
	settled []bool // by line; line i lies behind place i+1
}

func (n *naive) position() int {
	if i := slices.Index(n.settled, false); i >= 0 {
		return max(n.start, i)
	}
	return max(n.start, len(n.settled))
}

func (n *naive) unsettled() (open int) {
	for _, done := range n.settled {
		if !done {
			open++
		}
	}
	return open
}

func TestWindowFollowsTheOldestUnsettledLine(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w, model := relay.NewWindow(0), &naive{}
		var settle []func()
		for range 300 {
			switch rng.IntN(5) {
			case 0, 1:
				s, err := w.Begin(t.Context(), len(settle)+1, 1+rng.IntN(100))
				if err != nil {
					t.Fatal(err)
				}
				settle = append(settle, s)
				model.settled = append(model.settled, false)
			case 2, 3:
				if len(settle) == 0 {
					continue
				}
				i := rng.IntN(len(settle)) // also again: it counts once
				settle[i]()
				model.settled[i] = true
			case 4:
				if got := w.Position(); got != model.position() {
					t.Fatalf("seed %d: position %d, want %d", seed, got, model.position())
				}
			}
			if got, want := w.Unsettled(), model.unsettled(); got != want {
				t.Fatalf("seed %d: %d unsettled, want %d", seed, got, want)
			}
		}
	}
}

func TestWindowBlocksAtItsLimits(t *testing.T) {
	for name, tt := range map[string]struct{ size, fits int }{
		"lines": {size: 1, fits: relay.MaxUnsettled},
		"bytes": {size: relay.MaxUnsettledBytes / 4, fits: 4},
		"a line larger than the limit comes alone": {size: 2 * relay.MaxUnsettledBytes, fits: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := relay.NewWindow(0)
				var settle []func()
				for i := range tt.fits {
					s, err := w.Begin(t.Context(), i+1, tt.size)
					if err != nil {
						t.Fatal(err)
					}
					settle = append(settle, s)
				}
				entered := make(chan error, 1)
				go func() {
					_, err := w.Begin(t.Context(), tt.fits+1, tt.size)
					entered <- err
				}()
				synctest.Wait()
				select {
				case <-entered:
					t.Fatal("one more fits")
				default:
				}
				settle[0]()
				if err := <-entered; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

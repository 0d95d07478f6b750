package link_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
)

// seen is a tap that tells what it saw and passes it.
func seen(to chan<- string) func(*link.Options) {
	return with(func(event string) (feishu.Verdict, []byte) {
		to <- event
		return feishu.Pass, nil
	})
}

func TestPiecesInAnyOrderAreOneEvent(t *testing.T) {
	saw := make(chan string, 1000)
	r := newRig(t, tcp(t), seen(saw))
	bot, feishu := r.ready()
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 50 {
		sum := 2 + rnd.IntN(9)
		whole := strings.Repeat(fmt.Sprint("part ", n), sum)
		cut := len(whole) / sum
		for i, seq := range rnd.Perm(sum) {
			end := (seq + 1) * cut
			if seq == sum-1 {
				end = len(whole)
			}
			feishu.write(pieceFrame(fmt.Sprint("m", n), whole[seq*cut:end], sum, seq))
			if i < sum-1 && rnd.IntN(2) == 0 {
				bot.nothingBefore(feishu) // other frames pass meanwhile
			}
		}
		bot.want(pieceFrame(fmt.Sprint("m", n), whole, 1, 0))
		if got := <-saw; got != whole {
			t.Fatalf("the tap saw %q, want %q", got, whole)
		}
	}
}

// What never becomes whole nobody can read; Feishu delivers it again. As many as are kept, newer ones are read.
func TestWhatNeverBecomesWholeIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), with(func(string) (feishu.Verdict, []byte) { return feishu.Keep, nil }))
		bot, feishu := r.ready()
		for i := range 70 {
			feishu.write(pieceFrame(fmt.Sprint("few", i), "x", 2, 0))
		}
		feishu.write(pieceFrame("few69", "end", 2, 1))
		if got := messageID(feishu.frame()); got != "few69" || r.counted("bad_frame") != 6 {
			t.Errorf("acknowledged %s; %d dropped", got, r.counted("bad_frame"))
		}
		time.Sleep(10*time.Second + 1)
		feishu.write(pieceFrame("late", "x", 2, 0))
		bot.nothingBefore(feishu)
		if r.counted("bad_frame") != 69 {
			t.Errorf("%d dropped", r.counted("bad_frame"))
		}
		big := strings.Repeat("x", 8<<20)
		for i := range 3 {
			feishu.write(pieceFrame(fmt.Sprint("big", i), big, 2, 0))
		}
		bot.nothingBefore(feishu)
		if r.counted("bad_frame") < 71 {
			t.Errorf("%d dropped: 16 MiB are the most", r.counted("bad_frame"))
		}
	})
}

package link_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
)

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

package outgoing

import (
	"time"

	"feishu-relay/internal/wait"
)

// maxPause is the longest pause before a message is sent again.
const maxPause = time.Minute

// backoff is the pause before the retry after n retries: base·2^n, and up to a
// quarter more, at random (from 0 to 1), so that many senders do not come back
// together. It is never over 60 s.
func backoff(n int, base time.Duration, random float64) time.Duration {
	pause := wait.Doubled(max(base, 0), maxPause, n)
	if random > 0 { // false for NaN, too
		pause += time.Duration(float64(pause) / 4 * min(random, 1))
	}
	return min(pause, maxPause)
}

package sidecar

import (
	"encoding/json"
	"os"
	"slices"
	"sync"

	"feishu-relay/internal/safefile"
)

// quarantineMax is the most bytes of malformed lines kept for a look by hand;
// further ones are only counted.
const quarantineMax = 1 << 20

// quarantined keeps malformed lines for a look by hand, at most quarantineMax
// bytes of them.
type quarantined struct {
	root *os.Root
	name string
	mu   sync.Mutex
	size int64
}

// quarantine keeps a malformed line for a look by hand.
func (b *base) quarantine(line []byte) {
	b.metrics.quarantined.Inc()
	q := &b.bad
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size > quarantineMax {
		return
	}
	f, err := safefile.Open(q.root, q.name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		b.problems.set("quarantine", err)
		return
	}
	defer f.Close()
	at, err := f.Stat()
	if err == nil && at.Size() <= quarantineMax {
		if !json.Valid(line) {
			line = quote(string(line))
		}
		_, err = safefile.Append(f, slices.Concat(line, []byte{'\n'}))
		q.size = at.Size()
	}
	if err != nil {
		b.problems.set("quarantine", err)
	}
}

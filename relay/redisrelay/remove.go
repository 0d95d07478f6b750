package redisrelay

import (
	"context"
	"fmt"

	"feishu-relay/internal/redislink"
)

// removePage is how many entries Remove reads at once; each has up to a MiB.
const removePage = 100

// Remove takes the entries out of the stream whose payload is unwanted, and returns how many
// these were. A reader whose position was such an entry, and a publisher that added it last, take
// the stream for another one: what is read or published again for that is dropped as a repeat.
func (q *Queue) Remove(ctx context.Context, unwanted func(payload []byte) bool) (n int, err error) {
	for from := (redislink.EntryID{}); ; {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		page, err := q.publish.XRangeN(calling, q.stream, from.String(), "+", removePage).Result()
		for i := 0; i < len(page) && err == nil; i++ {
			text, _ := page[i].Values["payload"].(string)
			if unwanted([]byte(text)) {
				err = q.publish.XDel(calling, q.stream, page[i].ID).Err()
				n++
			}
			from, _ = redislink.ParseEntry(page[i].ID)
			from.Seq++
		}
		cancel()
		if err != nil {
			return n, fmt.Errorf("remove from the stream: %w", q.explain(err))
		}
		if len(page) < removePage {
			return n, nil
		}
	}
}

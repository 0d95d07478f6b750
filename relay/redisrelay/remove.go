package redisrelay

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
)

// removePage is how many entries Remove reads at once; each has up to a MiB.
const removePage = 100

// Remove takes the entries out of the stream whose payload is unwanted, and returns how many
// these were. A reader whose position was such an entry, and a publisher that added it last, take
// the stream for another one: what is read or published again for that is dropped as a repeat.
func (q *Queue) Remove(ctx context.Context, unwanted func(payload []byte) bool) (n int, err error) {
	for from := "-"; ; {
		page, err := q.entries(ctx, from)
		if err != nil {
			return n, fmt.Errorf("read the stream: %w", q.explain(err))
		}
		var ids []string
		for _, entry := range page {
			for _, value := range entry.Values {
				if text, ok := value.(string); ok && unwanted([]byte(text)) {
					ids = append(ids, entry.ID)
					break
				}
			}
		}
		if len(ids) > 0 {
			removed, err := q.remove(ctx, ids)
			if n += int(removed); err != nil {
				return n, fmt.Errorf("delete from the stream: %w", q.explain(err))
			}
		}
		if len(page) < removePage {
			return n, nil
		}
		last, ok := redislink.ParseEntry(page[len(page)-1].ID)
		if !ok {
			return n, errNoID
		}
		last.Seq++
		from = last.String()
	}
}

func (q *Queue) entries(ctx context.Context, from string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return q.publish.XRangeN(ctx, q.stream, from, "+", removePage).Result()
}

func (q *Queue) remove(ctx context.Context, ids []string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return q.publish.XDel(ctx, q.stream, ids...).Result()
}

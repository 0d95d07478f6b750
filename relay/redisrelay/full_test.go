package redisrelay

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
)

// large is the i-th message of a, of 25 KB.
func large(i int) []byte {
	return fmt.Appendf(nil, `{"relay_msg_id":"m%d","seq":%d,"content":"%s"}`, i, i, strings.Repeat("x", 25_000))
}

// fill takes all memory that Redis has left, as another program does.
func fill(t *testing.T, raw *redis.Client) {
	t.Helper()
	n := 0
	for size := 1_000_000; size >= 10; size /= 10 {
		var err error
		for ; err == nil; n++ {
			err = raw.Set(t.Context(), fmt.Sprint("other", n), bytes.Repeat([]byte{'x'}, size), 0).Err()
		}
		if !redis.HasErrorPrefix(err, "OOM") {
			t.Fatal(err)
		}
	}
}

// A full Redis refuses a message with a clear error and trims nothing for it: the sender publishes it later.
func TestFullRedisKeepsNewMessages(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "48mb")
	raw, q := rawClient(t, srv), open(t, srv.URL(), "a", t.TempDir(), nil)
	e := listenTo(t, q, true)
	receipt := publish(t, q, "", large(0))
	for i := 1; i < 200; i++ {
		receipt = publish(t, q, receipt, large(i))
	}
	fill(t, raw)
	most := func(size string) { must(t, raw.ConfigSet(t.Context(), "maxmemory", size).Err()) }
	most("40mb") // it stays full whatever the connections' buffers free
	for range 10 {
		_, err := q.Publish(t.Context(), [][]byte{large(200)}, receipt)
		if err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("got %v, want out of memory", err)
		}
	}
	if n := raw.XLen(t.Context(), q.stream).Val(); n != 200 {
		t.Errorf("%d of 200 entries are left", n)
	}
	most("48mb")
	must(t, raw.Del(t.Context(), "other0", "other1", "other2").Err())
	publish(t, q, receipt, large(200))
	for i := range 201 {
		e.Want(large(i))
	}
}

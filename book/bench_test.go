package book_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/book"
)

type handled struct {
	Verdict string `json:"verdict"`
	Given   bool   `json:"given"`
	Depth   int    `json:"depth"`
}

var benchKinds = map[string]book.Bound{"handled": {Count: 5000}, "position": {}, "line": {Count: 20_000},
	"all": {Count: 200_000}}

// BenchmarkCommit commits three small records at a time, snapshots included: the id of a
// message with its verdict, its outline, and the position of the lane. The bare one appends as
// many bytes to a file.
func BenchmarkCommit(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v/ours", sync), func(b *testing.B) {
			bk := open(b, b.TempDir(), book.Options{Kinds: benchKinds, Sync: sync})
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				id := fmt.Sprint("oc_a0553eda9014c201e6969b478895c230/om_", n)
				commit(b, bk, set("handled", id, handled{"pass", true, 2}), set("line", id, handled{"user", false, n}),
					set("position", "outbound", n))
			}
			b.ReportMetric(float64(bk.Stats().Snapshots), "snapshots")
		})
		b.Run(fmt.Sprintf("sync=%v/bare", sync), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "bare.jsonl"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			lines := bytes.Repeat([]byte("a line\n"), 55)
			for b.Loop() {
				_, err := f.Write(lines)
				if err == nil && sync {
					err = f.Sync()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package book_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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

// BenchmarkOpen opens a book of 100,000 records and passes them to Each.
func BenchmarkOpen(b *testing.B) {
	const records = 100_000
	dir := b.TempDir()
	bk := open(b, dir, book.Options{Kinds: benchKinds})
	for i := 0; i < records; i += 100 {
		var batch []book.Record
		for j := range 100 {
			id := fmt.Sprint("oc_a0553eda9014c201e6969b478895c230/om_", i+j)
			batch = append(batch, set("all", id, handled{"pass", true, 2}))
		}
		commit(b, bk, batch...)
	}
	closeBook(b, bk)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	bk = open(b, dir, book.Options{Kinds: benchKinds})
	runtime.GC()
	runtime.ReadMemStats(&after)
	memory := float64(after.HeapAlloc-before.HeapAlloc) / records
	closeBook(b, bk)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			bk := open(b, dir, book.Options{Kinds: benchKinds})
			closeBook(b, bk)
		}
		b.ReportMetric(memory, "B/record")
	})
	b.Run("each", func(b *testing.B) {
		bk := open(b, dir, book.Options{Kinds: benchKinds})
		for b.Loop() {
			if err := bk.Each(func(string, string, json.RawMessage) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		closeBook(b, bk)
	})
}

// BenchmarkLoad reads a text of 4 KB back.
func BenchmarkLoad(b *testing.B) {
	bk := open(b, b.TempDir(), book.Options{Kinds: benchKinds})
	commit(b, bk, set("all", "a", strings.Repeat("text", 1000)))
	for b.Loop() {
		if _, err := bk.Load("all", "a"); err != nil {
			b.Fatal(err)
		}
	}
}

package outbox

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func benchFile(b *testing.B) *os.File {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "bare.jsonl"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// benchLine is as long as what Put writes of message("1").
var benchLine = []byte(strings.Repeat("x", 199) + "\n")

func write(b *testing.B, f *os.File) {
	b.Helper()
	if _, err := f.Write(benchLine); err != nil {
		b.Fatal(err)
	}
}

func unlimited(b *testing.B, opts Options) *Box {
	box := openBox(b, b.TempDir(), opts)
	box.pending = -1 << 40 // no backend takes anything here
	return box
}

// BenchmarkPutSync compares the durable mode with bare writes and fsyncs: the
// bars are 0.7 of their rate one by one, and 0.5 where a hundred share a sync.
// On tmpfs it means nothing.
func BenchmarkPutSync(b *testing.B) {
	const group = 100
	b.Run("sequential/ours", func(b *testing.B) {
		box := unlimited(b, Options{Sync: true})
		for b.Loop() {
			put(b, box, "1")
		}
	})
	b.Run("sequential/bare", func(b *testing.B) {
		f := benchFile(b)
		for b.Loop() {
			write(b, f)
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("grouped/ours", func(b *testing.B) {
		box := unlimited(b, Options{Sync: true})
		b.SetParallelism(max(1, group/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := box.Put(message("1")); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("grouped/bare", func(b *testing.B) {
		f := benchFile(b)
		for written := 0; b.Loop(); {
			write(b, f)
			if written++; written%group != 0 {
				continue
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

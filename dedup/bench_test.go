package dedup_test

import (
	"fmt"
	"testing"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/dedup"
)

// keys is more than a window holds, so that each claim is new and evicts.
func benchKeys() []string {
	keys := make([]string, 4*dedup.DefaultSize)
	for i := range keys {
		keys[i] = fmt.Sprintf("om_%032x", i)
	}
	return keys
}

// BenchmarkClaimSettle compares a message's way through a window, its share of
// the journal's writes included, with the bare cache behind it. The bar is a
// ratio of 3.
func BenchmarkClaimSettle(b *testing.B) {
	keys := benchKeys()
	b.Run("ours", func(b *testing.B) {
		w := open(b, folder(b), 0)
		i := 0
		for b.Loop() {
			key := keys[i%len(keys)]
			if w.Claim(key) == dedup.New {
				if err := w.Settle(key, true); err != nil {
					b.Fatal(err)
				}
			}
			i++
		}
	})
	b.Run("memory", func(b *testing.B) {
		w := dedup.Memory(0)
		i := 0
		for b.Loop() {
			key := keys[i%len(keys)]
			if w.Claim(key) == dedup.New {
				_ = w.Settle(key, true) // no I/O
			}
			i++
		}
	})
	b.Run("bare", func(b *testing.B) {
		cache, err := lru.New[string, struct{}](dedup.DefaultSize)
		if err != nil {
			b.Fatal(err)
		}
		i := 0
		for b.Loop() {
			cache.ContainsOrAdd(keys[i%len(keys)], struct{}{})
			i++
		}
	})
}

// BenchmarkOpen5000 is what a restart waits for.
func BenchmarkOpen5000(b *testing.B) {
	root := folder(b)
	w := open(b, root, 0)
	settle(b, w, benchKeys()[:dedup.DefaultSize]...)
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w, err := dedup.Open(root, journal, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

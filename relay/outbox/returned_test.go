package outbox

import (
	"bytes"
	"hash/maphash"
	"testing"

	"feishu-relay/relay"
)

// A line that comes back is recognised once its message is finished, and as long as not too
// many others were put after it; no other line is taken for it.
func TestFinished(t *testing.T) {
	b := openBox(t, t.TempDir(), Options{Secret: "secret"})
	lineOf := func(id string) ([]byte, relay.Seq) {
		t.Helper()
		var line []byte
		put(t, b, id)
		if err := b.Unpublished(func(l []byte) { line = bytes.Clone(l) }); err != nil {
			t.Fatal(err)
		}
		return line, b.seq
	}
	line, seq := lineOf("1")
	if _, ok := b.Finished(line); ok {
		t.Error("finished before it was")
	}
	b.Finish(seq)
	if got, ok := b.Finished(line); !ok || got != seq {
		t.Errorf("got %d, %v, want %d", got, ok, seq)
	}
	changed := bytes.Replace(line, []byte("hello"), []byte("Hello"), 1)
	if _, ok := b.Finished(changed); ok {
		t.Error("another line counts as finished")
	}
	longer := append(bytes.Clone(line), ' ')
	b.returned.seqs[maphash.Bytes(b.returned.seed, longer)] = seq // as if the hashes were the same
	if _, ok := b.Finished(longer); ok {
		t.Error("a line of another length counts as finished")
	}
	delete(b.returned.seqs, maphash.Bytes(b.returned.seed, longer))
	other, _ := lineOf("2")
	if _, ok := b.Finished(other); ok {
		t.Error("a message that is not finished counts as such")
	}
	for range maxReturned - 1 {
		put(t, b, "x")
	}
	if _, ok := b.Finished(line); ok {
		t.Error("an old line is still known")
	}
	if n := len(b.returned.seqs); n > maxReturned {
		t.Errorf("%d lines are remembered", n)
	}
	b.Finish(seq) // of a line that is forgotten
	if _, ok := b.Finished(line); ok {
		t.Error("an old line is known again")
	}
}

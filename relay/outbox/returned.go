package outbox

import (
	"hash/maphash"
	"sync"

	"feishu-relay/relay"
)

// maxReturned is how many of the newest lines are recognised when they come back.
const maxReturned = 1024

// returned recognises the newest lines of a box when they come back from the queue. It compares
// their length and a hash of 64 bits, not their bytes. The seed of the hash is random and known to
// this process only, so other programs cannot search for a line with the same hash. Its methods
// are safe for concurrent use.
type returned struct {
	seed maphash.Seed

	mu    sync.Mutex
	lines [maxReturned]sentLine // by seq; guarded by mu
	seqs  map[uint64]relay.Seq  // by hash, of lines; guarded by mu
}

type sentLine struct {
	seq      relay.Seq
	hash     uint64
	size     int // bytes
	finished bool
}

func newReturned() *returned {
	return &returned{seed: maphash.MakeSeed(), seqs: map[uint64]relay.Seq{}}
}

func (r *returned) add(seq relay.Seq, line []byte) {
	hash := maphash.Bytes(r.seed, line)
	r.mu.Lock()
	defer r.mu.Unlock()
	old := &r.lines[seq%maxReturned]
	if r.seqs[old.hash] == old.seq {
		delete(r.seqs, old.hash)
	}
	*old = sentLine{seq: seq, hash: hash, size: len(line)}
	r.seqs[hash] = seq
}

// Finish records that this process need not handle the message with this seq when it
// comes back from the queue.
func (b *Box) Finish(seq relay.Seq) {
	r := b.returned
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := &r.lines[seq%maxReturned]; l.seq == seq {
		l.finished = true
	}
}

// Finished reports whether line came back from the queue and its message is finished, and
// returns its seq. It knows the newest lines only, and those of this process.
func (b *Box) Finished(line []byte) (relay.Seq, bool) {
	r := b.returned
	hash := maphash.Bytes(r.seed, line)
	r.mu.Lock()
	defer r.mu.Unlock()
	seq, ok := r.seqs[hash]
	known := r.lines[seq%maxReturned]
	return seq, ok && known.size == len(line) && known.finished
}

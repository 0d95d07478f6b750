package book

import (
	"cmp"
	"math"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// Default bounds of a kind.
const (
	defaultCount = 100_000
	defaultBytes = 64 << 20
)

// Bound is how much of a kind a book keeps. Beyond Count or Bytes it drops the record that
// was committed first, which [Stats.Dropped] counts.
type Bound struct {
	Count int           // records; 0: 100,000
	Bytes int64         // of the lines of its records, 0: 64 MiB; Commit refuses a record that is larger
	Age   time.Duration // after which a record is dropped if it was not committed again; 0: never
}

// place is where the line of a record is. A snapshot changes it.
type place struct {
	file *file
	at   int64
	size int32  // in bytes, without the newline
	time uint32 // of the commit, in Unix seconds
}

// kind is the records of one kind.
type kind struct {
	Bound
	places  *lru.LRU[string, *place] // by key, in the order of the commits
	bytes   int64
	dropped uint64
}

// index is where each record is.
type index struct {
	kinds map[string]*kind
	live  int64  // bytes of the lines of all records
	freed uint64 // records that were replaced, deleted or dropped
	// While a snapshot is written, ghosts are the places of records that were in the book when it
	// began and are not any more: the snapshot has them, so that the log gives the same state again.
	ghosts map[spot]bool // nil: no snapshot is written
	frozen int           // files with smaller numbers are the source of the snapshot
}

type spot struct {
	file *file
	at   int64
}

func newIndex(bounds map[string]Bound) index {
	x := index{kinds: map[string]*kind{}}
	for name, b := range bounds {
		x.add(name, b)
	}
	return x
}

func (x *index) add(name string, b Bound) *kind {
	places, err := lru.NewLRU[string, *place](math.MaxInt, nil) // apply removes the oldest itself
	if err != nil {
		panic(err) // only for a size below 1
	}
	b.Count, b.Bytes = cmp.Or(b.Count, defaultCount), cmp.Or(b.Bytes, defaultBytes)
	k := &kind{Bound: b, places: places}
	x.kinds[name] = k
	return k
}

// kind returns the kind with a name, and adds it if it is unknown.
func (x *index) kind(name []byte) *kind {
	if k := x.kinds[string(name)]; k != nil {
		return k
	}
	return x.add(string(name), Bound{})
}

// find returns the place of a record, or nil.
func (x *index) find(name, key string) *place {
	if k := x.kinds[name]; k != nil {
		p, _ := k.places.Peek(key)
		return p
	}
	return nil
}

// apply sets the place of a record, or removes the record, and keeps the bounds of its
// kind. The result depends only on the sequence of the calls.
func (x *index) apply(k *kind, key string, now place, deleted bool) {
	p, ok := k.places.Get(key) // which makes it the newest
	if ok {
		x.free(k, p)
	}
	switch {
	case deleted:
		k.places.Remove(key)
		return
	case ok:
		*p = now
	default:
		k.places.Add(key, new(now))
	}
	k.bytes += now.bytes()
	x.live += now.bytes()
	for k.places.Len() > k.Count || k.bytes > k.Bytes {
		x.dropOldest(k)
		k.dropped++
	}
}

// expire drops the records that are too old at now, in Unix seconds.
func (x *index) expire(now int64) {
	for _, k := range x.kinds {
		for age := int64(k.Age / time.Second); age > 0; {
			_, p, ok := k.places.GetOldest()
			if !ok || now-int64(p.time) <= age {
				break
			}
			x.dropOldest(k)
		}
	}
}

func (x *index) dropOldest(k *kind) {
	if _, p, ok := k.places.RemoveOldest(); ok {
		x.free(k, p)
	}
}

// free accounts for a record that is not at p any more.
func (x *index) free(k *kind, p *place) {
	k.bytes -= p.bytes()
	x.live -= p.bytes()
	x.freed++
	if x.ghosts != nil && p.file.n < x.frozen {
		x.ghosts[spot{p.file, p.at}] = true
	}
}

func (p *place) bytes() int64 { return int64(p.size) + 1 }

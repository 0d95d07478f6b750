package transcript

import (
	"math/bits"
	"slices"
)

// MaxIDs is how many message ids of a chat an appender remembers. A repeat
// after more other messages than that is not recognised.
const MaxIDs = 1 << 13

// idSet holds the hashes of the last MaxIDs ids. Hashes take a quarter of the memory
// of the ids; the chance that two of a set are equal is one in 10^14. Each open chat
// has a set, so it uses a table of places in the ring: a map would take three times
// the memory.
type idSet struct {
	ring []uint64 // in order of arrival
	next int      // index of the oldest one in the full ring
	// table has the place of each id in ring, plus one, at the first free index from the
	// id's own on; 0 is free. Its length is a power of two, and at most half of it is taken.
	table []uint16
}

// idCost is about how many bytes one id takes.
const idCost = 16

func (s *idSet) has(id uint64) bool {
	if len(s.table) == 0 {
		return false
	}
	_, ok := s.find(id)
	return ok
}

// find returns the index of id in the table, or the free index where it
// belongs.
func (s *idSet) find(id uint64) (at int, ok bool) {
	mask := len(s.table) - 1
	for at = int(id) & mask; s.table[at] != 0; at = (at + 1) & mask {
		if s.ring[s.table[at]-1] == id {
			return at, true
		}
	}
	return at, false
}

// add adds id, and removes the oldest if the set is full.
func (s *idSet) add(id uint64) {
	if s.has(id) {
		return
	}
	if len(s.ring) < MaxIDs {
		s.ring = append(s.ring, id)
		if 2*len(s.ring) > len(s.table) {
			s.rehash()
			return
		}
		s.enter(len(s.ring) - 1)
		return
	}
	s.remove(s.ring[s.next])
	s.ring[s.next] = id
	s.enter(s.next)
	s.next = (s.next + 1) % MaxIDs
}

// enter puts the place of an id of the ring into the table.
func (s *idSet) enter(place int) {
	at, _ := s.find(s.ring[place])
	s.table[at] = uint16(place + 1)
}

// rehash doubles the table.
func (s *idSet) rehash() {
	s.table = make([]uint16, 2<<bits.Len(uint(len(s.ring))))
	for place := range s.ring {
		s.enter(place)
	}
}

// remove removes id from the table and moves up the ids after it that it had
// displaced.
func (s *idSet) remove(id uint64) {
	mask := len(s.table) - 1
	free, ok := s.find(id)
	if !ok {
		return
	}
	s.table[free] = 0
	for at := (free + 1) & mask; s.table[at] != 0; at = (at + 1) & mask {
		own := int(s.ring[s.table[at]-1]) & mask
		if (at-own)&mask >= (at-free)&mask { // its own index is not after the free one
			s.table[free], s.table[at] = s.table[at], 0
			free = at
		}
	}
}

// addNewer adds ids, given newest first, as newer than all in the set.
func (s *idSet) addNewer(ids []uint64) {
	newer := make(map[uint64]struct{}, len(ids))
	for _, id := range ids {
		newer[id] = struct{}{}
	}
	old := *s
	*s = idSet{}
	for i := range old.ring {
		id := old.ring[(old.next+i)%len(old.ring)]
		if _, ok := newer[id]; !ok {
			s.add(id)
		}
	}
	for _, id := range slices.Backward(ids) {
		s.add(id)
	}
}

package transcript

import (
	"math/bits"
	"slices"
)

// MaxIDs is how many messages of a chat an appender remembers the ids of. A
// repeat that comes after more others than that is not recognised as one.
const MaxIDs = 1 << 13

// idSet holds the hashes of the last MaxIDs ids. Hashes take a quarter of the
// room of the ids; that two of a set are equal by chance is one in 10^14. There is one
// set for each open chat, so it is a table of places in the ring rather than a
// map, which takes three times the memory.
type idSet struct {
	ring []uint64 // in order of arrival
	next int      // the place in the full ring of the oldest one
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

// find returns the index of id in the table, or the free one where it belongs.
func (s *idSet) find(id uint64) (at int, ok bool) {
	mask := len(s.table) - 1
	for at = int(id) & mask; s.table[at] != 0; at = (at + 1) & mask {
		if s.ring[s.table[at]-1] == id {
			return at, true
		}
	}
	return at, false
}

// add enters id, pushing out the oldest where the set is full.
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

// enter notes the place of an id of the ring in the table.
func (s *idSet) enter(place int) {
	at, _ := s.find(s.ring[place])
	s.table[at] = uint16(place + 1)
}

// rehash makes the table twice as long.
func (s *idSet) rehash() {
	s.table = make([]uint16, 2<<bits.Len(uint(len(s.ring))))
	for place := range s.ring {
		s.enter(place)
	}
}

// remove takes id out of the table and moves those up that were not at their own index
// because of it.
func (s *idSet) remove(id uint64) {
	mask := len(s.table) - 1
	free, ok := s.find(id)
	if !ok {
		return
	}
	s.table[free] = 0
	for at := (free + 1) & mask; s.table[at] != 0; at = (at + 1) & mask {
		own := int(s.ring[s.table[at]-1]) & mask
		if (at-own)&mask >= (at-free)&mask { // its own index is not behind the free one
			s.table[free], s.table[at] = s.table[at], 0
			free = at
		}
	}
}

// addNewer enters ids, given newest first, as newer than all it holds.
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

package relay

import (
	"slices"
	"time"
)

const (
	PointEvery = 100 * time.Millisecond // at least, between two points
	PointsFor  = time.Minute            // how long a point is kept
)

// Points are places, of type P, that a backend was seen to have: the last ones, the oldest first. A backend that
// lost its newest lines, as a failover to a replica does, still has those up to one of them. The zero value has none.
type Points[P any] struct{ list []point[P] }

type point[P any] struct {
	place P
	at    time.Time
}

// Note adds a place, unless the last one was added less than PointEvery ago.
func (p *Points[P]) Note(place P) {
	now := time.Now()
	if n := len(p.list); n > 0 && now.Sub(p.list[n-1].at) < PointEvery {
		return
	}
	old := slices.IndexFunc(p.list, func(p point[P]) bool { return now.Sub(p.at) < PointsFor })
	if old < 0 {
		old = len(p.list)
	}
	p.list = append(p.list[old:], point[P]{place, now})
}

// Places returns them, the oldest first.
func (p *Points[P]) Places() []P {
	places := make([]P, len(p.list))
	for i, at := range p.list {
		places[i] = at.place
	}
	return places
}

// Keep forgets all but the first n.
func (p *Points[P]) Keep(n int) { p.list = slices.Clip(p.list[:n]) }

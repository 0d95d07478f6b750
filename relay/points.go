package relay

import (
	"slices"
	"sort"
	"time"
)

const (
	PointEvery = 100 * time.Millisecond // at least, between two points
	PointsFor  = time.Minute            // how long a point is kept
)

// Points are places, of type P, that a backend was seen to have: the last ones, in their order. A backend that lost its
// newest lines, as a failover to a replica does, still has those up to one of them. The zero value has none.
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

// Newest returns the newest place of which has reports that the backend has it, and false if there is none. The
// places behind it are forgotten. It asks for some only: a backend that has one has all before it, or cut them off.
func (p *Points[P]) Newest(has func(P) (bool, error)) (place P, ok bool, err error) {
	lost := sort.Search(len(p.list), func(i int) bool {
		if err != nil {
			return true
		}
		var there bool
		there, err = has(p.list[i].place)
		return !there
	})
	if err != nil {
		return place, false, err
	}
	p.list = slices.Clip(p.list[:lost])
	if lost == 0 {
		return place, false, nil
	}
	return p.list[lost-1].place, true, nil
}

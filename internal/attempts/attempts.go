// Package attempts counts wrong passwords by the address that they come from.
//
// It never keeps the right one out: programs on one host share an address, and so
// do all behind a reverse proxy. A caller compares first, and asks only about wrong
// ones how to answer.
package attempts

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// PerMinute is how many failures an address may have in a minute.
	PerMinute = 20
	// maxAddresses is how many are remembered; the one that failed least recently goes first.
	maxAddresses = 4096
)

// Failures counts wrong passwords. It is safe for concurrent use.
type Failures struct {
	mu        sync.Mutex
	byAddress *lru.LRU[netip.Prefix, []time.Time] // when the latest were answered, oldest first; guarded by mu
	refused   int64                               // counted, up to PerMinute of an address; guarded by mu
	tooMany   int64                               // counted beyond that; guarded by mu
}

// Totals returns how many failures were counted: within [PerMinute], and beyond.
func (f *Failures) Totals() (refused, tooMany int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused, f.tooMany
}

// New returns an empty Failures.
func New() *Failures {
	byAddress, _ := lru.NewLRU[netip.Prefix, []time.Time](maxAddresses, nil) // fails only for a size below 1
	return &Failures{byAddress: byAddress}
}

// Count counts a failure from an address, as [net/http.Request] has it in RemoteAddr. It
// returns 0, or beyond [PerMinute] the whole seconds until a further one is answered.
func (f *Failures) Count(remoteAddr string) (retryAfter int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	address, now := prefix(remoteAddr), time.Now()
	times, _ := f.byAddress.Get(address)
	times = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	if len(times) < PerMinute {
		f.byAddress.Add(address, append(times, now))
		f.refused++
		return 0
	}
	f.tooMany++
	return int(math.Ceil((time.Minute - now.Sub(times[0])).Seconds()))
}

// prefix is what counts as one address: of IPv6, the 64 bits that one network has.
func prefix(remoteAddr string) netip.Prefix {
	addr, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{} // all of them together
	}
	ip := addr.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits)
	return p
}

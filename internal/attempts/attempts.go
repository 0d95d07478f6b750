// Package attempts counts wrong passwords by the address that they come from.
//
// It never refuses the right one: programs on one host share an address, and so do
// all clients of a reverse proxy. A caller compares the password first, and calls
// [Failures.Count] only for wrong ones.
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
	// maxAddresses is how many addresses are remembered; the one that failed least recently
	// is dropped first.
	maxAddresses = 4096
)

// Failures counts wrong passwords. It is safe for concurrent use.
type Failures struct {
	mu        sync.Mutex
	byAddress *lru.LRU[netip.Prefix, []time.Time] // times of the latest counted failures, oldest first; guarded by mu
	refused   int64                               // failures up to PerMinute of an address; guarded by mu
	tooMany   int64                               // failures beyond that; guarded by mu
}

// Totals returns the numbers of failures: within [PerMinute], and beyond.
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
// returns 0, or beyond [PerMinute] the seconds, rounded up, until the next one is
// answered.
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

// prefix is the part of an address that is counted: of IPv6 the first 64 bits,
// which identify a network.
func prefix(remoteAddr string) netip.Prefix {
	addr, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{} // invalid addresses count as one
	}
	ip := addr.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits)
	return p
}

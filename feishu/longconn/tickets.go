package longconn

import (
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxTickets = 256             // bootstrap answers remembered; beyond, the oldest is forgotten
	ticketLife = 2 * time.Minute // from the answer to the WebSocket; every SDK connects at once
)

// ticket is what a bootstrap answer said, remembered until the bot connects.
type ticket struct {
	upstream string // Feishu's URL, as it came
	app      string
	ping     int // seconds
	given    time.Time
}

// tickets are the answers handed out, by the query of their URL.
type tickets struct {
	mu   sync.Mutex
	all  map[string]ticket // guarded by mu
	last ticket            // the newest; guarded by mu
}

func (t *tickets) add(rawQuery string, tk ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[string]ticket)
	}
	if len(t.all) >= maxTickets {
		oldest := ""
		for q, o := range t.all {
			if oldest == "" || o.given.Before(t.all[oldest].given) {
				oldest = q
			}
		}
		delete(t.all, oldest)
	}
	t.all[canonical(rawQuery)] = tk
	t.last = tk
}

// take finds the ticket of a WebSocket's query. Unless it is to be kept it has an
// end, and is used up.
func (t *tickets) take(rawQuery string, now time.Time, keep bool) (ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := canonical(rawQuery)
	tk, ok := t.all[q]
	if !keep {
		delete(t.all, q)
	}
	return tk, ok && (keep || now.Sub(tk.given) <= ticketLife)
}

// guess makes a ticket for a query that was not handed out by us: it goes where
// the newest one does. Whose connection that is nobody knows.
func (t *tickets) guess(rawQuery string) (ticket, bool) {
	t.mu.Lock()
	tk := t.last
	t.mu.Unlock()
	if tk.upstream == "" {
		return ticket{}, false
	}
	tk.upstream, _, _ = strings.Cut(tk.upstream, "?")
	tk.upstream += "?" + rawQuery
	tk.app = ""
	return tk, true
}

// canonical makes equal what a client may have written in another way.
func canonical(rawQuery string) string {
	v, err := url.ParseQuery(rawQuery)
	if err != nil {
		return rawQuery
	}
	return v.Encode()
}

// split cuts a URL behind its host. Nothing is decoded or put in order.
func split(rawURL string) (base, rest string) {
	host := strings.Index(rawURL, "://") + len("://")
	if end := strings.IndexAny(rawURL[host:], "/?#"); end >= 0 {
		return rawURL[:host+end], rawURL[host+end:]
	}
	return rawURL, ""
}

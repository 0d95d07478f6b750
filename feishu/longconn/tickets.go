package longconn

import (
	"net/url"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	maxTickets = 256             // bootstrap answers remembered; beyond, the oldest is forgotten
	ticketLife = 2 * time.Minute // from the answer to the WebSocket; every SDK connects at once
)

// ticket is what a bootstrap answer said, remembered until the bot connects.
type ticket struct {
	upstream *url.URL // Feishu's
	app      string
	ping     int // seconds
	given    time.Time
}

// tickets are the answers handed out, by the query of their URL.
type tickets struct {
	known *lru.Cache[string, ticket]
}

func newTickets() tickets {
	known, _ := lru.New[string, ticket](maxTickets) // fails only for a size below 1
	return tickets{known}
}

func (t tickets) add(tk ticket) { t.known.Add(canonical(tk.upstream.RawQuery), tk) }

// take returns the ticket of a WebSocket's query, which has an end and is used up.
func (t tickets) take(rawQuery string) (ticket, bool) {
	query := canonical(rawQuery)
	tk, ok := t.known.Peek(query)
	return tk, t.known.Remove(query) && ok && time.Since(tk.given) <= ticketLife
}

// find returns the ticket of a WebSocket's query, as often as it is asked for. A query that we did not hand
// out goes where the newest one does; its ticket has no app, since the app of that connection is unknown.
func (t tickets) find(rawQuery string) (tk ticket, ok bool) {
	if tk, ok = t.known.Peek(canonical(rawQuery)); ok {
		return tk, true
	}
	for _, query := range t.known.Keys() { // from the oldest to the newest
		if newest, known := t.known.Peek(query); known {
			guess := *newest.upstream
			guess.RawQuery = rawQuery
			tk, ok = ticket{upstream: &guess, ping: newest.ping}, true
		}
	}
	return tk, ok
}

// canonical makes equal what a client may have written in another way.
func canonical(rawQuery string) string {
	v, err := url.ParseQuery(rawQuery)
	if err != nil {
		return rawQuery
	}
	return v.Encode()
}

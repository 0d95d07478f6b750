package httpapi

import (
	"math"
	"strconv"
	"strings"

	"feishu-relay/transcript"
)

// Notices returns the notices of a chat that are kept, by time.
type Notices func(channel, chatID string) []transcript.Entry

// noticesFrom separates the two parts of a page's cursor: the cursor of the record, and the time
// from which the page has notices. So each notice is on one page.
const noticesFrom = "@"

// cutCursor returns the record's part of a cursor, and the time before which the page has
// notices.
func cutCursor(text string) (cursor string, until int64, ok bool) {
	cursor, from, found := strings.Cut(text, noticesFrom)
	if !found {
		return cursor, math.MaxInt64, true
	}
	until, err := strconv.ParseInt(from, 10, 64)
	return cursor, until, err == nil && cursor != ""
}

// withNotices merges the notices up to a time into the entries of a page, by time. It returns
// the time from which the page has notices.
func (a *api) withNotices(in transcriptPage, page transcript.Page, until int64, entries []ShownEntry) (
	[]ShownEntry, int64) {
	if a.Notices == nil {
		return entries, until
	}
	from := until
	for _, e := range entries {
		if e.TS != 0 {
			from = min(from, e.TS)
		}
	}
	if page.Earlier == "" {
		from = math.MinInt64
	}
	var merged []ShownEntry
	next := 0
	for _, n := range a.Notices(in.Channel, in.ChatID) {
		if n.TS < from || n.TS >= until || !n.Contains(string(in.Text)) {
			continue
		}
		for next < len(entries) && entries[next].TS <= n.TS {
			merged = append(merged, entries[next])
			next++
		}
		merged = append(merged, ShownEntry{Entry: n})
	}
	return append(merged, entries[next:]...), from
}

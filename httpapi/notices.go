package httpapi

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/transcript"
)

// Notices returns the last n notices of a chat up to a time in Unix milliseconds.
type Notices func(channel, chatID string, n int, until int64) ([]transcript.Entry, error)

// maxNotices is how many notices a page has at most; the older ones are on the pages
// before it.
const maxNotices = 1000

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
	[]ShownEntry, int64, error) {
	if a.Notices == nil {
		return entries, until, nil
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
	notices, err := a.Notices(in.Channel, in.ChatID, maxNotices, until-1)
	if err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(notices, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
	if len(notices) == maxNotices {
		from = max(from, notices[0].TS)
	}
	merged := make([]ShownEntry, 0, len(entries)+len(notices))
	next := 0
	for _, n := range notices {
		if n.TS < from || !n.Contains(string(in.Text)) {
			continue
		}
		for next < len(entries) && entries[next].TS <= n.TS {
			merged = append(merged, entries[next])
			next++
		}
		merged = append(merged, ShownEntry{Entry: n})
	}
	return append(merged, entries[next:]...), from, nil
}

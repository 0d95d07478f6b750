package httpapi

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Limits of transcript answers.
const (
	pageDefault = 50   // entries of a page by default
	maxPage     = 1000 // entries of a page; more are refused
	maxSearch   = 200  // bytes of a search text; more are refused
	// depthContext is how many entries before a shown one are read to count its
	// depth. If the count does not end within them, the depth is at least this.
	depthContext = 64
	// maxLast is how many chats, the most recently written, are listed with
	// their newest message.
	maxLast = 500
)

// Group has the name and limits of a group.
type Group struct {
	Name   string
	Limits GroupLimits
}

// GroupLimits are a group's limits of the stop policy: its own, else those of
// all groups.
type GroupLimits struct {
	MaxDepth  int  `json:"max_depth"`
	Threshold int  `json:"threshold"`
	Check     bool `json:"check"`
}

// transcripts serves GET /v1/transcripts: the records of the chats that the bot
// is in, the most recently written first.
func (a *api) transcripts(*http.Request) (any, error) {
	chats, err := a.Transcripts.Chats()
	if err != nil {
		return nil, err
	}
	type row struct {
		Channel string            `json:"channel"`
		ChatID  string            `json:"chat_id"`
		Bytes   int64             `json:"bytes"`
		TS      relay.Millis      `json:"modified"` // Unix milliseconds
		Name    string            `json:"name,omitempty"`
		Limits  *GroupLimits      `json:"limits,omitempty"`
		Last    *transcript.Entry `json:"last,omitempty"`
	}
	rows := []row{}
	for _, c := range chats {
		chat := relay.ChatID(c.ChatID)
		if !a.Visible(c.Channel, chat) {
			continue
		}
		row := row{Channel: c.Channel, ChatID: c.ChatID, Bytes: c.Size, TS: relay.MillisOf(c.Modified)}
		if a.Group != nil {
			group := a.Group(c.Channel, chat)
			row.Name, row.Limits = group.Name, &group.Limits
		}
		if len(rows) < maxLast {
			row.Last = c.Last
		}
		rows = append(rows, row)
	}
	return map[string]any{"transcripts": rows}, nil
}

// shownEntry is an entry of a transcript with its depth.
type shownEntry struct {
	transcript.Entry
	Depth int `json:"depth,omitempty"` // of a bot's, at least 1
}

// transcript serves GET /v1/transcripts/{channel}/{chat_id}: a page of a record, with the
// notices of its time. Notices do not count towards the limit.
func (a *api) transcript(r *http.Request) (any, error) {
	channel, chat := r.PathValue("channel"), r.PathValue("chat_id")
	query, err := pageQuery(r)
	if err == nil {
		err = cmp.Or(relay.CheckField("channel", channel), relay.CheckField("chat_id", chat))
	}
	if err == nil && !a.Visible(channel, relay.ChatID(chat)) {
		err = errNotInChat
	}
	if err != nil {
		return nil, err
	}
	cursor, until, ok := cutCursor(query.Before)
	if !ok {
		return nil, errCursor
	}
	query.Before = cursor
	page, err := a.Transcripts.Page(channel, chat, query)
	switch {
	case errors.Is(err, transcript.ErrCursor):
		err = errCursor
	case errors.Is(err, transcript.ErrCursorGone):
		err = relay.Errorf(web.CodeGone,
			"before: the transcript no longer has this position, or was edited; start again without before")
	}
	if err != nil {
		return nil, err
	}
	entries, from, err := a.withNotices(channel, chat, page, query.Text, until, a.shown(page))
	if err != nil {
		return nil, err
	}
	earlier := page.Earlier
	if earlier != "" && from < math.MaxInt64 {
		earlier += noticesFrom + strconv.FormatInt(from, 10)
	}
	return struct {
		Channel string       `json:"channel"`
		ChatID  string       `json:"chat_id"`
		Entries []shownEntry `json:"entries"`
		Earlier string       `json:"earlier,omitempty"`
	}{channel, chat, entries, earlier}, nil
}

var errCursor = web.Invalid(`before: want the "earlier" of a page that was read before`)

// pageQuery reads the parameters of a page.
func pageQuery(r *http.Request) (transcript.Query, error) {
	values := r.URL.Query()
	q := transcript.Query{Before: values.Get("before"), Text: values.Get("q"), Context: depthContext}
	var ok bool
	if q.Limit, ok = web.Limit(r, pageDefault, maxPage); !ok {
		return q, web.Invalid("limit: want a number from 1 to %d", maxPage)
	}
	if len(q.Text) > maxSearch || !utf8.ValidString(q.Text) {
		return q, web.Invalid("q: want at most %d bytes of UTF-8", maxSearch)
	}
	return q, nil
}

// shown returns the selected entries of a page, with their depths. Adjacent
// ones are counted together with their context.
func (a *api) shown(p transcript.Page) []shownEntry {
	entries := make([]shownEntry, 0, len(p.Shown))
	for shown := p.Shown; len(shown) > 0; {
		n := 1
		for n < len(shown) && shown[n] == shown[0]+n {
			n++
		}
		row := p.Entries[max(0, shown[0]-depthContext) : shown[0]+n]
		depths := make([]int, len(row))
		if a.Depths != nil {
			depths = a.Depths(row)
		}
		for i := len(row) - n; i < len(row); i++ {
			entries = append(entries, shownEntry{row[i], depths[i]})
		}
		shown = shown[n:]
	}
	return entries
}

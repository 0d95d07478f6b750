package httpapi

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/relay"
	"feishu-relay/transcript"
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

// TranscriptList is the answer of GET /v1/transcripts: the records of the chats that the bot
// is in, the most recently written first.
type TranscriptList struct {
	Transcripts []Transcript `json:"transcripts"`
	Earlier     string       `json:"earlier,omitempty"`
}

// Transcript describes the record of a chat.
type Transcript struct {
	Channel  string            `json:"channel"`
	ChatID   string            `json:"chat_id"`
	Bytes    int64             `json:"bytes"`
	Modified relay.Millis      `json:"modified"`
	Name     string            `json:"name,omitempty"`
	Limits   *GroupLimits      `json:"limits,omitempty"`
	Last     *transcript.Entry `json:"last,omitempty"`
}

func (a *api) transcripts(_ context.Context, in webapi.Paged) (out TranscriptList, err error) {
	chats, err := a.Transcripts.Chats()
	if err != nil {
		return out, err
	}
	chats = slices.DeleteFunc(slices.Clone(chats), func(c transcript.Chat) bool {
		return !a.Visible(c.Channel, relay.ChatID(c.ChatID))
	})
	chats, out.Earlier, err = webapi.Page(chats, in, func(c *transcript.Chat) webapi.Place {
		return webapi.Place{At: c.Modified.UnixMilli(), Key: c.Channel + "/" + c.ChatID}
	})
	out.Transcripts = []Transcript{}
	for _, c := range chats {
		row := Transcript{Channel: c.Channel, ChatID: c.ChatID, Bytes: c.Size, Modified: relay.MillisOf(c.Modified),
			Last: c.Last}
		if a.Group != nil {
			group := a.Group(c.Channel, relay.ChatID(c.ChatID))
			row.Name, row.Limits = group.Name, &group.Limits
		}
		out.Transcripts = append(out.Transcripts, row)
	}
	return out, err
}

// TranscriptPage is the answer of GET /v1/transcripts/{channel}/{chat_id}: a page of a record, with the
// notices of its time, which do not count towards the limit.
type TranscriptPage struct {
	Channel string       `json:"channel"`
	ChatID  string       `json:"chat_id"`
	Entries []ShownEntry `json:"entries"`
	Earlier string       `json:"earlier,omitempty"`
}

// ShownEntry is an entry of a transcript with its depth.
type ShownEntry struct {
	transcript.Entry
	Depth int `json:"depth,omitempty"` // of a bot's, at least 1
}

type transcriptPage struct {
	Channel string `path:"channel"`
	ChatID  string `path:"chat_id"`
	Limit   int    `query:"limit" range:"1..1000" default:"50"`
	Before  string `query:"before"`
	Text    search `query:"q"`
}

// search is a text to search for.
type search string

func (s search) Check() error {
	if len(s) > 200 || !utf8.ValidString(string(s)) {
		return errors.New("want at most 200 bytes of UTF-8")
	}
	return nil
}

var errCursor = relay.Errorf(relay.CodeInvalidRequest, `before: want the "earlier" of a page that was read before`)

func (a *api) transcript(_ context.Context, in transcriptPage) (out TranscriptPage, err error) {
	if !a.Visible(in.Channel, relay.ChatID(in.ChatID)) {
		return out, errNotInChat
	}
	cursor, until, ok := cutCursor(in.Before)
	if !ok {
		return out, errCursor
	}
	page, err := a.Transcripts.Page(in.Channel, in.ChatID, transcript.Query{Before: cursor, Text: string(in.Text),
		Limit: in.Limit})
	switch {
	case errors.Is(err, transcript.ErrCursor):
		return out, errCursor
	case errors.Is(err, transcript.ErrCursorGone):
		return out, relay.Errorf(web.CodeGone,
			"before: the transcript no longer has this position, or was edited; start again without before")
	case err != nil:
		return out, err
	}
	entries, from := a.withNotices(in, page, until, a.shown(in, page))
	out = TranscriptPage{in.Channel, in.ChatID, web.List(entries), page.Earlier}
	if page.Earlier != "" && from < math.MaxInt64 {
		out.Earlier += noticesFrom + strconv.FormatInt(from, 10)
	}
	return out, nil
}

// shown returns the entries of a page, with their depths.
func (a *api) shown(in transcriptPage, p transcript.Page) []ShownEntry {
	depths := make([]int, len(p.Entries))
	if a.Depths != nil {
		depths = a.Depths(in.Channel, in.ChatID, p.Entries)
	}
	entries := make([]ShownEntry, len(p.Entries))
	for i, e := range p.Entries {
		entries[i] = ShownEntry{e, depths[i]}
	}
	return entries
}

package httpapi

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// Limits of an insight.
const (
	insightSpan     = 48 * time.Hour // a day has up to 25 hours
	insightEntries  = 20_000         // messages read from the record
	insightOutcomes = 20_000
	insightAnswers  = 200 // pairs; the most frequent ones
	hourMS          = int64(time.Hour / time.Millisecond)
)

// insight is the statistics of a group in a span of time.
type insight struct {
	Channel  string       `json:"channel"`
	ChatID   relay.ChatID `json:"chat_id"`
	From     int64        `json:"from"` // Unix milliseconds
	To       int64        `json:"to"`
	Complete bool         `json:"complete"` // no messages or outcomes are missing
	Messages spoken       `json:"messages"`
	Hours    []hour       `json:"hours"` // the first begins at From
	Stops    []tally      `json:"stops"` // stopped messages, counted at each bot, by reason
	Judge    verdicts     `json:"judge"`
	Latency  spread       `json:"latency"` // from a message to its delivery, all bots
	Answers  []answer     `json:"answers"`
}

type spoken struct {
	People int `json:"people"`
	Bots   int `json:"bots"`
}

// hour has the counts of one hour.
type hour struct {
	At int64 `json:"at"`
	spoken
	Delivered int    `json:"delivered"` // to bots
	Stopped   int    `json:"stopped"`   // at bots
	Latency   spread `json:"latency"`
}

type tally struct {
	Reason relay.Reason `json:"reason"`
	N      int          `json:"n"`
}

// verdicts are the numbers of the judge's verdicts at all bots.
type verdicts struct {
	Yes   int    `json:"yes"`
	No    int    `json:"no"`
	Error int    `json:"error"`
	Took  spread `json:"took"`
}

// spread is the distribution of n durations, in milliseconds.
type spread struct {
	N   int   `json:"n"`
	P50 int64 `json:"p50"`
	P95 int64 `json:"p95"`
	Max int64 `json:"max"`
}

// answer is how often a bot answered another bot or a person.
type answer struct {
	From relay.AgentName `json:"from"` // the bot
	To   relay.AgentName `json:"to"`   // another one; "": a person
	N    int             `json:"n"`
}

// insight serves GET /v1/insight.
func (a *api) insight(r *http.Request) (any, error) {
	q := r.URL.Query()
	channel, chat := cmp.Or(q.Get("channel"), relay.DefaultChannel), relay.ChatID(q.Get("chat_id"))
	if chat == "" {
		return nil, web.Invalid("chat_id is missing")
	}
	if err := cmp.Or(relay.CheckField("channel", channel), relay.CheckField("chat_id", chat)); err != nil {
		return nil, err
	}
	from, to, err := spanOf(q.Get("from"), q.Get("to"))
	if err != nil {
		return nil, err
	}
	if !a.Visible(channel, chat) {
		return nil, errNotInChat
	}
	var bots []steer.Bot
	if a.Groups != nil {
		g, _ := a.Groups.Group(channel, chat) // without a known group no bot is found by name
		bots = g.Bots
	}
	entries, all, err := a.entriesSince(channel, chat, from, bots)
	if err != nil {
		return nil, err
	}
	outcomes, whole, err := a.Outcomes.Recent(r.Context(), channel, chat, insightOutcomes)
	if err != nil {
		return nil, err
	}
	in := &insight{Channel: channel, ChatID: chat, From: from, To: to, Complete: all && whole}
	in.count(entries, outcomes)
	return in, nil
}

// spanOf reads a span of time, by default the last 24 hours.
func spanOf(first, end string) (from, to int64, err error) {
	to = time.Now().UnixMilli()
	if end != "" {
		if to, err = strconv.ParseInt(end, 10, 64); err != nil || to <= 0 {
			return 0, 0, web.Invalid("to: want Unix milliseconds")
		}
	}
	from = to - 24*hourMS
	if first != "" {
		if from, err = strconv.ParseInt(first, 10, 64); err != nil || from < 0 {
			return 0, 0, web.Invalid("from: want Unix milliseconds")
		}
	}
	if from >= to || to-from > insightSpan.Milliseconds() {
		return 0, 0, web.Invalid("from, to: want a span above 0 and of at most %s", insightSpan)
	}
	return from, to, nil
}

// entriesSince reads a record back to from: each message once, oldest first. all is false if
// the record has more than it reads.
func (a *api) entriesSince(channel string, chat relay.ChatID, from int64, bots []steer.Bot) (
	entries []brief, all bool, err error) {
	seen := map[string]bool{}
	read := 0
	for q := (transcript.Query{Limit: maxPage}); ; {
		page, err := a.Transcripts.Page(channel, string(chat), q)
		if errors.Is(err, transcript.ErrCursorGone) {
			return nil, false, relay.Errorf(web.CodeGone, "the record was edited while it was read; ask again")
		}
		if err != nil {
			return nil, false, err
		}
		older := false
		for _, i := range slices.Backward(page.Shown) {
			e := page.Entries[i]
			older = older || e.TS < from
			if !seen[e.MessageID] {
				seen[e.MessageID] = true
				names := named(e.Content, bots)
				e.Content = "" // not needed
				entries = append(entries, brief{e, names})
			}
		}
		read += len(page.Shown)
		switch {
		case older || page.Earlier == "":
			all = true
		case read >= insightEntries:
		default:
			q.Before = page.Earlier
			continue
		}
		slices.SortStableFunc(entries, func(x, y brief) int { return cmp.Compare(x.TS, y.TS) })
		return entries, all, nil
	}
}

// count fills in from messages and their outcomes. Entries may be older than the span.
func (in *insight) count(entries []brief, outcomes []outcome.Outcome) {
	for at := in.From; at < in.To; at += hourMS {
		in.Hours = append(in.Hours, hour{At: at})
	}
	byID := make(map[relay.MessageID]*brief, len(entries))
	for i := range entries {
		e := &entries[i]
		byID[relay.MessageID(e.MessageID)] = e
		if e.TS < in.From || e.TS >= in.To {
			continue
		}
		h := in.hourOf(e.TS)
		if e.Role != transcript.RoleAssistant {
			in.Messages.People++
			h.People++
			continue
		}
		in.Messages.Bots++
		h.Bots++
	}
	in.countOutcomes(byID, outcomes)
	in.countAnswers(entries, byID, outcomes)
}

func (in *insight) countOutcomes(byID map[relay.MessageID]*brief, outcomes []outcome.Outcome) {
	stops := map[relay.Reason]int{}
	var waits, judged []int64
	perHour := make([][]int64, len(in.Hours))
	for _, o := range outcomes {
		e := byID[o.RelayMsgID]
		if e == nil || e.TS < in.From || e.TS >= in.To {
			continue
		}
		h := in.hourOf(e.TS)
		switch {
		case o.Delivered != 0:
			wait := max(0, int64(o.Delivered)-e.TS)
			waits = append(waits, wait)
			at := (e.TS - in.From) / hourMS
			perHour[at] = append(perHour[at], wait)
			h.Delivered++
		case o.Stopped != "" && o.Stopped != relay.OwnMessage && o.Stopped != relay.Duplicate:
			stops[o.Stopped]++
			h.Stopped++
		}
		if d := o.Decision; d != nil && d.Tier == policy.TierJudge {
			switch {
			case d.Reason == policy.StopJudgeError || o.Stopped == relay.JudgeError:
				in.Judge.Error++
			case d.Allow:
				in.Judge.Yes++
			default:
				in.Judge.No++
			}
			judged = append(judged, d.JudgeMS)
		}
	}
	for i, list := range perHour {
		in.Hours[i].Latency = spreadOf(list)
	}
	in.Latency, in.Judge.Took = spreadOf(waits), spreadOf(judged)
	in.Stops = []tally{}
	for _, reason := range slices.Sorted(maps.Keys(stops)) {
		in.Stops = append(in.Stops, tally{reason, stops[reason]})
	}
	slices.SortStableFunc(in.Stops, func(x, y tally) int { return cmp.Compare(y.N, x.N) })
}

// hourOf returns the hour of a time within the span.
func (in *insight) hourOf(ts int64) *hour { return &in.Hours[(ts-in.From)/hourMS] }

// spreadOf returns the distribution of list, and sorts it.
func spreadOf(list []int64) spread {
	if len(list) == 0 {
		return spread{}
	}
	slices.Sort(list)
	at := func(part float64) int64 { return list[int(part*float64(len(list)-1)+.5)] }
	return spread{len(list), at(.5), at(.95), list[len(list)-1]}
}

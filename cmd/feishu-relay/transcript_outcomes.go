package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"feishu-relay/internal/selftest"
	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

const (
	fatesWithin  = 5 * time.Second // for the running sidecar's answer about a chat
	maxFateEvent = 1 << 20         // bytes of an event
	fateRetry    = 5 * time.Second // before the next try to follow the outcomes
)

// fates are what the running sidecar knows of messages: their depth and what became of them at each
// bot. A transcript holds neither.
type fates struct {
	depth    map[string]int
	outcomes map[string][]outcome.Outcome
}

// fatesOf asks the running sidecar about the end of a chat. Without one the messages are shown alone;
// a person is told so.
func (v *view) fatesOf(ctx context.Context, c transcript.Chat, n int) (f fates) {
	api, err := newLocalAPI("")
	if err == nil {
		f, err = askFates(ctx, api, c, min(max(n, 1), whyEntries))
	}
	if err == nil || v.silent {
		return f
	}
	v.silent = true
	if out, ok := v.out.(*os.File); ok && term.IsTerminal(int(out.Fd())) {
		fmt.Fprintf(v.err, "depth and what became of messages are not shown: %v\n", err)
	}
	return f
}

func askFates(ctx context.Context, api *localAPI, c transcript.Chat, n int) (f fates, err error) {
	ctx, cancel := context.WithTimeout(ctx, fatesWithin)
	defer cancel()
	path := "/v1/transcripts/" + url.PathEscape(c.Channel) + "/" + url.PathEscape(c.ChatID)
	data, err := api.call(ctx, http.MethodGet, path+fmt.Sprintf("?limit=%d", n), nil)
	if err != nil {
		return f, err
	}
	var page struct{ Entries []shownEntry }
	if err := json.Unmarshal(data, &page); err != nil {
		return f, err
	}
	query := url.Values{"channel": {c.Channel}, "chat_id": {c.ChatID}, "limit": {fmt.Sprint(whyOutcomes)}}
	if data, err = api.call(ctx, http.MethodGet, "/v1/outcomes?"+query.Encode(), nil); err != nil {
		return f, err
	}
	var answer struct{ Outcomes []outcome.Outcome }
	if err := json.Unmarshal(data, &answer); err != nil {
		return f, err
	}
	f = fates{map[string]int{}, map[string][]outcome.Outcome{}}
	for _, e := range page.Entries {
		f.depth[e.MessageID] = e.Depth
	}
	for _, o := range answer.Outcomes {
		f.outcomes[string(o.RelayMsgID)] = append(f.outcomes[string(o.RelayMsgID)], o)
	}
	return f, nil
}

// of is what is known of a message, in one line; "" for nothing.
func (f fates) of(p *paint, id string) string {
	var parts []string
	depth := f.depth[id]
	for _, o := range f.outcomes[id] {
		if o.Decision != nil {
			depth = max(depth, o.Decision.Depth)
		}
	}
	if depth > 0 {
		parts = append(parts, fmt.Sprintf("depth %d", depth))
	}
	for _, o := range f.outcomes[id] {
		parts = append(parts, fateText(p, o))
	}
	return strings.Join(parts, ", ")
}

// fateText is an outcome in a few words.
func fateText(p *paint, o outcome.Outcome) string {
	agent := neutral(string(o.Agent))
	switch {
	case o.Stopped != "":
		return p.text(yellow, agent+": "+neutral(string(o.Stopped)))
	case o.Delivered != 0:
		return p.text(green, agent+": delivered")
	}
	return agent + ": waits"
}

// fated is an outcome that came while a chat is followed.
type fated struct {
	chat    transcript.Chat
	outcome outcome.Outcome
}

// followFates hands on what becomes of messages at all bots, as the running sidecar tells it, until
// ctx is done.
func (v *view) followFates(ctx context.Context, hand func(fated) bool) {
	api, err := newLocalAPI("")
	for err == nil && ctx.Err() == nil {
		streamFates(ctx, api, hand)
		select {
		case <-time.After(fateRetry):
		case <-ctx.Done():
		}
	}
}

func streamFates(ctx context.Context, api *localAPI, hand func(fated) bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api.addr+"/v1/events?outcomes=all", nil)
	if err != nil {
		return
	}
	if api.token != "" {
		req.Header.Set("Authorization", "Bearer "+api.token)
	}
	resp, err := selftest.Direct.RoundTrip(req)
	if err != nil {
		return // it may be started later
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxFateEvent)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type    string
			Outcome outcome.Outcome
		}
		if json.Unmarshal([]byte(data), &e) != nil || e.Type != "outcome" {
			continue
		}
		o := e.Outcome
		chat := transcript.Chat{Channel: cmp.Or(o.Channel, relay.DefaultChannel), ChatID: string(o.ChatID)}
		if !hand(fated{chat, o}) {
			return
		}
	}
}

// printFate prints an outcome of a chat that is followed, once a message was delivered or stopped, and
// once each.
func (f *follower) printFate(p *printer, d fated) error {
	key, o := chatKey{d.chat.Channel, d.chat.ChatID}, d.outcome
	if f.chats[key] == nil || o.Stopped == "" && o.Delivered == 0 {
		return nil
	}
	now := fmt.Sprint(o.RelayMsgID, " ", o.Agent, " ", o.Stopped)
	if slices.Contains(f.fated, now) {
		return nil
	}
	if f.fated = append(f.fated, now); len(f.fated) > maxNotices {
		f.fated = slices.Delete(f.fated, 0, 1)
	}
	return p.fate(d.chat, fates{outcomes: map[string][]outcome.Outcome{string(o.RelayMsgID): {o}}}.of(p.paint,
		string(o.RelayMsgID))+" "+p.paint.text(dim, "("+neutral(string(o.RelayMsgID))+")"))
}

// fate prints a line about the message before it, or one that it names.
func (p *printer) fate(c transcript.Chat, text string) error {
	if p.json || text == "" {
		return nil
	}
	lead := ""
	if p.led {
		lead = p.paint.text(dim, chatName(c)) + "  "
	}
	_, err := fmt.Fprintf(p.w, "%s          %s %s\n", lead, p.paint.text(dim, "→"), text)
	return err
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/selftest"
	"feishu-relay/internal/wait"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

const (
	// maxShown is the most messages that are asked for at once.
	maxShown = 1000
	// lookBack is how many of a chat's messages tail -f reads: more than these do not come between two looks.
	lookBack = 250
	// lookEvery is how often tail -f looks for new messages.
	lookEvery = 500 * time.Millisecond
)

const transcriptsPath = "/v1/transcripts?limit=1000"

// transcripts are those of the sidecar, the one that spoke last first.
func (c *client) transcripts(ctx context.Context) ([]httpapi.Transcript, error) {
	var all httpapi.TranscriptList
	err := c.get(ctx, transcriptsPath, &all)
	return newestFirst(all.Transcripts), err
}

func newestFirst(all []httpapi.Transcript) []httpapi.Transcript {
	slices.SortStableFunc(all, func(a, b httpapi.Transcript) int { return cmp.Compare(spoke(b), spoke(a)) })
	return all
}

// spoke is when somebody last spoke in a chat.
func spoke(t httpapi.Transcript) int64 {
	if t.Last != nil && t.Last.TS != 0 {
		return t.Last.TS
	}
	return int64(t.Modified)
}

// chats are the groups, and the chats of the transcripts that are not known as groups: where only this bot has
// spoken, a group may not be known as one yet. The one that spoke last is first.
func (c *client) chats(ctx context.Context) ([]group.Group, error) {
	var groups httpapi.GroupList
	if err := c.get(ctx, "/v1/groups", &groups); err != nil {
		return nil, err
	}
	recorded, err := c.transcripts(ctx)
	if err != nil {
		return groups.Groups, nil // the groups are enough mostly
	}
	var all []group.Group
	for _, t := range recorded {
		g := groupOf(t)
		is := func(o group.Group) bool { return o.Channel == t.Channel && string(o.ChatID) == t.ChatID }
		if i := slices.IndexFunc(groups.Groups, is); i >= 0 {
			g = groups.Groups[i]
			groups.Groups = slices.Delete(groups.Groups, i, i+1)
		}
		all = append(all, g)
	}
	return append(all, groups.Groups...), nil
}

// groupOf is what a transcript says of its group.
func groupOf(t httpapi.Transcript) group.Group {
	return group.Group{Channel: t.Channel, ChatID: relay.ChatID(t.ChatID), Name: t.Name}
}

// entries are the last n messages of a chat, and the notices of their time.
func (c *client) entries(ctx context.Context, channel, chat string, n int) ([]httpapi.ShownEntry, error) {
	var page httpapi.TranscriptPage
	path := "/v1/transcripts/" + url.PathEscape(channel) + "/" + url.PathEscape(chat)
	err := c.get(ctx, fmt.Sprint(path, "?limit=", n), &page)
	return page.Entries, err
}

type transcriptListCommand struct{ asks }

func (c *transcriptListCommand) run(p *cli, _ []string) error {
	a, err := c.client(p, c.JSON, words.Words{})
	if err != nil {
		return err
	}
	return ask(p.ctx, a, http.MethodGet, transcriptsPath, nil, func(b *strings.Builder, all httpapi.TranscriptList) {
		var rows [][]string
		for _, t := range newestFirst(all.Transcripts) {
			rows = append(rows, []string{neutral(t.Channel), neutral(t.ChatID), selftest.Size(t.Bytes),
				moment(time.UnixMilli(spoke(t)))})
		}
		if len(rows) == 0 {
			b.WriteString("There are no transcripts yet: they begin with the first message of a group.\n")
			return
		}
		writeTable(b, "CHANNEL|CHAT|SIZE|LAST MESSAGE", rows)
	})
}

type transcriptShowCommand struct {
	asks
	N    int `short:"n" default:"50"`
	Args struct {
		Chat named `positional-arg-name:"CHAT" required:"yes"`
	} `positional-args:"yes"`
}

func (c *transcriptShowCommand) run(p *cli, _ []string) error {
	return c.show(p, string(c.Args.Chat), c.N, false)
}

type transcriptTailCommand struct {
	asks
	Follow bool `short:"f" long:"follow"`
	N      int  `short:"n" default:"10"`
	Args   struct {
		Chat string `positional-arg-name:"CHAT"`
	} `positional-args:"yes"`
}

func (c *transcriptTailCommand) run(p *cli, _ []string) error {
	return c.show(p, c.Args.Chat, c.N, c.Follow)
}

// show prints the last n messages of a chat, "" for all, and goes on if that is wanted.
func (c *asks) show(p *cli, chat string, n int, follow bool) error {
	if n < 0 || n > maxShown {
		return p.misused("-n: want a number from 0 to %d, got %d", maxShown, n)
	}
	a, err := c.client(p, c.JSON, words.Words{})
	if err != nil {
		return err
	}
	f := follower{client: a, n: max(n, lookBack), known: map[string]map[string]bool{}, looked: map[string]relay.Millis{}}
	if chat != "" {
		all, err := a.transcripts(p.ctx)
		if err != nil {
			return err
		}
		var groups []group.Group
		for _, t := range all {
			groups = append(groups, groupOf(t))
		}
		if f.only, err = findGroup(groups, chat); err != nil {
			return err
		}
	}
	out := &printer{w: p.stdout, paint: a.paint, json: c.JSON, led: chat == ""}
	last, err := f.look(p.ctx)
	for begin := beginOf(last, n); err == nil; begin = 0 {
		for _, s := range last[begin:] {
			if err := out.print(s.chat, s.ShownEntry); err != nil {
				return err
			}
		}
		if !follow || wait.Sleep(p.ctx, lookEvery) != nil {
			return nil
		}
		last, err = f.look(p.ctx)
	}
	return err
}

// said is one message and where it was said.
type said struct {
	chat httpapi.Transcript
	httpapi.ShownEntry
}

// beginOf is where the last n messages begin; notices do not count.
func beginOf(all []said, n int) int {
	begin := len(all)
	for i := len(all) - 1; i >= 0 && n > 0; i-- {
		if begin = i; !isNotice(all[i].ShownEntry) {
			n--
		}
	}
	return begin
}

// follower reads what is new in chats.
type follower struct {
	*client
	only   *group.Group               // nil: all
	n      int                        // of messages of a chat that are read
	known  map[string]map[string]bool // by chat, its newest entries in JSON
	looked map[string]relay.Millis    // by chat, when it was changed, as of the last look
}

// look returns what was said since the last look, by time. An edited or recalled message is new.
func (f *follower) look(ctx context.Context) (fresh []said, err error) {
	all, err := f.transcripts(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		name := t.Channel + "/" + t.ChatID
		at, looked := f.looked[name]
		if looked && at == t.Modified || f.only != nil && name != f.only.Channel+"/"+string(f.only.ChatID) {
			continue
		}
		f.looked[name] = t.Modified
		newest, err := f.entries(ctx, t.Channel, t.ChatID, f.n)
		if err != nil {
			return nil, err
		}
		known := map[string]bool{}
		for _, e := range newest {
			line, _ := relay.Marshal(e) // never fails
			if known[string(line)] = true; !f.known[name][string(line)] {
				fresh = append(fresh, said{t, e})
			}
		}
		f.known[name] = known
	}
	if f.only == nil {
		slices.SortStableFunc(fresh, func(a, b said) int { return cmp.Compare(a.TS, b.TS) })
	}
	return fresh, nil
}

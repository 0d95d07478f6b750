package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jessevdk/go-flags"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/wait"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

const (
	// maxShown is the most messages that -n may ask for, since they stand in memory.
	maxShown = 100_000
	// maxPage is the most messages of a page of the API.
	maxPage = 1000
	// minLookBack is how many of a chat's messages are read at once: more than these do not come between two looks.
	minLookBack = 250
	// lookEvery is how often tail -f looks for new messages.
	lookEvery = 500 * time.Millisecond
)

const transcriptHelp = `list names the groups, the one that spoke last first; show prints the end of one;
tail -f goes on with what is said from now on, in all groups without CHAT. What the running
sidecar has of people's commands, the answers to them, and stops that the group was shown is
listed between the messages and does not count for -n.

CHAT is a chat id (oc_x), channel/chat_id, or the beginning of either, as far as only
one group begins so. It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN), and
without one, or with --dir, reads the folder: --dir, else TRANSCRIPT_DIR, else DATA_DIR/transcripts.

redact removes the text of a message; its --help tells more.

  feishu-relay transcript show -n 20 oc_a1b2
  feishu-relay transcript tail -f`

func (p *cli) addTranscript(c *flags.Command) {
	p.add(c, "list", "name the groups", "", &transcriptListCommand{})
	p.add(c, "show", "print the end of a transcript", "", &transcriptShowCommand{})
	p.add(c, "tail", "print the end of all, or of one, and go on", "", &transcriptTailCommand{})
	p.add(c, "redact", "remove the text of a message", redactHelp, &transcriptRedactCommand{})
}

// source is where transcripts are read: the running sidecar, or a folder.
type source interface {
	// chats are the recorded ones, of which LastTS and Modified say when they spoke last.
	chats(ctx context.Context) ([]transcript.Chat, error)
	// tail returns the last n messages of a chat, and the notices of their time if it has them.
	tail(ctx context.Context, c transcript.Chat, n int) ([]shownEntry, error)
	// place is what errors call it.
	place() string
}

// folder is the flags of the commands that read transcripts.
type folder struct {
	Dir  flags.Filename `long:"dir" value-name:"FOLDER"`
	JSON bool           `long:"json"`
}

// open finds the record, and its chats.
func (f *folder) open(p *cli) (source, []transcript.Chat, error) {
	if f.Dir == "" {
		if c, err := (reach{}).client(p, f.JSON, words.Words{}); err == nil {
			if chats, err := (sidecarRecord{c}).chats(p.ctx); err == nil {
				return sidecarRecord{c}, chats, nil
			}
		}
	}
	dir, err := transcriptDir(string(f.Dir))
	if err != nil {
		return nil, nil, err
	}
	store, err := transcript.Open(dir, &transcript.Options{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no folder %s", dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("TRANSCRIPT_DIR or --dir: %w", err)
	}
	context.AfterFunc(p.ctx, func() { _ = store.Close() }) // only read
	files := fileRecord{dir, store}
	chats, err := files.chats(p.ctx)
	return files, chats, err
}

// transcriptDir finds the folder as the sidecar does. Mistakes in the rest of its
// configuration do not matter.
func transcriptDir(given string) (string, error) {
	if given == "" {
		c, _ := loadConfig()
		given = c.TranscriptDir
	}
	dir, err := fullPath(given)
	if err != nil {
		return "", fmt.Errorf("TRANSCRIPT_DIR: %w", err)
	}
	return dir, nil
}

// sidecarRecord is that of the running sidecar.
type sidecarRecord struct{ *client }

func (r sidecarRecord) place() string { return "the sidecar at " + r.addr }

func (r sidecarRecord) chats(ctx context.Context) (chats []transcript.Chat, err error) {
	var all struct {
		Transcripts []struct {
			Channel  string
			ChatID   string `json:"chat_id"`
			Bytes    int64
			Modified relay.Millis
			Last     *transcript.Entry
		}
	}
	err = r.get(ctx, fmt.Sprintf("/v1/transcripts?limit=%d", maxPage), &all)
	for _, t := range all.Transcripts {
		c := transcript.Chat{Channel: t.Channel, ChatID: t.ChatID, Size: t.Bytes, Modified: t.Modified.Time()}
		if t.Last != nil {
			c.LastTS = t.Last.TS
		}
		chats = append(chats, c)
	}
	return newestFirst(chats), err
}

func (r sidecarRecord) tail(ctx context.Context, c transcript.Chat, n int) (entries []shownEntry, err error) {
	path := "/v1/transcripts/" + url.PathEscape(c.Channel) + "/" + url.PathEscape(c.ChatID)
	for before := ""; ; {
		var page struct {
			Entries []shownEntry
			Earlier string
		}
		query := url.Values{"limit": {fmt.Sprint(min(max(n, 1), maxPage))}, "before": {before}}
		if err := r.get(ctx, path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		entries = append(page.Entries, entries...)
		if before = page.Earlier; before == "" || beginOf(entries, n) > 0 {
			return entries, nil
		}
	}
}

// fileRecord is a folder.
type fileRecord struct {
	dir   string
	store *transcript.Store
}

func (r fileRecord) place() string { return r.dir }

func (r fileRecord) chats(context.Context) ([]transcript.Chat, error) {
	chats, err := r.store.Chats()
	return newestFirst(chats), err
}

func (r fileRecord) tail(_ context.Context, c transcript.Chat, n int) (out []shownEntry, err error) {
	entries, err := r.store.Tail(c.Channel, c.ChatID, n)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out = append(out, shownEntry{Entry: e})
	}
	return out, nil
}

func newestFirst(chats []transcript.Chat) []transcript.Chat {
	spoke := func(c transcript.Chat) int64 { return cmp.Or(c.LastTS, c.Modified.UnixMilli()) }
	slices.SortStableFunc(chats, func(a, b transcript.Chat) int { return cmp.Compare(spoke(b), spoke(a)) })
	return chats
}

func isNotice(e transcript.Entry) bool { return e.Role == transcript.RoleNotice }

// beginOf is where the last n messages begin; notices do not count.
func beginOf(entries []shownEntry, n int) int {
	begin := len(entries)
	for i := len(entries) - 1; i >= 0 && n > 0; i-- {
		if begin = i; !isNotice(entries[i].Entry) {
			n--
		}
	}
	return begin
}

type transcriptListCommand struct{ folder }

func (c *transcriptListCommand) run(p *cli, _ []string) error {
	r, chats, err := c.open(p)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, chat := range chats {
		if c.JSON {
			err := writeLine(p.stdout, struct {
				Channel string `json:"channel"`
				ChatID  string `json:"chat_id"`
				Size    int64  `json:"size"`
				LastTS  int64  `json:"last_ts"`
			}{chat.Channel, chat.ChatID, chat.Size, chat.LastTS})
			if err != nil {
				return err
			}
		}
		last := "-"
		if chat.LastTS != 0 {
			last = moment(time.UnixMilli(chat.LastTS))
		}
		rows = append(rows, []string{neutral(chat.Channel), neutral(chat.ChatID), selftest.Size(chat.Size), last})
	}
	switch {
	case c.JSON:
		return nil
	case len(chats) == 0:
		_, err := fmt.Fprintf(p.stdout, "There are no transcripts in %s yet: they begin with the first message of a group.\n",
			neutral(r.place()))
		return err
	}
	var b strings.Builder
	writeTable(&b, "CHANNEL|CHAT|SIZE|LAST MESSAGE", rows)
	_, err = io.WriteString(p.stdout, b.String())
	return err
}

type transcriptShowCommand struct {
	folder
	N    int `short:"n" default:"50"`
	Args struct {
		Chat string `positional-arg-name:"CHAT" required:"yes"`
	} `positional-args:"yes"`
}

func (c *transcriptShowCommand) run(p *cli, _ []string) error {
	if c.Args.Chat == "" {
		return p.misused("which CHAT? `feishu-relay transcript list` names them")
	}
	return c.show(p, c.Args.Chat, c.N, false)
}

type transcriptTailCommand struct {
	folder
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
func (f *folder) show(p *cli, chat string, n int, follow bool) error {
	if n < 0 || n > maxShown {
		return p.misused("-n: want a number from 0 to %d, got %d", maxShown, n)
	}
	r, chats, err := f.open(p)
	if err != nil {
		return err
	}
	if chat != "" {
		one, err := findChat(p.ctx, r, chats, chat)
		if err != nil {
			return err
		}
		chats = []transcript.Chat{one}
	}
	t := follower{source: r, lookBack: max(n, minLookBack), seed: maphash.MakeSeed(), known: map[string]map[uint64]bool{},
		looked: map[string]time.Time{}}
	out := &printer{w: p.stdout, paint: newPaint(p.stdout), json: f.JSON, led: chat == ""}
	last, err := t.look(p.ctx, chats)
	if err != nil {
		return err
	}
	entries := make([]shownEntry, len(last))
	for i, s := range last {
		entries[i] = s.entry
	}
	last = last[beginOf(entries, n):]
	for {
		for _, s := range last {
			if err := out.print(s.chat, s.entry); err != nil {
				return err
			}
		}
		if !follow || wait.Sleep(p.ctx, lookEvery) != nil {
			return nil
		}
		all, err := r.chats(p.ctx)
		if err != nil {
			return cmp.Or(p.ctx.Err(), err)
		}
		if chat == "" {
			chats = all
		} else if i := slices.IndexFunc(all, func(c transcript.Chat) bool { return chatName(c) == chatName(chats[0]) }); i >= 0 {
			chats[0] = all[i]
		}
		if last, err = t.look(p.ctx, chats); err != nil {
			return err
		}
	}
}

// said is one message and where it was said.
type said struct {
	chat  transcript.Chat
	entry shownEntry
}

// follower reads what is new in chats.
type follower struct {
	source
	lookBack int
	seed     maphash.Seed
	known    map[string]map[uint64]bool // by chat, hashes of the newest entries
	looked   map[string]time.Time       // by chat, when it was changed, as of the last look
}

// look returns what was said in chats since the last look, by time. An edited or recalled message is new.
func (f *follower) look(ctx context.Context, chats []transcript.Chat) (fresh []said, err error) {
	for _, c := range chats {
		name := c.Channel + "/" + c.ChatID
		if at, is := f.looked[name]; is && at.Equal(c.Modified) && !at.IsZero() {
			continue
		}
		f.looked[name] = c.Modified
		newest, err := f.tail(ctx, c, f.lookBack)
		if err != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
		known := make(map[uint64]bool, len(newest))
		for _, e := range newest {
			line, _ := relay.Marshal(e) // never fails
			hash := maphash.Bytes(f.seed, line)
			if known[hash] = true; !f.known[name][hash] {
				fresh = append(fresh, said{c, e})
			}
		}
		f.known[name] = known
	}
	if len(chats) > 1 {
		slices.SortStableFunc(fresh, func(a, b said) int { return cmp.Compare(a.entry.TS, b.entry.TS) })
	}
	return fresh, nil
}

// findChat returns the chat that text names: exactly, or as the only one that begins so.
func findChat(ctx context.Context, r source, chats []transcript.Chat, text string) (transcript.Chat, error) {
	channel, id, ok := strings.Cut(text, "/")
	if !ok {
		channel, id = relay.DefaultChannel, text
	}
	for _, same := range []func(transcript.Chat) bool{
		func(c transcript.Chat) bool { return c.Channel == channel && c.ChatID == id },
		func(c transcript.Chat) bool { return c.ChatID == text || c.Channel+"/"+c.ChatID == text },
		func(c transcript.Chat) bool {
			return strings.HasPrefix(c.ChatID, text) || strings.HasPrefix(c.Channel+"/"+c.ChatID, text)
		},
	} {
		found := slices.DeleteFunc(slices.Clone(chats), func(c transcript.Chat) bool { return !same(c) })
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return transcript.Chat{}, fmt.Errorf("%[2]q names several chats in %[1]s: %[3]s", r.place(), text, named(found))
		}
	}
	// A chat whose id is too long for a file name is in no list.
	one := transcript.Chat{Channel: channel, ChatID: id}
	if entries, err := r.tail(ctx, one, 1); err == nil && len(entries) > 0 {
		return one, nil
	}
	if len(chats) == 0 {
		return one, fmt.Errorf("there is no chat %q: there are no transcripts in %s", text, r.place())
	}
	return one, fmt.Errorf("there is no chat %q in %s; known: %s", text, r.place(), named(chats))
}

// named lists chats for an error.
func named(chats []transcript.Chat) string {
	var names []string
	for _, c := range chats {
		names = append(names, chatName(c))
	}
	return words.Words{}.List(names)
}

// chatName is how a chat is called here: by its id, with its channel where that
// is not the usual one.
func chatName(c transcript.Chat) string {
	return (&group{Channel: c.Channel, ChatID: relay.ChatID(c.ChatID)}).id()
}

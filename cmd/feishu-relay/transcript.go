package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jessevdk/go-flags"

	"feishu-relay/internal/words"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
	"feishu-relay/transcript"
)

const (
	// maxShown is the most messages that -n may ask for, since they stand in
	// memory; a larger number is refused.
	maxShown = 100_000
	// maxNotices is the most notices of a chat that are looked at.
	maxNotices = 1000
)

const transcriptHelp = `list names the groups, the one that spoke last first; show prints the end of one;
tail -f goes on with what is said from now on, in all groups without CHAT. People's
commands, the answers to them, and stops that the group was shown are listed between the
messages and do not count for -n. Where the sidecar of this environment runs (LISTEN_ADDR, API_TOKEN), the
depth of each message of a bot follows, and what became of it at each bot: delivered, waits, or the
reason why it stopped.

CHAT is a chat id (oc_x), channel/chat_id, or the beginning of either, as far as only
one group begins so. The folder is --dir, else TRANSCRIPT_DIR, else
DATA_DIR/transcripts; list, show and tail only read it.

redact removes the text of a message; its --help tells more.

  feishu-relay transcript show -n 20 oc_a1b2
  feishu-relay transcript tail -f`

func (p *cli) addTranscript(c *flags.Command) {
	p.add(c, "list", "name the groups", "", &transcriptListCommand{})
	p.add(c, "show", "print the end of a transcript", "", &transcriptShowCommand{})
	p.add(c, "tail", "print the end of all, or of one, and go on", "", &transcriptTailCommand{})
	p.add(c, "redact", "remove the text of a message", redactHelp, &transcriptRedactCommand{})
}

// folder is the flags of the commands that read transcripts.
type folder struct {
	Dir  flags.Filename `long:"dir" value-name:"FOLDER"`
	JSON bool           `long:"json"`
}

// view is what the verbs that read have in common.
type view struct {
	dir      string
	json     bool
	store    *transcript.Store
	marks    *transcript.Store // what the sidecars did and showed; nil: there is nothing
	out, err io.Writer
	silent   bool // the running sidecar does not answer
}

// open opens the folder.
func (f *folder) open(p *cli) (v *view, err error) {
	v = &view{out: p.stdout, err: p.stderr, json: f.JSON}
	if v.dir, err = transcriptDir(string(f.Dir)); err != nil {
		return nil, err
	}
	if v.store, err = transcript.Open(v.dir, &transcript.Options{ReadOnly: true}); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no folder %s", v.dir)
		}
		return nil, fmt.Errorf("TRANSCRIPT_DIR or --dir: %w", err)
	}
	v.openMarks()
	return v, nil
}

// openMarks opens the folder of the notices, if there is one by now.
func (v *view) openMarks() {
	if v.marks == nil {
		v.marks, _ = transcript.Open(filepath.Join(v.dir, sidecar.MarksFolder), &transcript.Options{ReadOnly: true})
	}
}

func (v *view) close() {
	if v.marks != nil {
		_ = v.marks.Close() // only read
	}
	_ = v.store.Close() // only read
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

type transcriptListCommand struct{ folder }

func (c *transcriptListCommand) run(p *cli, _ []string) error {
	stdout := p.stdout
	v, err := c.open(p)
	if err != nil {
		return err
	}
	defer v.close()
	chats, err := v.store.Chats()
	if err != nil {
		return err
	}
	slices.SortStableFunc(chats, func(a, b transcript.Chat) int { return cmp.Compare(spoke(b), spoke(a)) })
	if v.json {
		return listJSON(stdout, chats)
	}
	if len(chats) == 0 {
		_, err := fmt.Fprintf(stdout, "There are no transcripts in %s yet: "+
			"they begin with the first message of a group.\n", neutral(v.dir))
		return err
	}
	rows := make([][]string, len(chats))
	for i, c := range chats {
		last := "-"
		if c.LastTS != 0 {
			last = time.UnixMilli(c.LastTS).Format("2006-01-02 15:04:05")
		}
		rows[i] = []string{neutral(c.Channel), neutral(c.ChatID), bytesText(c.Size), last}
	}
	return writeTable(stdout, "CHANNEL|CHAT|SIZE|LAST MESSAGE", rows)
}

// spoke is when the chat's last message was sent, in Unix milliseconds; without
// one, when its file was written.
func spoke(c transcript.Chat) int64 { return cmp.Or(c.LastTS, c.Modified.UnixMilli()) }

func listJSON(w io.Writer, chats []transcript.Chat) error {
	for _, c := range chats {
		err := writeLine(w, struct {
			Channel string `json:"channel"`
			ChatID  string `json:"chat_id"`
			Size    int64  `json:"size"`
			LastTS  int64  `json:"last_ts"`
		}{c.Channel, c.ChatID, c.Size, c.LastTS})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLine writes v as one line of JSON, with one Write.
func writeLine(w io.Writer, v any) error {
	line, err := relay.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(neutralJSON(line), '\n'))
	return err
}

func bytesText(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/(1<<10), 0
	for size >= 1<<10 && unit < len(units)-1 {
		size, unit = size/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

// notices are the newest ones of a chat, in the order of their times.
func (v *view) notices(c transcript.Chat) ([]transcript.Entry, error) {
	if v.marks == nil {
		return nil, nil
	}
	notices, err := v.marks.Tail(c.Channel, c.ChatID, maxNotices)
	slices.SortStableFunc(notices, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
	return notices, err
}

// among puts notices between entries, by time; those before the first entry only where that is
// the chat's first.
func among(entries, notices []transcript.Entry, all bool) []transcript.Entry {
	from := int64(math.MinInt64)
	if i := slices.IndexFunc(entries, func(e transcript.Entry) bool { return e.TS != 0 }); i >= 0 && !all {
		from = entries[i].TS
	}
	out := make([]transcript.Entry, 0, len(entries)+len(notices))
	next := 0
	for _, n := range notices {
		if n.TS < from {
			continue
		}
		for next < len(entries) && entries[next].TS <= n.TS {
			out = append(out, entries[next])
			next++
		}
		out = append(out, n)
	}
	return append(out, entries[next:]...)
}

// find returns the chat that text names: exactly, or as the only one that
// begins so.
func (v *view) find(text string) (transcript.Chat, error) {
	chats, err := v.store.Chats()
	if err != nil {
		return transcript.Chat{}, err
	}
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
			return transcript.Chat{}, fmt.Errorf("%[2]q names several chats in %[1]s: %[3]s", v.dir, text, named(found))
		}
	}
	// A chat whose id is too long for a file name is in no list.
	if entries, err := v.store.Tail(channel, id, 1); err == nil && len(entries) > 0 {
		return transcript.Chat{Channel: channel, ChatID: id}, nil
	}
	if len(chats) == 0 {
		return transcript.Chat{}, fmt.Errorf("there is no chat %q: there are no transcripts in %s", text, v.dir)
	}
	return transcript.Chat{}, fmt.Errorf("there is no chat %q in %s; known: %s", text, v.dir, named(chats))
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
	if c.Channel == relay.DefaultChannel {
		return neutral(c.ChatID)
	}
	return neutral(c.Channel + "/" + c.ChatID)
}

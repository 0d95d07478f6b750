package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	slashpath "path"
	"slices"
	"strings"
	"time"

	"feishu-relay/core"
	"feishu-relay/group"
	"feishu-relay/internal/jsonl"
	"feishu-relay/loop"
	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
	"feishu-relay/transcript"
)

// Redacted is a place in which copies of a recalled message's text stood.
type Redacted struct {
	Place string // a file below RELAY_DIR, the transcript, the notices, or a stream of Redis
	N     int    // lines or entries that lost the text
	Err   error  // why there may be more
}

// Redact tells the sidecars of a group that a message was recalled, and takes its text out of the
// transcripts and queue files of this host, and the streams of Redis. A running sidecar
// removes it from its other files when it reads of the recall. Redact may run beside sidecars; a
// repeat does what a killed one left. err says why the sidecars could not be told.
func Redact(ctx context.Context, cfg Config, channel string, chat relay.ChatID, id relay.MessageID) (
	found []Redacted, err error) {
	if info, err := os.Stat(cfg.RelayDir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("RELAY_DIR: there is no folder %s", cfg.RelayDir)
	}
	if cfg.Agent == "" {
		cfg.Agent = "operator"
	}
	e := &eraser{base: &base{cfg: cfg, log: slog.New(slog.DiscardHandler)}, of: core.ChatOf(channel, chat), id: id,
		needle: bytes.Trim(quote(string(id)), `"`)}
	err = e.tell(ctx)
	for before := -1; e.removed > before && ctx.Err() == nil; { // again, since sidecars may write meanwhile
		before = e.removed
		e.everywhere(ctx)
	}
	return e.found, errors.Join(err, ctx.Err())
}

const (
	// redactWait is how long a file may be locked by a sidecar that was paused.
	redactWait = 10 * time.Second
	// maxCopy is above the bytes of any line that is read.
	maxCopy = 32 << 20
)

// eraser is one call of Redact.
type eraser struct {
	*base
	of      loop.Chat
	id      relay.MessageID
	needle  []byte // the id, as it is in JSON
	found   []Redacted
	removed int
}

// tell shares the recall, by which running sidecars forget the text, and each sidecar hides what comes later.
func (e *eraser) tell(ctx context.Context) error {
	queue, err := e.openQueue(core.Side)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	line, err := core.RecallLine(e.of, e.cfg.Agent, e.id, string(e.cfg.RelaySecret))
	if err == nil {
		_, err = queue.Publish(ctx, [][]byte{line}, "")
	}
	return err
}

// note adds up what was done in a place.
func (e *eraser) note(place string, n int, err error) {
	if n == 0 && err == nil {
		return
	}
	e.removed += n
	i := slices.IndexFunc(e.found, func(r Redacted) bool { return r.Place == place })
	if i < 0 {
		i = len(e.found)
		e.found = append(e.found, Redacted{Place: place})
	}
	e.found[i].N, e.found[i].Err = e.found[i].N+n, err
}

// everywhere takes the copies out of all places.
func (e *eraser) everywhere(ctx context.Context) {
	e.redactStore("transcript", e.cfg.TranscriptDir)
	e.redactQueues(ctx)
	if e.cfg.Backend != "redis" {
		return
	}
	for _, name := range laneNames {
		what := e.message
		if name == core.Side {
			what = e.record
		}
		queue, err := e.openQueue(name)
		if err != nil {
			e.note("redis", 0, err)
			continue
		}
		n, err := queue.(*redisrelay.Queue).Remove(ctx, func(payload []byte) bool { return e.change(what)(payload) != nil })
		e.note("redis "+name, n, err)
		_ = queue.Close()
	}
}

func (e *eraser) redactStore(place, dir string) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	store, err := transcript.Open(dir, nil)
	if err != nil {
		e.note(place, 0, err)
		return
	}
	n, err := store.Redact(e.of.Channel, string(e.of.ID), string(e.id))
	e.note(place, n, errors.Join(err, store.Close()))
}

// redactQueues takes the copies out of the queues below RELAY_DIR.
func (e *eraser) redactQueues(ctx context.Context) {
	root, err := os.OpenRoot(e.cfg.RelayDir)
	if err != nil {
		e.note("RELAY_DIR", 0, err)
		return
	}
	defer func() { _ = root.Close() }()
	for _, f := range []struct {
		files   string
		without func(line []byte) []byte
	}{
		{"outbound.*", e.message},
		{"inbound.*", e.message},
		{"side/side.*", e.record},
	} {
		names, err := glob(root.FS(), f.files)
		e.note("RELAY_DIR", 0, err)
		for _, name := range names {
			n, err := e.redactFile(ctx, root, name, f.without)
			e.note(name, n, err)
		}
	}
}

// glob lists what a pattern names. [fs.Glob] hides folders that cannot be read.
func glob(root fs.FS, pattern string) (names []string, err error) {
	parts, names := strings.Split(pattern, "/"), []string{"."}
	for i, part := range parts {
		dirs := names
		names = nil
		for _, dir := range dirs {
			entries, rerr := fs.ReadDir(root, dir)
			if !errors.Is(rerr, fs.ErrNotExist) { // meanwhile
				err = errors.Join(err, rerr)
			}
			for _, entry := range entries {
				fits, _ := slashpath.Match(part, entry.Name()) // the patterns are valid
				if fits && (i == len(parts)-1 || !entry.Type().IsRegular()) {
					names = append(names, slashpath.Join(dir, entry.Name()))
				}
			}
		}
	}
	return names, err
}

// redactFile takes the copies out of a file, in place: positions in it stay what they are, and a
// file that a sidecar has replaced or removed meanwhile does not come back.
func (e *eraser) redactFile(ctx context.Context, root *os.Root, name string,
	without func([]byte) []byte) (n int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, redactWait, jsonl.ErrLocked)
	defer cancel()
	for done := true; done; {
		err := jsonl.Retry(ctx, func() (err error) {
			done, err = jsonl.Replace(root, name, maxCopy, e.change(without))
			return err
		})
		switch {
		case errors.Is(err, fs.ErrNotExist): // meanwhile
			return n, nil
		case errors.Is(err, jsonl.ErrReplaced) && ctx.Err() == nil: // a sidecar writes there: look again
			done = true
		case err != nil:
			return n, err
		case done:
			n++
		}
	}
	return n, nil
}

// none is the text of a line that is gone: readers pass over white space.
var none = []byte{}

// change is without for what has the message's id in it. What is torn is removed, and a message
// behind it stays.
func (e *eraser) change(without func(line []byte) []byte) func(line []byte) []byte {
	return func(line []byte) []byte {
		if !bytes.Contains(line, e.needle) {
			return nil
		}
		if json.Valid(line) {
			return without(line)
		}
		whole, ok := relay.Salvage(line)
		switch {
		case !ok || e.message(whole) != nil:
			return none
		case bytes.Contains(line[:len(line)-len(whole)], e.needle):
			return whole
		}
		return nil
	}
}

// message is a line of a queue without the message.
func (e *eraser) message(line []byte) []byte {
	var m struct {
		RelayMsgID relay.MessageID `json:"relay_msg_id"`
		MessageID  relay.MessageID `json:"message_id"`
		Channel    string          `json:"channel"`
		ChatID     relay.ChatID    `json:"chat_id"`
		Metadata   relay.Metadata  `json:"metadata"`
	}
	_ = json.Unmarshal(line, &m) // a field of another type is left out
	if !e.here(m.Channel, m.ChatID) || m.Metadata.Text(group.MetaEditOf) != string(e.id) &&
		!slices.Contains([]relay.MessageID{m.MessageID, m.RelayMsgID}, e.id) {
		return nil
	}
	return none
}

// here reports whether that is the message's chat; what names none may be.
func (e *eraser) here(channel string, chat relay.ChatID) bool {
	return (channel == "" || channel == e.of.Channel) && (chat == "" || chat == e.of.ID)
}

// record is a line of the side lane without the message's text: it was a command, or the answer says it.
func (e *eraser) record(line []byte) []byte {
	var r struct {
		Channel string       `json:"channel"`
		ChatID  relay.ChatID `json:"chat_id"`
		Record  group.Record `json:"record"`
	}
	_ = json.Unmarshal(line, &r) // a field of another type is left out
	if r.Record.Text == "" && r.Record.Answer == "" || !e.here(r.Channel, r.ChatID) ||
		r.Record.Message != e.id && r.Record.Of != e.id {
		return nil
	}
	return none
}

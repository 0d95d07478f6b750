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
	"path/filepath"
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
	if _, err := os.Stat(e.cfg.TranscriptDir); !errors.Is(err, fs.ErrNotExist) {
		store, err := transcript.Open(e.cfg.TranscriptDir, nil)
		n := 0
		if err == nil {
			n, err = store.Redact(e.of.Channel, string(e.of.ID), string(e.id))
			err = errors.Join(err, store.Close())
		}
		e.note("transcript", n, err)
	}
	for _, dir := range []string{".", core.Side} {
		files, err := os.ReadDir(filepath.Join(e.cfg.RelayDir, dir))
		if !errors.Is(err, fs.ErrNotExist) {
			e.note(filepath.Join("RELAY_DIR", dir), 0, err)
		}
		for _, file := range files {
			lane, _, _ := strings.Cut(file.Name(), ".")
			if !file.IsDir() && slices.Contains(laneNames, lane) {
				n, err := e.redactFile(ctx, dir, file.Name())
				e.note(filepath.Join(dir, file.Name()), n, err)
			}
		}
	}
	if e.cfg.Backend != "redis" {
		return
	}
	for _, name := range laneNames {
		queue, err := e.openQueue(name)
		if err != nil {
			e.note("redis", 0, err)
			continue
		}
		n, err := queue.(*redisrelay.Queue).Remove(ctx, func(payload []byte) bool { return e.change(payload) != nil })
		e.note("redis "+name, n, err)
		_ = queue.Close()
	}
}

// redactFile takes the copies out of a file, in place: positions in it stay what they are, and a file that a sidecar
// has replaced or removed meanwhile does not come back.
func (e *eraser) redactFile(ctx context.Context, dir, name string) (n int, err error) {
	root, err := os.OpenRoot(filepath.Join(e.cfg.RelayDir, dir))
	if err != nil {
		return 0, err
	}
	defer root.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, redactWait, jsonl.ErrLocked)
	defer cancel()
	err = jsonl.Retry(ctx, func() error {
		more, err := jsonl.Replace(root, name, maxCopy, e.change)
		n += more
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // meanwhile
		err = nil
	}
	return n, err
}

// none is the text of a line that is gone: readers pass over white space.
var none = []byte{}

// change returns a line of a queue without the message; nil: it does not have it. What is torn is removed, and a
// message behind it stays.
func (e *eraser) change(line []byte) []byte {
	if !bytes.Contains(line, e.needle) {
		return nil
	}
	whole, torn := line, false
	if !json.Valid(line) {
		if whole, torn = relay.Salvage(line); !torn {
			return none
		}
	}
	switch {
	case e.has(whole):
		return none
	case torn && bytes.Contains(line[:len(line)-len(whole)], e.needle):
		return whole
	}
	return nil
}

// has reports whether a line of a queue has the text of the message, or of a command that it was or its answer.
func (e *eraser) has(line []byte) bool {
	var l struct {
		RelayMsgID relay.MessageID `json:"relay_msg_id"`
		MessageID  relay.MessageID `json:"message_id"`
		Channel    string          `json:"channel"`
		ChatID     relay.ChatID    `json:"chat_id"`
		Metadata   relay.Metadata  `json:"metadata"`
		Records    []group.Record  `json:"records"` // of the side lane
	}
	_ = json.Unmarshal(line, &l) // a field of another type is left out
	if l.Channel != "" && l.Channel != e.of.Channel || l.ChatID != "" && l.ChatID != e.of.ID {
		return false
	}
	says := func(r group.Record) bool { return r.Text+r.Answer != "" && (r.Message == e.id || r.Of == e.id) }
	return slices.ContainsFunc(l.Records, says) ||
		l.MessageID == e.id || l.RelayMsgID == e.id || l.Metadata.Text(group.MetaEditOf) == string(e.id)
}

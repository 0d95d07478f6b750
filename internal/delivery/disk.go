package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// maxFile is the most bytes of a file that is read; a larger one is skipped.
const maxFile = 16 << 20

const suffix = ".json"

// accepted202 is the state on disk of a message that the bot settles later.
const accepted202 State = "accepted"

// document is a message on disk.
type document struct {
	Ref       Ref             `json:"message"`
	State     State           `json:"state"` // in_progress or accepted; timed_out or expired while an answer may come
	Door      string          `json:"door"`
	Since     time.Time       `json:"since"` // when it was written to the bot or, if it has ended, when it ended
	Begun     time.Time       `json:"begun"`
	Turn      time.Time       `json:"turn"`
	Inbound   *relay.Inbound  `json:"inbound,omitempty"` // not for mail
	Source    *relay.Message  `json:"source,omitempty"`
	Mentioned bool            `json:"mentioned,omitempty"`
	Final     relay.Millis    `json:"final,omitempty"`
	ShownAs   relay.MessageID `json:"shown_as,omitempty"`
	Given     []string        `json:"given,omitempty"`
	Shows     []string        `json:"shows,omitempty"`
	Withdrawn string          `json:"withdrawn,omitempty"` // reason of the withdrawal; the text is removed
}

// keepInProgress stores e in its current state.
func (d *Deliveries) keepInProgress(e *entry) {
	switch {
	case e.phase == accepted:
		if !e.kept {
			d.keep(e, accepted202)
		}
	case !e.m.Mail: // the inbox stores mail
		d.keep(e, InProgress)
	}
}

// keep stores e, or its new state, on disk and reports whether it succeeded. If
// not, other copies of the message must be kept.
func (d *Deliveries) keep(e *entry, state State) bool {
	d.mu.Lock()
	m := e.m
	doc := document{Ref: m.Ref, State: state, Door: e.named, Since: e.since, Begun: e.begun, Turn: e.turn,
		Withdrawn: e.withdrawn}
	d.mu.Unlock()
	if doc.Withdrawn != "" {
		m = withoutText(m)
	}
	ended := state != InProgress && state != accepted202
	switch {
	case ended:
		doc.Since = time.Now()
	case !m.Mail:
		doc.Inbound, doc.Source, doc.Mentioned = &m.Inbound, m.Source, m.Mentioned
		doc.Final, doc.ShownAs, doc.Given = m.Final, m.ShownAs, m.Given
		doc.Shows = m.Shows
	}
	data, err := relay.Marshal(doc)
	if err == nil {
		err = safefile.ReplaceFast(d.opts.Root, safefile.Name(e.m.Key)+suffix, data)
	}
	if err != nil {
		d.log.Warn("a message in progress cannot be stored; a restart may repeat it", "msg_id", e.m.Key, "err", err)
		return false
	}
	if !e.kept && !ended && e.hooks.Kept != nil {
		e.kept = true
		e.hooks.Kept()
	}
	e.kept = true
	return true
}

func (d *Deliveries) removeKept(e *entry) {
	if e.kept {
		d.remove(e.m.Key)
	}
}

func (d *Deliveries) remove(key string) {
	if err := d.opts.Root.Remove(safefile.Name(key) + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a settled message cannot be removed from disk; a restart may repeat it", "msg_id", key, "err", err)
	}
}

// load reads the messages that an earlier process left. It skips and keeps a
// file that is not a message.
func (d *Deliveries) load() error {
	names, err := safefile.Names(d.opts.Root)
	if err != nil {
		return fmt.Errorf("read the messages in progress: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			_ = d.opts.Root.Remove(name) // left by a killed process
		}
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		if err := d.read(name); err != nil {
			d.log.Warn("skipped an unreadable file among the messages in progress", "file", name, "err", err)
		}
	}
	slices.SortFunc(d.left, func(a, b *entry) int { return a.begun.Compare(b.begun) })
	for _, e := range d.left {
		d.last = later(d.last, e.begun)
		d.enter(e)
		chat := e.m.Ref.chat()
		if since, ok := d.held[chat]; !ok || e.m.Sent.Before(since) {
			d.held[chat] = e.m.Sent
		}
	}
	return nil
}

func (d *Deliveries) read(name string) error {
	info, err := d.opts.Root.Stat(name)
	if err != nil {
		return err
	}
	if info.Size() > maxFile {
		return fmt.Errorf("%d bytes, at most %d", info.Size(), maxFile)
	}
	data, err := safefile.ReadFile(d.opts.Root, name)
	if err != nil {
		return err
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	old := &past{doc.Ref, Result{State: doc.State, Channel: doc.Door}}
	if old.answerCounts() && safefile.Name(doc.Ref.Key)+suffix == name {
		if time.Since(doc.Since) >= lateFor {
			d.remove(doc.Ref.Key)
		} else {
			d.ended.Add(doc.Ref.ID, old)
		}
		return nil
	}
	if doc.Ref.Key == "" || safefile.Name(doc.Ref.Key)+suffix != name || !doc.Ref.Mail && doc.Inbound == nil {
		return errors.New("not a message in progress")
	}
	if doc.Ref.Mail {
		if time.Since(doc.Since) > d.opts.Timeout { // timed out meanwhile
			d.remove(doc.Ref.Key)
		} else {
			d.mail[doc.Ref.Key] = doc
		}
		return nil
	}
	e := &entry{m: Message{Ref: doc.Ref}, begun: doc.Begun, turn: doc.Turn, since: doc.Since, named: doc.Door,
		tried: true, kept: true, had: true, settled: make(chan settlement, 1), over: make(chan struct{}),
		stop: make(chan struct{}), withdrawn: doc.Withdrawn}
	if e.withdrawn != "" {
		close(e.stop)
	}
	if doc.Inbound != nil {
		e.m.Inbound = *doc.Inbound
		e.m.Source, e.m.Mentioned, e.m.Final, e.m.ShownAs = doc.Source, doc.Mentioned, doc.Final, doc.ShownAs
		e.m.Given, e.m.Shows = doc.Given, doc.Shows
	}
	if doc.State == accepted202 {
		e.phase = accepted
		d.hold(e)
	}
	d.left = append(d.left, e)
	return nil
}

package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"feishu-relay/internal/runes"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// Bounds of a record.
const (
	maxText = 4 << 10   // bytes of a text or reason; the rest is cut off
	maxFile = 256 << 10 // bytes of a file that is read; a bigger one is none of ours
)

// file is the name of r's file. The peer and the id are made one name, so that
// no two tasks share it ("/" is in no agent's id).
func (r *Record) file() string {
	return string(r.Direction) + "_" + safefile.Name(string(r.Peer)+"/"+r.ID) + ".json"
}

func (l *Ledger) save(r Record) error {
	data, err := encode(r)
	if err != nil {
		return err
	}
	if err := safefile.ReplaceFast(l.root, r.file(), data); err != nil {
		return fmt.Errorf("write down task %.200q: %w", r.ID, err)
	}
	return nil
}

func (l *Ledger) load() error {
	entries, err := fs.ReadDir(l.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasSuffix(name, ".tmp") {
			_ = l.root.Remove(name) // a killed process was writing it
			continue
		}
		if !strings.HasSuffix(name, ".json") || !entry.Type().IsRegular() {
			continue
		}
		r, err := l.read(name)
		if errors.Is(err, errBroken) {
			l.opts.Logger.Warn("a file among the tasks holds no task; it is set aside as *.broken", "file", name, "err", err)
			err = l.root.Rename(name, name+".broken")
		} else if err == nil {
			l.records[r.key()] = r
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errBroken = errors.New("broken")

func (l *Ledger) read(name string) (Record, error) {
	f, err := safefile.Open(l.root, name, os.O_RDONLY)
	if err != nil {
		return Record{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Record{}, err
	}
	r, err := decode(data)
	if err == nil && r.file() != name {
		err = errors.New("its name is not that of its task")
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	return r, nil
}

// encode writes r as a line of JSON.
func encode(r Record) ([]byte, error) {
	data, err := relay.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode task: %w", err)
	}
	if len(data) >= maxFile {
		return nil, mailbox.Invalid("task", "what is to be kept of it has %d bytes, at most %d", len(data)+1, maxFile)
	}
	return append(data, '\n'), nil
}

func decode(data []byte) (Record, error) {
	if len(data) > maxFile {
		return Record{}, fmt.Errorf("more than %d bytes", maxFile)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, errors.New("not the JSON of a task") // the library's error may hold a piece of the text
	}
	r = tidy(r)
	return r, check(r)
}

// tidy brings r into the form in which it is kept: what is written is what is read.
func tidy(r Record) Record {
	r.Text, r.Reason = cut(r.Text), cut(r.Reason)
	r.Trace = append([]mailbox.AgentID{}, r.Trace...)
	if r.Callback != nil {
		r.Callback = new(*r.Callback)
	}
	for _, t := range r.times() {
		*t = t.Round(0).UTC()
	}
	return r
}

func (r *Record) times() []*time.Time { return []*time.Time{&r.Deadline, &r.CreatedAt, &r.UpdatedAt} }

func cut(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	const mark = "…"
	return runes.Cut(text, maxText-len(mark)) + mark
}

// check reports why r is no task that could be kept.
func check(r Record) error {
	if r.Direction != Received && r.Direction != Sent {
		return mailbox.Invalid("direction", "want %s or %s", Received, Sent)
	}
	if err := mailbox.CheckAgent(r.Peer); err != nil {
		if e, ok := errors.AsType[*mailbox.Error](err); ok {
			e.Field = "peer"
		}
		return err
	}
	if !slices.Contains(states, r.State) {
		return mailbox.Invalid("task.state", "want one of %s", join(states, ", "))
	}
	if r.ID == "" {
		return mailbox.Invalid("task.id", "required")
	}
	for _, id := range [][2]string{{"task.id", r.ID}, {"id", r.MessageID}} {
		if len(id[1]) > mailbox.MaxID || !utf8.ValidString(id[1]) {
			return mailbox.Invalid(id[0], "want UTF-8, at most %d bytes", mailbox.MaxID)
		}
	}
	for _, t := range r.times() {
		if y := t.Year(); y < 0 || y > 9999 {
			return mailbox.Invalid("task.deadline", "the year %d is out of range", y)
		}
	}
	return nil
}

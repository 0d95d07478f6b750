package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// What the stream keeps of delivered messages for a reader that comes back:
// beyond any of these the oldest is forgotten.
const (
	historyLines = 1000
	historyBytes = 4 << 20
)

// At either of these the journal is written anew with what is kept.
const (
	journalLines = 3 * historyLines
	journalBytes = 4 * historyBytes
)

// journalMark is the journal's line which says that the bot acknowledges.
type journalMark struct {
	Acking bool `json:"acking,omitempty"`
}

// load takes the end of the journal into the history. What is no message (a
// torn line, the first of a part) is passed over.
func (s *Stream) load() error {
	info, err := s.journal.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	data := make([]byte, min(s.size, journalBytes))
	n, err := s.journal.ReadAt(data, s.size-int64(len(data)))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for line := range bytes.Lines(data[:n]) {
		s.lines++
		var l struct {
			sent
			journalMark
		}
		err := json.Unmarshal(line, &l)
		m := &l.sent
		switch {
		case err == nil && l.Acking:
			s.acking = true
		case err != nil || m.ID == "":
		case len(m.Data) > 0:
			s.remember(m)
		default:
			s.drop(m.ID)
		}
	}
	if n := len(s.history); n > 0 {
		s.history[n-1].doubt = true // the earlier process may have died before it wrote it
	}
	return nil
}

// remember enters m into the history, in place of an earlier try to deliver it.
func (s *Stream) remember(m *sent) {
	s.drop(m.ID)
	s.history = append(s.history, m)
	s.bytes += len(m.Data)
	for len(s.history) > historyLines || (s.bytes > historyBytes && len(s.history) > 1) {
		s.bytes -= len(s.history[0].Data)
		s.history[0] = nil
		s.history = s.history[1:]
	}
}

// drop takes a message out of the history.
func (s *Stream) drop(id relay.MessageID) {
	for i, m := range slices.Backward(s.history) {
		if m.ID == id {
			s.bytes -= len(m.Data)
			s.history = slices.Delete(s.history, i, i+1)
			return
		}
	}
}

// forget takes a message that was not delivered out of the history and, by a
// line without data, out of the journal.
func (s *Stream) forget(m *sent) {
	s.drop(m.ID)
	s.note(&sent{ID: m.ID, At: m.At})
}

// note enters m into the journal.
func (s *Stream) note(m *sent) { s.noteLine(m) }

// noteLine enters a line into the journal. An error costs only the replay after a
// restart.
func (s *Stream) noteLine(line any) {
	if s.journal == nil {
		return
	}
	if err := s.record(line); err != nil {
		s.logger.Warn("stream journal cannot be written; a restart may not replay", "err", err)
	}
}

// record appends a line to the journal, or rewrites the journal when it is long.
func (s *Stream) record(v any) error {
	if s.lines >= journalLines || s.size >= journalBytes {
		return s.rewrite()
	}
	line, err := relay.Marshal(v)
	if err != nil {
		return err
	}
	at, err := safefile.Append(s.journal, append(line, '\n'))
	if err != nil {
		return err
	}
	s.lines, s.size = s.lines+1, at+int64(len(line))+1
	return nil
}

func (s *Stream) rewrite() error {
	var all bytes.Buffer
	lines := make([]any, 0, len(s.history)+1)
	if s.acking {
		lines = append(lines, journalMark{Acking: true})
	}
	for _, m := range s.history {
		lines = append(lines, m)
	}
	for _, v := range lines {
		line, err := relay.Marshal(v)
		if err != nil {
			return err
		}
		all.Write(line)
		all.WriteByte('\n')
	}
	if err := safefile.ReplaceFast(s.root, s.name, all.Bytes()); err != nil {
		return err
	}
	f, err := safefile.Open(s.root, s.name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	_ = s.journal.Close()
	s.journal, s.lines, s.size = f, len(lines), int64(all.Len())
	return nil
}

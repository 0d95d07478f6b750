package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"

	"feishu-relay/relay"
)

// What the stream keeps of delivered messages for a reader that comes back:
// beyond any of these the oldest is forgotten.
const (
	historyLines = 1000
	historyBytes = 4 << 20
)

// At either of these the journal is replaced by what is kept.
const (
	journalLines = 3 * historyLines
	journalBytes = 4 * historyBytes
)

// journalMark is the journal's line which says that the bot acknowledges.
type journalMark struct {
	Acking bool `json:"acking,omitempty"`
}

// take takes a line of the journal into the history. What is no message, such as a
// torn line, is passed over.
func (s *Stream) take(line []byte) {
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

// noteLine enters a line into the journal, or rewrites the journal when it is long.
// An error costs only the replay after a restart.
func (s *Stream) noteLine(line any) {
	write, lines := s.journal.Append, []any{line}
	if s.journal.Lines() >= journalLines || s.journal.Size() >= journalBytes {
		write, lines = s.journal.Replace, nil
		if s.acking {
			lines = append(lines, journalMark{Acking: true})
		}
		for _, m := range s.history {
			lines = append(lines, m)
		}
	}
	var all bytes.Buffer
	var err error
	for _, v := range lines {
		var text []byte
		if text, err = relay.Marshal(v); err != nil {
			break
		}
		all.Write(append(text, '\n'))
	}
	if err == nil {
		err = write(all.Bytes())
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		s.logger.Warn("stream journal cannot be written; a restart may not replay", "err", err)
	}
}

package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// Limits of the delivered messages that the stream keeps for a reader that
// reconnects. Beyond any of these the oldest is dropped.
const (
	historyLines = 1000
	historyBytes = 4 << 20
)

// At either of these the journal is rewritten with the kept messages only.
const (
	journalLines = 3 * historyLines
	journalBytes = 4 * historyBytes
)

// journalMark is the journal's line that records that the bot acknowledges.
type journalMark struct {
	Acking bool `json:"acking,omitempty"`
}

// take adds a line of the journal to the history. It skips a line that is not a
// message, such as a torn one.
func (s *Stream) take(line []byte) {
	var l struct {
		delivered
		journalMark
	}
	err := json.Unmarshal(line, &l)
	m := &l.delivered
	switch {
	case err == nil && l.Acking:
		s.acking = true
	case err != nil || m.ID == "":
	case len(m.Data) > 0:
		s.remember(m)
	default:
		if was := s.find(m.ID); was != nil {
			was.Confirmed, was.Withdrawn = m.Confirmed, m.Withdrawn
		}
	}
}

// find returns a message of the history, or nil.
func (s *Stream) find(id relay.MessageID) *delivered {
	for _, m := range slices.Backward(s.history) {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// remember adds m to the history, in place of an earlier attempt to deliver it.
func (s *Stream) remember(m *delivered) {
	s.drop(m.ID)
	s.history = append(s.history, m)
	s.bytes += len(m.Data)
	for len(s.history) > historyLines || (s.bytes > historyBytes && len(s.history) > 1) {
		s.bytes -= len(s.history[0].Data)
		s.history[0] = nil
		s.history = s.history[1:]
	}
}

// drop removes a message from the history.
func (s *Stream) drop(id relay.MessageID) {
	if m := s.find(id); m != nil {
		s.bytes -= len(m.Data)
		s.history = slices.DeleteFunc(s.history, func(x *delivered) bool { return x == m })
	}
}

// note adds lines to the journal, or rewrites a long journal. After an error
// only the replay after a restart is lost.
func (s *Stream) note(lines ...any) {
	switch {
	case len(lines) == 0:
	case s.journal.Lines() >= journalLines || s.journal.Size() >= journalBytes:
		s.rewrite()
	default:
		s.noteLines(s.journal.Append, lines...)
	}
}

// rewrite replaces the journal's content with the kept messages.
func (s *Stream) rewrite() {
	var lines []any
	if s.acking {
		lines = append(lines, journalMark{Acking: true})
	}
	for _, m := range s.history {
		lines = append(lines, m)
	}
	s.noteLines(s.journal.Replace, lines...)
}

// Recall removes the text of a message, and of its edits, from the history and the
// journal. The message is not replayed, and other messages are replayed without quoting
// it.
func (s *Stream) Recall(id relay.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for i, m := range s.history {
		now := m.without(id)
		if now == nil {
			continue
		}
		s.bytes += len(now.Data) - len(m.Data)
		m.Withdrawn = now.Withdrawn // a write of m may be running, so nothing else of m itself may change
		s.history[i], changed = now, true
	}
	if changed {
		s.rewrite()
	}
}

// without returns a copy of m without the text of a message; nil if m has no such text.
func (m *delivered) without(id relay.MessageID) *delivered {
	now := new(*m)
	now.Shows = nil
	if m.ID == id || m.about("message_id", id) || m.about("edit_of", id) {
		now.Data, now.Withdrawn = json.RawMessage("{}"), true
		return now
	}
	if !slices.Contains(m.Shows, string(id)) {
		return nil
	}
	var in relay.Inbound
	if json.Unmarshal(m.Data, &in) != nil {
		return nil
	}
	_, own, found := strings.Cut(in.Content, relay.ContextEnd)
	if !found {
		return nil
	}
	in.Content = own
	var err error
	if now.Data, err = relay.Marshal(in); err != nil {
		return nil
	}
	return now
}

// about reports whether a member of m's metadata names a message.
func (m *delivered) about(member string, id relay.MessageID) bool {
	pair, err := relay.Marshal(map[string]relay.MessageID{member: id})
	return err == nil && bytes.Contains(m.Data, bytes.Trim(pair, "{}\n"))
}

// noteLines encodes lines as JSON and writes them.
func (s *Stream) noteLines(write func([]byte) error, lines ...any) {
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
		s.logger.Warn("the stream's journal cannot be written; no replay after a restart", "err", err)
	}
}

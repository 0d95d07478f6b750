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

// All methods here have the caller hold mu, but for take, which runs before the stream is used, and Recall.

// take adds a line of the journal to the history. It skips a line that is not a
// message, such as a torn one.
func (s *Stream) take(line []byte) {
	m := &delivered{}
	err := json.Unmarshal(line, m)
	was := s.find(m.ID)
	switch {
	case err == nil && m.Acking:
		s.acking = true
	case err != nil || m.ID == "":
	case len(m.Data) > 0:
		s.remember(m)
	case was != nil:
		was.Confirmed, was.Withdrawn = m.Confirmed, m.Withdrawn
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
	if was := s.find(m.ID); was != nil {
		s.bytes -= len(was.Data)
		s.history = slices.DeleteFunc(s.history, func(x *delivered) bool { return x == was })
	}
	s.history = append(s.history, m)
	s.bytes += len(m.Data)
	for len(s.history) > historyLines || s.bytes > historyBytes && len(s.history) > 1 {
		s.bytes -= len(s.history[0].Data)
		s.history[0] = nil
		s.history = s.history[1:]
	}
}

// mark records what is known of a message of the history.
func (s *Stream) mark(m *delivered, confirmed, withdrawn bool) {
	if confirmed != m.Confirmed || withdrawn != m.Withdrawn {
		m.Confirmed, m.Withdrawn = confirmed, withdrawn
		s.note(&delivered{ID: m.ID, Confirmed: confirmed, Withdrawn: withdrawn})
	}
}

// note adds a line to the journal, or rewrites a long journal. After an error
// only the replay after a restart is lost.
func (s *Stream) note(line *delivered) {
	if s.journal.Lines() >= journalLines || s.journal.Size() >= journalBytes {
		s.rewrite()
	} else {
		s.put(s.journal.Append, line)
	}
}

// rewrite replaces the journal's content with the kept messages.
func (s *Stream) rewrite() {
	lines := s.history
	if s.acking {
		lines = append([]*delivered{{Acking: true}}, lines...)
	}
	s.put(s.journal.Replace, lines...)
}

func (s *Stream) put(write func([]byte) error, lines ...*delivered) {
	var all bytes.Buffer
	for _, m := range lines {
		text, _ := relay.Marshal(m) // always possible
		all.Write(append(text, '\n'))
	}
	if err := write(all.Bytes()); err != nil && !errors.Is(err, os.ErrClosed) {
		s.Logger.Warn("the stream's journal cannot be written; no replay after a restart", "err", err)
	}
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
		m.Withdrawn = now.Withdrawn // a write of m may be under way, so its text stays
		s.history[i], changed = now, true
	}
	if changed {
		s.rewrite()
	}
}

// without returns a copy of m without the text of a message; nil if m has no such text.
func (m *delivered) without(id relay.MessageID) *delivered {
	quoted, _ := relay.Marshal(id) // always possible
	if !bytes.Contains(m.Data, quoted) && !slices.Contains(m.Shows, string(id)) {
		return nil
	}
	now := new(*m)
	now.Shows = nil
	var in relay.Inbound
	_ = json.Unmarshal(m.Data, &in) // it is ours
	if m.ID == id || in.Metadata["message_id"] == string(id) || in.Metadata["edit_of"] == string(id) {
		now.Data, now.Withdrawn = json.RawMessage("{}"), true
		return now
	}
	_, own, found := strings.Cut(in.Content, relay.ContextEnd)
	if !slices.Contains(m.Shows, string(id)) || !found {
		return nil
	}
	in.Content = own
	now.Data, _ = relay.Marshal(in)
	return now
}

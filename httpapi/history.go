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
		m.withdrawn = m.Gone
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
	if s.journal.Lines() >= journalLines || s.journal.Size() >= journalBytes {
		s.rewrite()
		return
	}
	s.noteLines(s.journal.Append, line)
}

// rewrite replaces the journal by what is kept.
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

// Recall takes the text of a message, and those of its edits, out of the history and the
// journal. None comes again, and what comes again of other messages does not show it.
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
		// Who is being given m goes on with what it has: m itself is not changed but for its fate.
		m.withdrawn = now.Gone
		now.by, now.owed, now.withdrawn, now.acked, now.doubt = m.by, m.owed && !now.Gone, now.Gone, m.acked, m.doubt
		s.history[i], changed = now, true
	}
	if changed {
		s.rewrite()
	}
}

// Redacted is a line of the journal without the text of a message; nil: it does not have it.
func Redacted(line []byte, id relay.MessageID) []byte {
	var m sent
	if json.Unmarshal(line, &m) != nil || m.ID == "" || len(m.Data) == 0 {
		return nil
	}
	now := m.without(id)
	if now == nil {
		return nil
	}
	text, err := relay.Marshal(now)
	if err != nil {
		return nil
	}
	return text
}

// without is a copy of m that does not show the text of a message; nil: m does not either.
func (m *sent) without(id relay.MessageID) *sent {
	if m.Gone {
		return nil
	}
	now := &sent{ID: m.ID, At: m.At, Data: m.Data}
	if m.ID == id || m.about("message_id", id) || m.about("edit_of", id) {
		now.Data, now.Gone = json.RawMessage("{}"), true
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
func (m *sent) about(member string, id relay.MessageID) bool {
	pair, err := relay.Marshal(map[string]relay.MessageID{member: id})
	return err == nil && bytes.Contains(m.Data, bytes.Trim(pair, "{}\n"))
}

// noteLines makes lines of JSON.
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

package transcript

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"feishu-relay/internal/jsonl"
)

const (
	// redactTries is how often the files of a chat are looked through: they may be rotated
	// meanwhile, and others may write the message again.
	redactTries = 20
	// redactBehind is how many lines before a message its copies without an id may stand.
	redactBehind = sameReach
)

// Redact removes the text of a message that was recalled, that of its edits, and that of the answer
// to it as a command, from the file of its chat and the rotated ones, and from memory; lines is how
// many lines lost it.
// The lines stay in their places, and readers go on behind them: they have no content then, no
// files and no msg_type, and [Entry.Recalled] is set. Copies that other programs wrote without
// an id become lines without content, too. Any number of processes may call it at once; what
// is appended later is the caller's to write without its content.
//
// After an error a text may still stand somewhere; calling again is right. [ErrBusy] says that
// another process held the lock of a file for ten seconds.
func (s *Store) Redact(channel, chatID, messageID string) (lines int, err error) {
	if s.opts.ReadOnly {
		return 0, ErrReadOnly
	}
	if messageID == "" {
		return 0, fmt.Errorf("redact: %w: it has no message_id", ErrEntry)
	}
	r := redaction{store: s, name: fileName(channel, chatID), id: messageID}
	defer s.forget(chatKey{channel, chatID}) // whoever has blanked the lines
	for range redactTries {
		if s.closed() {
			return r.lines, ErrClosed
		}
		if err = r.scan(); errors.Is(err, jsonl.ErrReplaced) {
			continue
		}
		if err != nil || len(r.segments) == 0 {
			break
		}
		if err = r.blank(); err != nil {
			break
		}
	}
	if err == nil && len(r.segments) > 0 {
		err = jsonl.ErrReplaced
	}
	if err != nil {
		return r.lines, fmt.Errorf("redact a message in transcript %s: %w", r.name, err)
	}
	return r.lines, nil
}

// forget has what memory holds of a chat read again.
func (s *Store) forget(key chatKey) {
	if l, ok := s.chats.Get(key); ok {
		l.mu.Lock()
		l.loaded, l.recent, l.index = false, recent{wanted: l.recent.wanted}, nil
		l.unlock()
	}
}

// redaction is one call of Redact.
type redaction struct {
	store    *Store
	name, id string
	lines    int     // that were blanked
	segments []int   // files in which something is left, as in place
	copies   []trace // of the texts that were met, as lines without an id have them
}

// scan looks where something is left.
func (r *redaction) scan() error {
	r.segments = nil
	f, size, err := r.store.openToRead(r.name)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	left := -1 // lines that are still looked at; -1: the message was not met yet
	// Copies may stand behind the message, which is met later: so they are looked for by a
	// second walk, once its text is known.
	take := func(at place, line []byte) bool {
		if left > 0 {
			left--
		}
		e, is := r.of(line)
		if !is {
			return left != 0
		}
		if left < 0 && e.MessageID == r.id && e.EditOf == "" {
			left = redactBehind
		}
		if e.Content != "" || e.Files != "" {
			t := traceOf(&e)
			t.without = true
			if !slices.Contains(r.copies, t) {
				r.copies = append(r.copies, t)
			}
		}
		if r.blanked(&e) == nil {
			return left != 0
		}
		if !slices.Contains(r.segments, at.segment) {
			r.segments = append(r.segments, at.segment)
		}
		return left != 0
	}
	_, err = r.store.walkLines(r.name, f, place{offset: size}, take)
	if known := len(r.copies); err == nil && known > 0 {
		left = -1
		_, err = r.store.walkLines(r.name, f, place{offset: size}, take)
	}
	return err
}

// of reads a line, and reports whether it is one of the message.
func (r *redaction) of(line []byte) (e Entry, is bool) {
	if !bytes.Contains(line, []byte(r.id)) && len(r.copies) == 0 {
		return e, false
	}
	e, found, _ := parse(line)
	if !found {
		return e, false
	}
	if e.MessageID == r.id || e.EditOf == r.id || e.Mark.AnswerTo() == r.id {
		return e, true
	}
	return e, e.MessageID == "" && r.copied(&e)
}

// copied reports whether e, which has no id, is a copy of a text that was met.
func (r *redaction) copied(e *Entry) bool {
	now := traceOf(e)
	return slices.ContainsFunc(r.copies, func(t trace) bool { return t.sum == now.sum && near(t.ts, now.ts) })
}

// blanked is e without its text; nil: it has none.
func (r *redaction) blanked(e *Entry) []byte {
	if e.Content == "" && e.Files == "" {
		return nil
	}
	short := *e
	short.Content, short.Files, short.MsgType, short.Recalled = "", "", "", true
	var b bytes.Buffer
	line, err := encodeTo(&b, short)
	if err != nil {
		return nil
	}
	return bytes.TrimSuffix(line, []byte("\n"))
}

// blank takes the text out of what was found.
func (r *redaction) blank() error {
	root, err := r.store.dir.Open(false)
	if err != nil {
		return err
	}
	for _, segment := range r.segments {
		file := place{segment: segment}.file(r.name)
		for done := true; done; {
			err := jsonl.Retry(context.Background(), func(waited time.Duration) (err error) {
				done, err = jsonl.Replace(root, file, MaxLine, r.change)
				if errors.Is(err, jsonl.ErrLocked) && waited >= lockWait {
					return ErrBusy
				}
				return err
			})
			if errors.Is(err, jsonl.ErrReplaced) || errors.Is(err, fs.ErrNotExist) {
				done = false // it is looked for again
				continue
			}
			if err != nil {
				return err
			}
			if done {
				r.lines++
			}
		}
	}
	return nil
}

// change is a line of the message without its text, in as few bytes as there is room for.
func (r *redaction) change(line []byte) []byte {
	e, is := r.of(line)
	if !is {
		return nil
	}
	text := r.blanked(&e)
	if text == nil || jsonl.Fits(text, line) {
		return text
	}
	// What is missing is empty to every reader. Without recalled there are short lines of other
	// programs: these show as lines without content.
	for _, part := range []string{`"content":"",`, `"sender":"",`, `"message_id":"",`, `,"ts":0`, `,"recalled":true`} {
		if !jsonl.Fits(text, line) {
			text = bytes.Replace(text, []byte(part), nil, 1)
		}
	}
	return text
}

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
	// redactTries is how often the files of a chat are searched: they may be rotated
	// meanwhile, and other programs may write the message again.
	redactTries = 20
	// redactBehind is how many lines before a message its copies without an id may be.
	redactBehind = sameReach
)

// Redact removes the text of a recalled message, of its edits, and of the answer to it as a
// command, from all files of its chat and from memory; lines is the number of lines changed. The
// lines keep their places and lengths, so readers can continue after them. They have no content,
// files or msg_type then, and [Entry.Recalled] is set. Copies that other programs wrote without an
// id lose their content too. Any number of processes may call it at once. Callers must append later
// lines of the message without content.
//
// After an error the text may remain in some lines; the caller should retry. [ErrBusy] means
// that another process held the lock of a file for ten seconds.
func (s *Store) Redact(channel, chatID, messageID string) (lines int, err error) {
	if s.opts.ReadOnly {
		return 0, ErrReadOnly
	}
	if messageID == "" {
		return 0, fmt.Errorf("redact: %w: it has no message_id", ErrEntry)
	}
	r := redaction{store: s, name: fileName(channel, chatID), id: messageID}
	defer s.forget(chatKey{channel, chatID}) // even if another process blanked the lines
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

// forget drops the memory of a chat, so that its file is read again.
func (s *Store) forget(key chatKey) {
	if l, ok := s.chats.Get(key); ok {
		l.mu.Lock()
		l.loaded, l.recent = false, recent{wanted: l.recent.wanted}
		l.unlock()
	}
}

// redaction is one call of Redact.
type redaction struct {
	store    *Store
	name, id string
	lines    int     // blanked so far
	segments []int   // files with lines left to blank, as in place
	copies   []trace // of the texts found, as lines without an id would have them
}

// scan finds the files with lines left to blank.
func (r *redaction) scan() error {
	r.segments = nil
	f, size, err := r.store.openToRead(r.name)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	left := -1 // lines still to search; -1: the message was not found yet
	// Copies may follow the message, and the walk reads them first. So a second walk looks
	// for them, once the text is known.
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

// of reads a line, and reports whether it belongs to the message.
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

// copied reports whether e, which has no id, is a copy of a text that was
// found.
func (r *redaction) copied(e *Entry) bool {
	now := traceOf(e)
	return slices.ContainsFunc(r.copies, func(t trace) bool { return t.sum == now.sum && near(t.ts, now.ts) })
}

// blanked returns the line of e without its text; nil if it has no text.
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

// blank removes the text from the lines found.
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
				done = false // scan again
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

// change returns a line without its text, no longer than before.
func (r *redaction) change(line []byte) []byte {
	e, is := r.of(line)
	if !is {
		return nil
	}
	text := r.blanked(&e)
	if text == nil || jsonl.Fits(text, line) {
		return text
	}
	// Readers take missing fields as empty. A short line of another program has no room for
	// recalled, so it shows as a line without content.
	for _, part := range []string{`"content":"",`, `"sender":"",`, `"message_id":"",`, `,"ts":0`, `,"recalled":true`} {
		if !jsonl.Fits(text, line) {
			text = bytes.Replace(text, []byte(part), nil, 1)
		}
	}
	return text
}

package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"feishu-relay/internal/jsonl"
	"feishu-relay/relay"
)

// redactTries is how often the files of a chat are searched: they may be rotated
// meanwhile, and other programs may write the message again.
const redactTries = 20

// Redact removes the text of a recalled message and of its edits from all files of its chat; lines is the number of
// lines changed. The
// lines keep their places and lengths, so readers can continue after them. They have no content,
// files or msg_type then, and [Entry.Recalled] is set. Copies that other programs wrote without an
// id lose their content too. Any number of processes may call it at once. Callers must append later
// lines of the message without content.
//
// After an error the text may remain in some lines; the caller should retry. [ErrBusy] means
// that another process held the lock of a file for ten seconds.
func (s *Store) Redact(channel, chatID, messageID string) (lines int, err error) {
	if messageID == "" {
		return 0, errors.New("redact a message: it has no message_id")
	}
	r := redaction{store: s, name: fileName(channel, chatID), id: messageID}
	for range redactTries {
		var first int
		if first, err = r.find(); err != nil || first == 0 {
			break
		}
		if err = r.blank(first); err == nil {
			err = jsonl.ErrReplaced // unless the next search finds nothing
		} else if !errors.Is(err, jsonl.ErrReplaced) {
			break
		}
	}
	if err != nil {
		return r.lines, fmt.Errorf("redact a message in transcript %s: %w", r.name, err)
	}
	return r.lines, nil
}

// redaction is one call of Redact.
type redaction struct {
	store    *Store
	name, id string
	lines    int     // blanked so far
	texts    []known // the texts found, as lines without an id would have them
}

// find collects the texts to remove, and returns the number of the oldest file that has one; 0: none.
func (r *redaction) find() (first int, err error) {
	left := -1 // lines still to search; -1: the message was not found yet
	for l, err := range r.store.back(r.name, end, nil) {
		if err != nil {
			return 0, err
		}
		if left == 0 {
			break
		}
		left = max(left-1, -1)
		e, is := r.of(l.text)
		if !is {
			continue
		}
		if e.MessageID == r.id && e.EditOf == "" && left < 0 {
			left = sameReach
		}
		if e.Content != "" || len(e.Files) > 0 {
			first = l.at.number
			text := knownOf(&e)
			text.id, text.edited = 0, 0
			r.texts = append(r.texts, text)
		}
	}
	return first, nil
}

// of reads a line, and reports whether it belongs to the message.
func (r *redaction) of(text []byte) (e Entry, is bool) {
	if !bytes.Contains(text, []byte(r.id)) && (len(r.texts) == 0 ||
		bytes.Contains(text, []byte(`"message_id":"`)) && !bytes.Contains(text, []byte(`"message_id":""`))) {
		return e, false // which saves decoding it
	}
	e, found, _ := parse(text)
	if !found {
		return e, false
	}
	if e.MessageID == r.id || e.EditOf == r.id {
		return e, true
	}
	return e, e.MessageID == "" && slices.ContainsFunc(r.texts, knownOf(&e).same)
}

// blank removes the texts from all files back to the one numbered first.
func (r *redaction) blank(first int) error {
	root, err := r.store.dir.Open(false)
	if err != nil {
		return err
	}
	_, older, err := r.store.numbers(r.name, nil, nil)
	if err != nil {
		return err
	}
	files := []string{r.name}
	for _, number := range older {
		if number >= first {
			files = append(files, segmentName(r.name, number))
		}
	}
	for _, file := range files {
		err := retry(func() error {
			n, err := jsonl.Replace(root, file, relay.MaxLine, r.change)
			r.lines += n
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // rotated or deleted meanwhile
			return err
		}
	}
	return nil
}

// change returns a line of the message without its text, no longer than before; nil for other lines.
func (r *redaction) change(line []byte) []byte {
	e, is := r.of(line)
	if !is || e.Content == "" && len(e.Files) == 0 {
		return nil
	}
	e.Content, e.Files, e.MsgType, e.Recalled = "", nil, "", true
	text, err := e.encode()
	if err != nil {
		return nil
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

package transcript

import (
	"bufio"
	"bytes"
	"io"
	"os"
)

// edits are the newest contents of messages that were edited after they were recorded, by
// message and sender. A reader goes from the newest line back, so it reads an edit before
// its message.
type edits map[[2]string]edited

type edited struct {
	content  string
	files    Files
	recalled bool
}

// take adds e if it is an edit, and reports whether it is.
func (d *edits) take(e *Entry) bool {
	if e.EditOf == "" {
		return false
	}
	key := [2]string{e.EditOf, e.Sender}
	if _, newer := (*d)[key]; !newer {
		d.set(key, e)
	}
	return true
}

// shown returns e with its newest content. A recalled message has no content, even if it
// was edited.
func (d *edits) shown(e Entry) Entry {
	if now, ok := (*d)[[2]string{e.MessageID, e.Sender}]; ok && !e.Recalled {
		e.Content, e.Files, e.Edited, e.Recalled = now.content, now.files, !now.recalled, now.recalled
	}
	if e.Recalled {
		e.Content, e.Files = "", ""
	}
	return e
}

func (d *edits) set(key [2]string, e *Entry) {
	if *d == nil {
		*d = edits{}
	}
	(*d)[key] = edited{e.Content, e.Files, e.Recalled}
}

// maxAfterBytes is how many bytes after a page are searched for edits of its
// messages.
const maxAfterBytes = 256 << 10

// takeAfter adds the edits in f from a place on.
func (d *edits) takeAfter(f *os.File, from place) error {
	r := bufio.NewReader(io.NewSectionReader(f, from.offset, maxAfterBytes))
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !bytes.Contains(line, []byte(`"edit_of":`)) {
			continue
		}
		if e, found, _ := parse(line); found && e.EditOf != "" {
			d.set([2]string{e.EditOf, e.Sender}, &e)
		}
	}
}

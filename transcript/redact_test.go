package transcript

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

const secret = "the secret word"

// everywhere reports where the folder's files still hold a text.
func everywhere(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, file := range all {
		data, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(data), text) {
			files = append(files, filepath.Base(file))
		}
	}
	return files
}

func redact(t *testing.T, s *Store, id string, want int) {
	t.Helper()
	if lines, err := s.Redact("feishu", "oc_x", id); lines != want || err != nil {
		t.Fatalf("%d lines of %s, %v, want %d", lines, id, err, want)
	}
}

// A recalled message keeps its place and loses its text, with its edits and the copies
// that other programs wrote.
func TestRedact(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, nil), open(t, dir, nil)
	fill := []Entry{
		{Role: relay.RoleUser, Sender: "ann", MessageID: "om_1", TS: 1000, Content: "hello", MsgType: "text"},
		{Role: relay.RoleAssistant, Sender: "a", MessageID: "om_2", TS: 2000, Content: secret, MsgType: "text", ThreadID: "omt_1",
			ParentID: "om_1", RootID: "om_1", UserTS: 1000, Files: Files{{Key: "img_1", Type: "image"}}},
		{Role: relay.RoleAssistant, Sender: "b", MessageID: "om_3", TS: 3000, Content: "ok", MsgType: "text"},
		{Role: relay.RoleAssistant, Sender: "a", MessageID: "om_2e", TS: 2000, Content: secret + " edited", EditOf: "om_2"},
	}
	bare := `{"role": "assistant", "content": "` + secret + `", "sender": "a", "ts": 2100}` + "\n"
	addFile(t, filepath.Join(dir, file), bare)
	add(t, s, true, fill...)
	addFile(t, filepath.Join(dir, file), bare)
	add(t, other, true, Entry{Role: relay.RoleUser, Sender: "ann", MessageID: "om_4", TS: 9000, Content: "no"})
	tail(t, s, 9)
	redact(t, s, "om_2", 4)
	for _, s := range []*Store{other, s, other} { // every sidecar does it
		redact(t, s, "om_2", 0)
	}
	redact(t, s, "om_9", 0)
	if files := everywhere(t, dir, "secret"); files != nil {
		t.Errorf("%q still has the text", files)
	}
	want := fill[1]
	want.Content, want.Files, want.MsgType, want.Recalled = "", nil, "", true
	one := func(entries []Entry) []Entry {
		return slices.DeleteFunc(entries, func(e Entry) bool { return e.MessageID != "om_2" })
	}
	for _, got := range [][]Entry{tail(t, s, 9), page(t, s, Query{Limit: 9}).Entries} {
		if !cmp.Equal(one(got), []Entry{want}) {
			t.Errorf("the message is %+v", one(got))
		}
	}
	if page := page(t, s, Query{Limit: 9, Text: "SECRET"}); len(page.Entries) != 0 {
		t.Errorf("a search finds %+v", page)
	}
	// A repeat is not written again, a late edit hides nothing and shows nothing.
	add(t, s, false, fill[1])
	add(t, s, true, Entry{Role: relay.RoleAssistant, Sender: "a", MessageID: "om_2f", TS: 2000, Content: "late", EditOf: "om_2"})
	if got := one(tail(t, s, 9)); !cmp.Equal(got, []Entry{want}) {
		t.Errorf("behind a late edit the message is %+v", got)
	}
}

// Every line of the transcript's own form has room, however short its text is.
func TestRedactShortTexts(t *testing.T) {
	for _, content := range []string{"k", "ok", "好", "twelve bytes", strings.Repeat("long ", 100)} {
		for _, e := range []Entry{{Role: relay.RoleUser, MsgType: "text"}, {Role: relay.RoleAssistant}} {
			e.Content, e.Sender, e.MessageID, e.TS = content, "a", "om_1", 1000
			s := open(t, t.TempDir(), nil)
			add(t, s, true, e)
			redact(t, s, "om_1", 1)
			got := tail(t, s, 1)[0]
			e.Content, e.MsgType, e.Recalled = "", "", got.Recalled
			if !cmp.Equal(got, e) {
				t.Errorf("%q is %+v", content, got)
			}
		}
	}
	dir := t.TempDir()
	s := open(t, dir, nil)
	writeFile(t, filepath.Join(dir, file), `{"role":"user","content":"k","message_id":"om_1"}`+"\n")
	redact(t, s, "om_1", 1)
	if everywhere(t, dir, `"k"`) != nil {
		t.Error("a short line of another program keeps its text")
	}
}

// What was rotated loses its text, too; who reads page by page goes on at a line that did.
func TestRedactRotated(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, &Options{rotateSize: 2000, keep: 9})
	for i := range 60 {
		e := message(i)
		if i == 5 || i == 58 {
			e.Content = secret
		}
		add(t, s, true, e)
	}
	if files := everywhere(t, dir, secret); len(files) != 2 {
		t.Fatalf("%q has the text", files)
	}
	first := page(t, s, Query{Limit: 55})
	redact(t, s, "om_5", 1)
	redact(t, s, "om_58", 1)
	if files := everywhere(t, dir, secret); files != nil {
		t.Errorf("%q has the text", files)
	}
	if rest := page(t, s, Query{Limit: 55, Before: first.Earlier}); len(rest.Entries) != 5 {
		t.Errorf("the page before is %+v", rest)
	}
	all := tail(t, s, 100)
	if len(all) != 60 || !all[5].Recalled || !all[58].Recalled || slices.ContainsFunc(all, func(e Entry) bool {
		return e.Recalled != (e.Content == "")
	}) {
		t.Errorf("the tail has %d entries: %+v", len(all), all)
	}
}

// Messages are recalled while the writers of other processes go on.
func TestRedactWhileOthersAppend(t *testing.T) {
	const n = 100
	dir := t.TempDir()
	s, writer := open(t, dir, &Options{rotateSize: 4000, keep: 100}), open(t, dir, &Options{rotateSize: 4000, keep: 100})
	redacted := make(chan error)
	for i := range n {
		id := fmt.Sprint("om_", i)
		add(t, writer, true, Entry{Role: relay.RoleAssistant, Sender: "a", MessageID: id, TS: int64(1000 + i), Content: secret})
		if i > 0 {
			must(t, <-redacted)
		}
		go func() {
			lines, err := 1, error(nil)
			if i%3 == 0 {
				lines, err = s.Redact("feishu", "oc_x", id)
			}
			if lines != 1 {
				err = errors.Join(err, fmt.Errorf("%d lines of %s", lines, id))
			}
			redacted <- err
		}()
		if last := tail(t, writer, 1); last[0].MessageID != id {
			t.Fatal(last)
		}
	}
	must(t, <-redacted)
	all := tail(t, open(t, dir, nil), n)
	if len(all) != n {
		t.Fatal(len(all))
	}
	for i, e := range all {
		if e.Recalled != (i%3 == 0) || e.Recalled != (e.Content == "") {
			t.Errorf("%d is %+v", i, e)
		}
	}
}

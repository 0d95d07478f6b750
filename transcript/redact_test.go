package transcript

import (
	"encoding/json"
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
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, file := range all {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), text) {
			files = append(files, filepath.Base(file))
		}
	}
	return files
}

// A recalled message keeps its place and loses its text, with its edits and the copies that
// other programs wrote, for those who have the chat in memory and those who read the file.
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
	add(t, s, true, fill...)
	addFile(t, filepath.Join(dir, "feishu_oc_x.jsonl"),
		`{"role": "assistant", "content": "`+secret+`", "sender": "a", "ts": 2100}`+"\n")
	add(t, other, true, Entry{Role: relay.RoleUser, Sender: "ann", MessageID: "om_4", TS: 9000, Content: "no"})
	if _, err := s.Tail("feishu", "oc_x", 9); err != nil {
		t.Fatal(err)
	}
	for i, s := range []*Store{s, other, s, other} { // every sidecar does it, one of them first
		if lines, err := s.Redact("feishu", "oc_x", "om_2"); lines != []int{3, 0, 0, 0}[i] || err != nil {
			t.Fatal(i, lines, err)
		}
	}
	if lines, err := s.Redact("feishu", "oc_x", "om_9"); lines != 0 || err != nil {
		t.Fatal(lines, err)
	}
	if files := everywhere(t, dir, "secret"); files != nil {
		t.Errorf("%q still has the text", files)
	}
	want := fill[1]
	want.Content, want.Files, want.MsgType, want.Recalled = "", nil, "", true
	for name, s := range map[string]*Store{"memory": s, "other": other, "file": open(t, dir, nil)} {
		entries, err := s.Tail("feishu", "oc_x", 9)
		if err != nil || len(entries) < 4 || !cmp.Equal(entries[1], want) || entries[2].Content != "ok" {
			t.Errorf("%s: the tail is %+v, %v", name, entries, err)
		}
		page, err := s.Page("feishu", "oc_x", Query{Limit: 9, Text: "SECRET"})
		if err != nil || len(page.Shown) != 0 {
			t.Errorf("%s: a search finds %+v, %v", name, page, err)
		}
		if page, err = s.Page("feishu", "oc_x", Query{Limit: 9}); err != nil || !cmp.Equal(page.Entries[1], want) {
			t.Errorf("%s: the page is %+v, %v", name, page.Entries, err)
		}
	}
	// A repeat is not written again, a late edit hides nothing and shows nothing.
	add(t, s, false, fill[1])
	add(t, s, true, Entry{Role: relay.RoleAssistant, Sender: "a", MessageID: "om_2f", TS: 2000, Content: "late", EditOf: "om_2"})
	if entries, err := s.Tail("feishu", "oc_x", 9); err != nil || !cmp.Equal(entries[1], want) {
		t.Errorf("behind a late edit the tail is %+v, %v", entries, err)
	}
}

// Every line of the transcript's own form has room, however short its text is, and versions
// that know nothing of it read it.
func TestRedactShortTexts(t *testing.T) {
	for _, content := range []string{"k", "ok", "好", "twelve bytes", strings.Repeat("long ", 100)} {
		for _, e := range []Entry{{Role: relay.RoleUser, MsgType: "text"}, {Role: relay.RoleAssistant}, {Role: relay.RoleAssistant, EditOf: "om_0"}} {
			e.Content, e.Sender, e.MessageID, e.TS = content, "a", "om_1", 1000
			dir := t.TempDir()
			s := open(t, dir, nil)
			add(t, s, true, e)
			if lines, err := s.Redact("feishu", "oc_x", "om_1"); lines != 1 || err != nil {
				t.Fatalf("%q: %v %v", content, lines, err)
			}
			data, err := os.ReadFile(filepath.Join(dir, "feishu_oc_x.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			var line struct {
				Role, Content, Sender string
				MessageID             string `json:"message_id"`
				TS                    int64
			}
			if err := json.Unmarshal(data, &line); err != nil || line.Role != e.Role || line.Content != "" || line.Sender != "a" ||
				line.MessageID != "om_1" || line.TS != 1000 {
				t.Errorf("%q is %s, %v", content, data, err)
			}
		}
	}
	dir := t.TempDir()
	s := open(t, dir, nil)
	writeFile(t, filepath.Join(dir, "feishu_oc_x.jsonl"), `{"role":"user","content":"k","message_id":"om_1"}`+"\n")
	if lines, err := s.Redact("feishu", "oc_x", "om_1"); lines != 1 || err != nil || everywhere(t, dir, `"k"`) != nil {
		t.Errorf("a short line of another program: %v %v", lines, err)
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
	first, err := s.Page("feishu", "oc_x", Query{Limit: 55})
	if err != nil || first.Earlier == "" || first.Entries[0].Content != secret {
		t.Fatal(first.Entries[0], err)
	}
	for _, i := range []int{5, 58} {
		if lines, err := s.Redact("feishu", "oc_x", message(i).MessageID); lines != 1 || err != nil {
			t.Fatal(lines, err)
		}
	}
	if files := everywhere(t, dir, secret); files != nil {
		t.Errorf("%q has the text", files)
	}
	if rest, err := s.Page("feishu", "oc_x", Query{Limit: 55, Before: first.Earlier}); err != nil || len(rest.Shown) != 5 {
		t.Errorf("the page before is %+v, %v", rest, err)
	}
	all, err := s.Tail("feishu", "oc_x", 100)
	if err != nil || len(all) != 60 || !all[5].Recalled || !all[58].Recalled || slices.ContainsFunc(all, func(e Entry) bool {
		return e.Recalled != (e.Content == "")
	}) {
		t.Errorf("the tail has %d entries, %v: %+v", len(all), err, all)
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
		if tail, err := writer.Tail("feishu", "oc_x", 1); err != nil || tail[0].MessageID != id {
			t.Fatal(tail, err)
		}
	}
	must(t, <-redacted)
	all, err := open(t, dir, nil).Tail("feishu", "oc_x", n)
	if err != nil || len(all) != n {
		t.Fatal(len(all), err)
	}
	for i, e := range all {
		if e.Recalled != (i%3 == 0) || e.Recalled != (e.Content == "") {
			t.Errorf("%d is %+v", i, e)
		}
	}
}

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
		{Role: RoleUser, Sender: "ann", MessageID: "om_1", TS: 1000, Content: "hello", MsgType: "text"},
		{Role: RoleAssistant, Sender: "a", MessageID: "om_2", TS: 2000, Content: secret, MsgType: "text", ThreadID: "omt_1",
			ParentID: "om_1", RootID: "om_1", UserTS: 1000, Files: FilesOf([]File{{Key: "img_1", Type: "image"}})},
		{Role: RoleAssistant, Sender: "b", MessageID: "om_3", TS: 3000, Content: "ok", MsgType: "text"},
		{Role: RoleAssistant, Sender: "a", MessageID: "om_2e", TS: 2000, Content: secret + " edited", EditOf: "om_2"},
	}
	add(t, s, true, fill...)
	addFile(t, filepath.Join(dir, "feishu_oc_x.jsonl"),
		`{"role": "assistant", "content": "`+secret+`", "sender": "a", "ts": 2100}`+"\n")
	add(t, other, true, Entry{Role: RoleUser, Sender: "ann", MessageID: "om_4", TS: 9000, Content: "no"})
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
	want.Content, want.Files, want.MsgType, want.Recalled = "", "", "", true
	for name, s := range map[string]*Store{"memory": s, "other": other, "file": open(t, dir, nil)} {
		entries, err := s.Tail("feishu", "oc_x", 9)
		if err != nil || len(entries) < 4 || entries[1] != want || entries[2].Content != "ok" {
			t.Errorf("%s: the tail is %+v, %v", name, entries, err)
		}
		page, err := s.Page("feishu", "oc_x", Query{Limit: 9, Text: "SECRET"})
		if err != nil || len(page.Shown) != 0 {
			t.Errorf("%s: a search finds %+v, %v", name, page, err)
		}
		if page, err = s.Page("feishu", "oc_x", Query{Limit: 9}); err != nil || page.Entries[1] != want {
			t.Errorf("%s: the page is %+v, %v", name, page.Entries, err)
		}
	}
	// A repeat is not written again, a late edit hides nothing and shows nothing.
	add(t, s, false, fill[1])
	add(t, s, true, Entry{Role: RoleAssistant, Sender: "a", MessageID: "om_2f", TS: 2000, Content: "late", EditOf: "om_2"})
	if entries, err := s.Tail("feishu", "oc_x", 9); err != nil || entries[1] != want {
		t.Errorf("behind a late edit the tail is %+v, %v", entries, err)
	}
}

// Every line of the transcript's own form has room, however short its text is, and versions
// that know nothing of it read it.
func TestRedactShortTexts(t *testing.T) {
	for _, content := range []string{"k", "ok", "好", "twelve bytes", strings.Repeat("long ", 100)} {
		for _, e := range []Entry{{Role: RoleUser, MsgType: "text"}, {Role: RoleAssistant}, {Role: RoleAssistant, EditOf: "om_0"}} {
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
	s := open(t, dir, &Options{RotateSize: 2000, Keep: 9})
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
	if err != nil || first.Earlier == "" || first.Entries[0] != message(5) && first.Entries[0].Content != secret {
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
	reader := open(t, dir, &Options{ReadOnly: true})
	if _, err := reader.Redact("feishu", "oc_x", "om_1"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a reader's redaction: %v", err)
	}
}

// Who follows a chat while messages are recalled is given each message once, and the writers of
// other processes go on.
func TestRedactWhileOthersFollowAndAppend(t *testing.T) {
	const n = 100
	dir := t.TempDir()
	s, writer := open(t, dir, &Options{RotateSize: 4000}), open(t, dir, &Options{RotateSize: 4000})
	got := make(chan []string, 1)
	go func() {
		var ids []string
		for e, err := range s.Follow(t.Context(), "feishu", "oc_x", n) {
			if err != nil {
				break
			}
			if e.MessageID == "om_end" {
				break
			}
			ids = append(ids, e.MessageID)
		}
		got <- ids
	}()
	for i := range n {
		add(t, writer, true, Entry{Role: RoleAssistant, Sender: "a", MessageID: fmt.Sprint("om_", i), TS: int64(1000 + i),
			Content: secret})
		if i%3 == 0 {
			if lines, err := s.Redact("feishu", "oc_x", fmt.Sprint("om_", i)); lines != 1 || err != nil {
				t.Fatal(lines, err)
			}
		}
		if i == 0 {
			continue
		}
		if tail, err := writer.Tail("feishu", "oc_x", 1); err != nil || tail[0].MessageID != fmt.Sprint("om_", i) {
			t.Fatal(tail, err)
		}
	}
	all, err := open(t, dir, nil).Tail("feishu", "oc_x", n)
	if err != nil || len(all) != n {
		t.Fatal(len(all), err)
	}
	for i, e := range all {
		if e.Recalled != (i%3 == 0) || e.Recalled != (e.Content == "") {
			t.Errorf("%d is %+v", i, e)
		}
	}
	add(t, writer, true, Entry{Role: RoleAssistant, Sender: "a", MessageID: "om_end", TS: 9000})
	ids := <-got
	slices.Sort(ids)
	if len(slices.Compact(ids)) != n {
		t.Errorf("the follower was given %d messages: %q", len(ids), ids)
	}
}

package transcript

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"feishu-relay/relay"
)

// An edit is a line of its own, and readers see one message with the newest text, in tails, pages and lists.
func TestEditsShowAsTheirMessage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	add := func(e Entry) {
		e.Role = relay.RoleAssistant
		add(t, s, true, e)
	}
	add(Entry{Sender: "a", MessageID: "om_1", TS: 1000, Content: "one"})
	add(Entry{Sender: "a", MessageID: "om_2", TS: 2000, Content: "ha"})
	add(Entry{Sender: "b", MessageID: "om_3", TS: 3000, Content: "three"})
	add(Entry{Sender: "a", MessageID: "edit:om_2:1", TS: 2000, Content: "half", EditOf: "om_2"})
	add(Entry{Sender: "b", MessageID: "edit:om_1:1", TS: 1000, Content: "another's", EditOf: "om_1"})
	add(Entry{Sender: "a", MessageID: "edit:om_2:2", TS: 2000, Content: "the whole", EditOf: "om_2"})
	const want = "om_1 one, om_2 the whole, om_3 three"
	show := func(entries []Entry) string {
		var out []string
		for _, e := range entries {
			out = append(out, e.MessageID+" "+e.Content)
		}
		return strings.Join(out, ", ")
	}
	for n, want := range map[int]string{9: want, 2: "om_2 the whole, om_3 three", 1: "om_3 three"} {
		if got := show(tail(t, s, n)); got != want {
			t.Errorf("the last %d are %q", n, got)
		}
	}
	if entries, err := s.TailTo("feishu", "oc_x", 9, 2500); err != nil || show(entries) != "om_1 one, om_2 the whole" {
		t.Errorf("up to a time %q, %v", show(entries), err)
	}
	before, pages := "", ""
	for i := 0; i == 0 || before != ""; i++ {
		page := page(t, s, Query{Limit: 1, Before: before})
		if text := show(page.Entries); text != "" {
			pages = strings.TrimSuffix(text+", "+pages, ", ")
		}
		before = page.Earlier
	}
	if pages != want {
		t.Errorf("page by page %q", pages)
	}
	for text, found := range map[string]string{"whole": "om_2 the whole", "half": ""} {
		if got := show(page(t, s, Query{Limit: 9, Text: text}).Entries); got != found {
			t.Errorf("%q is found in %q", text, got)
		}
	}
	chats, err := s.Chats()
	if err != nil || len(chats) != 1 || chats[0].Last == nil || chats[0].Last.Content != "three" {
		t.Errorf("listed as %s, %v", fmt.Sprintf("%+v", chats), err)
	}
}

// The files of a message are in its line, an edit brings its own, and what others wrote
// there costs no message.
func TestFilesOfEntries(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	files := Files{{Key: "img_1", Type: "image"}, {Key: "file_1", Type: "file", Name: "<a> & \"b\".txt"}}
	add(t, s, true,
		Entry{Role: relay.RoleUser, Sender: "a", MessageID: "om_1", TS: 1000, Files: files},
		Entry{Role: relay.RoleAssistant, Sender: "b", MessageID: "om_2", TS: 2000, Content: "draft"},
		Entry{Role: relay.RoleAssistant, Sender: "b", MessageID: "edit:1", TS: 2000, Content: "done", EditOf: "om_2", Files: files})
	path := filepath.Join(dir, file)
	data, err := os.ReadFile(path)
	must(t, err)
	if want := `"files":[{"key":"img_1","type":"image"},{"key":"file_1","type":"file","name":"<a> & \"b\".txt"}]}`; strings.Count(string(data), want) != 2 {
		t.Errorf("lines:\n%s", data)
	}
	for _, other := range []string{`["a.png"]`, `7`, `null`, `{"key":"x"}`} {
		data = append(data, `{"role":"user","content":"c","sender":"d","message_id":"om_`+other[:1]+`","ts":3000,"files":`+other+"}\n"...)
	}
	writeFile(t, path, string(data))
	for i, e := range tail(t, s, 6) {
		if i < 2 && !slices.Equal(e.Files, files) || i > 1 && len(e.Files) > 0 {
			t.Errorf("entry %d has the files %v", i, e.Files)
		}
	}
}

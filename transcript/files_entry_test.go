package transcript

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"feishu-relay/relay"
)

// The files of a message are in its line, an edit brings its own, and what others wrote
// there costs no message.
func TestFilesOfEntries(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	files := Files{{Key: "img_1", Type: "image"}, {Key: "file_1", Type: "file", Name: "<a> & \"b\".txt"}}
	for _, e := range []Entry{
		{Role: relay.RoleUser, Sender: "a", MessageID: "om_1", TS: 1000, Files: files},
		{Role: relay.RoleAssistant, Sender: "b", MessageID: "om_2", TS: 2000, Content: "draft"},
		{Role: relay.RoleAssistant, Sender: "b", MessageID: "edit:1", TS: 2000, Content: "done", EditOf: "om_2", Files: files},
	} {
		if added, err := s.Append("feishu", "oc_x", e); err != nil || !added {
			t.Fatal(added, err)
		}
	}
	path := filepath.Join(dir, file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"files":[{"key":"img_1","type":"image"},{"key":"file_1","type":"file","name":"<a> & \"b\".txt"}]}`; strings.Count(string(data), want) != 2 {
		t.Errorf("lines:\n%s", data)
	}
	for _, other := range []string{`["a.png"]`, `7`, `null`, `{"key":"x"}`} {
		data = append(data, `{"role":"user","content":"c","sender":"d","message_id":"om_`+other[:1]+`","ts":3000,"files":`+other+"}\n"...)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Store{"memory": s, "file": open(t, dir, nil)} {
		entries, err := s.Tail("feishu", "oc_x", 9)
		if err != nil || len(entries) != 6 {
			t.Fatalf("%s: %d entries, %v", name, len(entries), err)
		}
		for i, e := range entries {
			if i < 2 && !slices.Equal(e.Files, files) || i > 1 && len(e.Files) > 0 {
				t.Errorf("%s: entry %d has the files %v", name, i, e.Files)
			}
		}
		outline, err := s.Outline("feishu", "oc_x", 9, 9000)
		if err != nil || outline[0].Files != nil {
			t.Errorf("%s: outline %+v, %v", name, outline, err)
		}
		page, err := s.Page("feishu", "oc_x", Query{Limit: 9})
		if err != nil || !slices.Equal(page.Entries[1].Files, files) || page.Entries[1].Content != "done" {
			t.Errorf("%s: page %+v, %v", name, page, err)
		}
	}
}

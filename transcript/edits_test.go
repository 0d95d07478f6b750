package transcript

import (
	"fmt"
	"strings"
	"testing"

	"feishu-relay/relay"
)

// An edit is a line of its own, and readers see one message with the newest text:
// from memory and from the file, in tails, outlines, pages and lists.
func TestEditsShowAsTheirMessage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	add := func(e Entry) {
		t.Helper()
		e.Role = relay.RoleAssistant
		if added, err := s.Append("feishu", "oc_x", e); err != nil || !added {
			t.Fatal(added, err)
		}
	}
	add(Entry{Sender: "a", MessageID: "om_1", TS: 1000, Content: "one"})
	add(Entry{Sender: "a", MessageID: "om_2", TS: 2000, Content: "ha"})
	add(Entry{Sender: "b", MessageID: "om_3", TS: 3000, Content: "three"})
	add(Entry{Sender: "a", MessageID: "edit:om_2:1", TS: 2000, Content: "half", EditOf: "om_2"})
	add(Entry{Sender: "b", MessageID: "edit:om_1:1", TS: 1000, Content: "another's", EditOf: "om_1"})
	add(Entry{Sender: "a", MessageID: "edit:om_2:2", TS: 2000, Content: "the whole", EditOf: "om_2"})
	if added, err := s.Append("feishu", "oc_x", Entry{Role: "assistant", Sender: "a", MessageID: "edit:om_2:2", TS: 2000, EditOf: "om_2"}); added || err != nil {
		t.Errorf("a repeat is added: %v %v", added, err)
	}
	const want = "om_1 one, om_2 the whole, om_3 three"
	show := func(entries []Entry) string {
		var out []string
		for _, e := range entries {
			out = append(out, e.MessageID+" "+e.Content)
		}
		return strings.Join(out, ", ")
	}
	for name, s := range map[string]*Store{"memory": s, "file": open(t, dir, nil)} {
		for n, want := range map[int]string{9: want, 2: "om_2 the whole, om_3 three", 1: "om_3 three"} {
			if entries, err := s.Tail("feishu", "oc_x", n); err != nil || show(entries) != want {
				t.Errorf("%s: the last %d are %q, %v", name, n, show(entries), err)
			}
		}
		if entries, err := s.TailTo("feishu", "oc_x", 9, 2500); err != nil || show(entries) != "om_1 one, om_2 the whole" {
			t.Errorf("%s: up to a time %q, %v", name, show(entries), err)
		}
		if entries, err := s.Outline("feishu", "oc_x", 9, 9000); err != nil || show(entries) != "om_1 , om_2 , om_3 " {
			t.Errorf("%s: outline %q, %v", name, show(entries), err)
		}
		before, pages := "", ""
		for i := 0; i == 0 || before != ""; i++ {
			page, err := s.Page("feishu", "oc_x", Query{Limit: 1, Before: before})
			if err != nil {
				t.Fatal(err)
			}
			if text := show(page.Entries); text != "" {
				pages = strings.TrimSuffix(text+", "+pages, ", ")
			}
			before = page.Earlier
		}
		if pages != want {
			t.Errorf("%s: page by page %q", name, pages)
		}
		for text, found := range map[string]string{"whole": "om_2 the whole", "half": ""} {
			page, err := s.Page("feishu", "oc_x", Query{Limit: 9, Text: text})
			if err != nil || show(page.Entries) != found {
				t.Errorf("%s: %q is found in %q, %v", name, text, show(page.Entries), err)
			}
		}
		chats, err := s.Chats()
		if err != nil || len(chats) != 1 || chats[0].Last == nil || chats[0].Last.Content != "three" {
			t.Errorf("%s: listed as %s, %v", name, fmt.Sprintf("%+v", chats), err)
		}
	}
}

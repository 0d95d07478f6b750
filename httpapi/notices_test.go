package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"feishu-relay/transcript"
)

// Pages that are read one after the other have each message and each notice once, in the order
// of their times, whatever the limit.
func TestNoticesAmongPages(t *testing.T) {
	f, store := withRecord(t, t.TempDir())
	var marks []transcript.Entry
	f.Notices = func(_, _ string) []transcript.Entry { return marks }
	var want []string
	notice := func(ts int64) {
		id := fmt.Sprint("notice:", ts)
		want = append(want, id)
		marks = append(marks, transcript.Entry{Role: transcript.RoleNotice, Content: "Paused", Sender: "agent_a",
			MessageID: id, TS: ts, Mark: &transcript.Mark{Kind: "command", Act: "set", By: "Ann"}})
	}
	notice(5) // before all that was said
	for i := range int64(40) {
		ts := 10 + 10*i
		want = append(want, fmt.Sprint("om_", ts))
		said(t, store, transcript.Entry{Role: []string{"user", "assistant", "assistant"}[i%3], Content: "hello", Sender: "x",
			MessageID: fmt.Sprint("om_", ts), TS: ts})
		if i%4 == 0 {
			notice(ts) // at the same time
			notice(ts + 1)
		}
	}
	notice(1000)
	for _, limit := range []int{1, 3, 7, 40, 100} {
		var got []string
		query := url.Values{"limit": {fmt.Sprint(limit)}}
		for pages := 0; ; pages++ {
			page := readPage(t, f, query)
			var ids []string
			messages := 0
			for _, e := range page.Entries {
				ids = append(ids, e.MessageID)
				switch {
				case e.Role != transcript.RoleNotice:
					messages++
				case e.Depth != 0 || e.Mark == nil || e.By != "Ann" || e.Act != "set":
					t.Errorf("a notice is shown as %+v, %+v", e, e.Mark)
				}
			}
			if messages > limit {
				t.Errorf("limit %d: a page has %d messages", limit, messages)
			}
			got = append(ids, got...)
			if page.Earlier == "" {
				break
			}
			if pages > 100 {
				t.Fatal("there is no end")
			}
			query.Set("before", page.Earlier)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got\n%q, want\n%q", limit, got, want)
		}
	}
	if found := readPage(t, f, url.Values{"q": {"pAUSED"}}); len(found.Entries) != 22 {
		t.Errorf("%d notices are found, want 22", len(found.Entries))
	}
	if found := readPage(t, f, url.Values{"q": {"hello"}, "limit": {"100"}}); len(found.Entries) != 40 {
		t.Errorf("%d messages are found, want 40", len(found.Entries))
	}
	for _, before := range []string{"@5", "0-0-0-0@", "0-0-0-0@x", "@"} {
		if w := ask(f, "GET", "/v1/transcripts/feishu/oc_x?before="+before, ""); w.Code != 400 || !strings.Contains(w.Body.String(), "before") {
			t.Errorf("before=%s: %d %s", before, w.Code, w.Body)
		}
	}
}

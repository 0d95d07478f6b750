//go:build unix

package transcript

import (
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// A program that writes no ids writes the same messages into the same files: its
// lines are the same messages, be they written before ours or after.
func TestLinesWithoutIDsAreTheSameMessages(t *testing.T) {
	bare := func(i int, later int64) Entry {
		e := message(i)
		e.MessageID, e.TS = "", e.TS+later
		return e
	}
	another := bare(0, 9000)
	for name, tt := range map[string]struct{ lines, want []Entry }{
		"after ours":        {[]Entry{message(0), bare(0, 800), message(1), bare(1, -800)}, messages(0, 2)},
		"before ours":       {[]Entry{bare(0, -2000), message(0), bare(1, 2000), message(1)}, messages(0, 2)},
		"several of them":   {[]Entry{bare(0, 1), bare(0, 900), message(0), bare(0, 2), message(1), bare(1, 1), bare(1, 2)}, messages(0, 2)},
		"some lines later":  {[]Entry{message(0), message(1), message(2), bare(0, 3000), bare(2, 1)}, messages(0, 3)},
		"none of ours":      {[]Entry{bare(0, 0), bare(0, 900), bare(1, 0)}, []Entry{bare(0, 0), bare(1, 0)}},
		"said again":        {[]Entry{message(0), bare(0, 0), another}, []Entry{message(0), another}},
		"two that have ids": {[]Entry{message(0), {Role: relay.RoleAssistant, Sender: "agent_a", Content: "text 0", MessageID: "om_x", TS: message(0).TS + 1}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want == nil {
				tt.want = tt.lines
			}
			dir := t.TempDir()
			path := filepath.Join(dir, file)
			ours := open(t, dir, nil)
			for _, e := range tt.lines {
				if e.MessageID != "" {
					add(t, ours, true, e)
					continue
				}
				addFile(t, path, lines(t, e))
			}
			ids := func(entries []Entry) (all []Entry) {
				for _, e := range entries { // of lines without ids it does not matter which is shown
					if e.MessageID == "" {
						e.TS = 0
					}
					all = append(all, e)
				}
				return all
			}
			for _, got := range [][]Entry{tail(t, ours, 10), page(t, ours, Query{Limit: 10}).Entries} {
				if diff := gocmp.Diff(ids(got), ids(tt.want)); diff != "" {
					t.Errorf("(-got +want):\n%s", diff)
				}
			}
			if got := tail(t, ours, len(tt.want)); len(got) != len(tt.want) {
				t.Errorf("tail of that length: got %v, want %v", got, tt.want)
			}
		})
	}
}

// Without an id the same words a moment later are no new message.
func TestAppendWithoutID(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	e := message(0)
	add(t, s, true, e)
	e.MessageID, e.TS = "", e.TS+1000
	add(t, s, false, e)
	e.TS += sameWithin
	add(t, s, true, e)
}

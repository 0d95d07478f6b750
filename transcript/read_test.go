package transcript

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// block is about what is read at once.
const block = 64 << 10

func TestReadingBackwards(t *testing.T) {
	line := func(id, content string) string {
		return lines(t, Entry{Role: relay.RoleUser, Content: content, MessageID: id, TS: 5})
	}
	long := strings.Repeat("x", 3*block)
	for _, c := range []struct {
		name, content string
		n             int
		want          string
		skipped       int64
	}{
		{"empty file", "", 5, "", 0},
		{"fewer than asked for", line("a", "") + line("b", ""), 5, "a b", 0},
		{"more than asked for", line("a", "") + line("b", "") + line("c", ""), 2, "b c", 0},
		{"unfinished last line", line("a", "") + strings.TrimSpace(line("b", "")), 5, "a", 0},
		{"nothing but an unfinished line", `{"role":"us`, 5, "", 0},
		{"unfinished line beyond the limit", line("a", "") + strings.Repeat("x", 2*relay.MaxLine), 5, "a", 0},
		{"line longer than a block", line("a", "") + line("b", long) + line("c", ""), 5, "a b c", 0},
		{"line beyond the limit", line("a", "") + strings.Repeat("x", 2*relay.MaxLine) + "\n" + line("b", ""), 5, "a b", 1},
		{"line at the limit", line("a", strings.Repeat("x", relay.MaxLine-len(line("a", "")))), 5, "a", 0},
		{"CRLF", strings.ReplaceAll(line("a", "")+line("b", ""), "\n", "\r\n"), 5, "a b", 0},
		{"empty lines", "\n\n" + line("a", "") + "\n\r\n" + line("b", "") + "\n", 5, "a b", 0},
		{"invalid UTF-8", line("a", "") + `{"role":"user","content":"` + "\xff\xfe" + `","sender":"","message_id":"b","ts":1}` + "\n", 5, "a b", 0},
		{"junk", "junk\n" + line("a", "") + "{}\n[1]\nnull\n\x00\x00\n" + line("b", ""), 5, "a b", 5},
		{"another role", `{"role":"system","content":"x","message_id":"b"}` + "\n" + line("a", ""), 5, "a", 1},
		{"glued behind a part", line("a", "")[:20] + line("b", ""), 5, "b", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, file), c.content)
			s := open(t, dir, nil)
			got, err := s.Tail("feishu", "oc_x", c.n)
			must(t, err)
			if diff := cmp.Diff(ids(got), c.want); diff != "" {
				t.Errorf("tail %d (-got +want):\n%s", c.n, diff)
			}
			if got := s.Skipped(); got != c.skipped {
				t.Errorf("%d lines skipped, want %d", got, c.skipped)
			}
			// The appending side reads the same.
			add(t, s, true, Entry{Role: relay.RoleUser, MessageID: "last"})
			for id := range strings.FieldsSeq(c.want) {
				add(t, s, false, Entry{Role: relay.RoleUser, MessageID: id, TS: 5})
			}
		})
	}
}

func ids(entries []Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.MessageID)
	}
	return strings.Join(all, " ")
}

func TestDecode(t *testing.T) {
	want := Entry{Role: relay.RoleUser, Content: "x\n\"é\u2028", Sender: "s", MessageID: "m", TS: 1795211093522}
	for name, line := range map[string]string{
		"own":            `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093522}`,
		"another order":  ` { "ts": 1795211093522,"message_id":"m","sender":"s","content":"x\n\"é\u2028","role":"\u0075ser"} `,
		"unknown fields": `{"role":"user","extra":[{"a":1}],"content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093522}`,
		"ts as a string": `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":"1795211093522"}`,
		"ts with power":  `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1.795211093522e12}`,
		"ts in seconds":  `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093.522}`,
	} {
		if got, ok := decode([]byte(line)); !ok || !cmp.Equal(got, want) {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
	for name, ts := range map[string]string{"null": "null", "word": `"soon"`, "object": `{"a":1}`, "huge": "1e300"} {
		e, ok := decode([]byte(`{"role":"user","content":"x","sender":"s","message_id":"m","ts":` + ts + `}`))
		if !ok || e.TS != 0 || e.MessageID != "m" {
			t.Errorf("ts %s: %+v, %t, want the entry with ts 0", name, e, ok)
		}
	}
	if e, ok := decode([]byte(`{"role":"user","message_id":5}`)); ok {
		t.Errorf("a line was taken for %+v", e)
	}
}

// FuzzTail tries any content of the file: an appended message is the last one.
func FuzzTail(f *testing.F) {
	line := lines(f, message(1))
	f.Add([]byte(line))
	f.Add([]byte(line[:30] + line))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, file), string(data))
		s := open(t, dir, nil)
		e := message(-1)
		added, err := s.Append("feishu", "oc_x", e)
		must(t, err)
		got, err := s.Tail("feishu", "oc_x", 10)
		if err != nil || len(got) == 0 || added && !cmp.Equal(got[len(got)-1], e) {
			t.Fatal(got, err)
		}
	})
}

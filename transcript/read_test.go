package transcript

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encode returns e as a line.
func encode(e Entry) ([]byte, error) { return encodeTo(new(bytes.Buffer), e) }

// block is about what is read at once.
const block = 64 << 10

func TestReadingBackwards(t *testing.T) {
	line := func(id, content string) string {
		b, err := encode(Entry{Role: RoleUser, Content: content, MessageID: id, TS: 5})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	long := strings.Repeat("x", 3*block)
	for _, c := range []struct {
		name, content string
		n             int
		want          string
		skipped       int64
	}{
		{"empty file", "", 5, "", 0},
		{"one line", line("a", ""), 5, "a", 0},
		{"fewer than asked for", line("a", "") + line("b", ""), 5, "a b", 0},
		{"more than asked for", line("a", "") + line("b", "") + line("c", ""), 2, "b c", 0},
		{"unfinished last line", line("a", "") + strings.TrimSpace(line("b", "")), 5, "a", 0},
		{"nothing but an unfinished line", `{"role":"us`, 5, "", 0},
		{"unfinished line longer than a block", line("a", "") + `{"role":"` + long, 5, "a", 0},
		{"unfinished line beyond the limit", line("a", "") + strings.Repeat("x", 2*MaxLine), 5, "a", 0},
		{"line longer than a block", line("a", "") + line("b", long) + line("c", ""), 5, "a b c", 0},
		{"first line longer than a block", line("a", long) + line("b", ""), 5, "a b", 0},
		{"line of exactly a block", line("a", "") + line("b", long)[:0] + line("b", strings.Repeat("x", block-len(line("b", "")))) + line("c", ""), 5, "a b c", 0},
		{"line beyond the limit", line("a", "") + strings.Repeat("x", 2*MaxLine) + "\n" + line("b", ""), 5, "a b", 1},
		{"first line beyond the limit", strings.Repeat("x", 2*MaxLine) + "\n" + line("b", ""), 5, "b", 1},
		{"line a little beyond the limit", line("a", "") + strings.Repeat("x", MaxLine) + "\n" + line("b", ""), 5, "a b", 1},
		{"line at the limit", line("a", strings.Repeat("x", MaxLine-len(line("a", "")))), 5, "a", 0},
		{"CRLF", strings.ReplaceAll(line("a", "")+line("b", ""), "\n", "\r\n"), 5, "a b", 0},
		{"empty lines", "\n\n" + line("a", "") + "\n\r\n" + line("b", "") + "\n", 5, "a b", 0},
		{"invalid UTF-8", line("a", "") + `{"role":"user","content":"` + "\xff\xfe" + `","sender":"","message_id":"b","ts":1}` + "\n", 5, "a b", 0},
		{"junk", "junk\n" + line("a", "") + "{}\n[1]\nnull\n\x00\x00\n" + line("b", ""), 5, "a b", 5},
		{"missing role", `{"content":"x","sender":"","message_id":"b","ts":1}` + "\n" + line("a", ""), 5, "a", 1},
		{"another role", `{"role":"system","content":"x","message_id":"b"}` + "\n" + line("a", ""), 5, "a", 1},
		{"glued behind a part", line("a", "")[:20] + line("b", ""), 5, "b", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, file), c.content)
			s := open(t, dir, nil)
			got, err := s.Tail("feishu", "oc_x", c.n)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ids(got), c.want); diff != "" {
				t.Errorf("tail %d (-got +want):\n%s", c.n, diff)
			}
			if got := s.Skipped(); got != c.skipped {
				t.Errorf("%d lines skipped, want %d", got, c.skipped)
			}
			for range s.Back("feishu", "oc_x") {
				break // it may be left at once
			}
			// The appending side reads the same.
			add(t, s, true, Entry{Role: RoleUser, MessageID: "last"})
			for id := range strings.FieldsSeq(c.want) {
				add(t, s, false, Entry{Role: RoleUser, MessageID: id, TS: 5})
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
	want := Entry{Role: RoleUser, Content: "x\n\"é\u2028", Sender: "s", MessageID: "m", TS: 1795211093522}
	for name, line := range map[string]string{
		"own":             `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093522}`,
		"spaces":          `{ "role": "user", "content": "x\n\"é\u2028", "sender": "s", "message_id": "m", "ts": 1795211093522 } `,
		"another order":   `{"ts":1795211093522,"message_id":"m","sender":"s","content":"x\n\"é\u2028","role":"user"}`,
		"unknown fields":  `{"role":"user","extra":[{"a":1}],"content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093522}`,
		"ts as a string":  `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":"1795211093522"}`,
		"ts as a float":   `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093522.0}`,
		"ts with power":   `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1.795211093522e12}`,
		"ts in seconds":   `{"role":"user","content":"x\n\"é\u2028","sender":"s","message_id":"m","ts":1795211093.522}`,
		"escaped letters": `{"role":"\u0075ser","content":"x\n\"\u00e9\u2028","sender":"s","message_id":"m","ts":1795211093522}`,
	} {
		if got, ok := decode([]byte(line)); !ok || got != want {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
	for name, ts := range map[string]string{"null": "null", "word": `"soon"`, "object": `{"a":1}`, "huge": "1e300"} {
		e, ok := decode([]byte(`{"role":"user","content":"x","sender":"s","message_id":"m","ts":` + ts + `}`))
		if !ok || e.TS != 0 || e.MessageID != "m" {
			t.Errorf("ts %s: %+v, %t, want the entry with ts 0", name, e, ok)
		}
	}
	for _, line := range []string{
		``, `{`, `null`, `"x"`, `{"role":"user"`, `{"role":"user",}`, `{"role":"user","content":"\x"}`, `{"role":"user","content":"\u12g4"}`,
		`{"role":"user","ts":01}`, `{"role":"user"}x`, `{"role":"user","content":"` + "\t" + `"}`, `{"role":"user","message_id":5}`,
	} {
		if e, ok := decode([]byte(line)); ok {
			t.Errorf("%q was taken for %+v", line, e)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, i := range []int{0, 1} {
		line, _ := encode(benchLike(i))
		f.Add(bytes.TrimSpace(line))
	}
	f.Add([]byte(`{"role":"user","content":"\ud83d\ude00\u2028\/\b","ts":1795211093}`))
	f.Add([]byte(`{"role":"user","role":"assistant","ts":0}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		own, ok := decodeOwn(line)
		if ok {
			ok = own.check() == nil
			any, anyOK := decodeAny(line)
			if ok != anyOK || ok && own != any {
				t.Fatalf("read as %+v, %t and as %+v, %t", own, ok, any, anyOK)
			}
		}
		// What the appender takes for an entry, readers do too.
		if v, scanned := scan(line); scanned {
			if id, good := v.id(); good && (!ok || string(id) != own.MessageID) {
				t.Fatalf("id %q of a line that is read as %+v, %t", id, own, ok)
			}
		}
		e, found, _ := parse(line)
		if !found {
			return
		}
		again, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if back, ok := decode(bytes.TrimSuffix(again, []byte{'\n'})); !ok || back.Content != e.Content || back.MessageID != e.MessageID {
			t.Fatalf("%+v came back as %+v, %t", e, back, ok)
		}
	})
}

func benchLike(i int) Entry {
	e := message(i)
	e.Content, e.ParentID, e.UserTS = "一段话\n\"<at>\"", "om_p", int64(i)
	return e
}

// FuzzBack tries any content of the file.
func FuzzBack(f *testing.F) {
	line, _ := encode(message(1))
	f.Add(line)
	f.Add(append(line[:30], line...))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, file), string(data))
		s := open(t, dir, nil)
		for e, err := range s.Back("feishu", "oc_x") {
			if err != nil {
				t.Fatal(err)
			}
			if e.check() != nil {
				t.Fatalf("role %q", e.Role)
			}
		}
		cold, err := s.Tail("feishu", "oc_x", 10)
		if err != nil {
			t.Fatal(err)
		}
		e := message(-1)
		added, err := s.Append("feishu", "oc_x", e)
		if err != nil {
			t.Fatal(err)
		}
		warm, err := s.Tail("feishu", "oc_x", 10)
		if err != nil || len(warm) == 0 {
			t.Fatal(len(warm), err)
		}
		if added && warm[len(warm)-1] != e {
			t.Fatalf("the last of %d is not what was appended (%d before)", len(warm), len(cold))
		}
		expectTail(t, s, 10, warm)
	})
}

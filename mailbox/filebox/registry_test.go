package filebox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

func registryOf(dir string) string { return filepath.Join(dir, "_registry.json") }

func readRegistry(t testing.TB, dir string) string {
	t.Helper()
	data, err := os.ReadFile(registryOf(dir))
	must(t, err)
	return string(data)
}

// rewrite replaces the registry as a program does that locks nothing.
func rewrite(t testing.TB, dir, data string) {
	t.Helper()
	aside := registryOf(dir) + ".tmp"
	lay(t, aside, []byte(data))
	must(t, os.Rename(aside, registryOf(dir)))
}

// The cards of others stay byte for byte, and the fields of ours that we do
// not know stay, too.
func TestForeignEntries(t *testing.T) {
	dir := t.TempDir()
	foreign := []string{
		`"coder" : {"agentId":"coder","lastHeartbeat":1745659200000,  "maxConcurrentTasks": 2, "x": [1.0, 1e5, "\u4f60<&>"]}`,
		"\"tester\":{\n\t\"agent_id\": \"tester\",\n\t\"status\": \"busy\"\n}",
		`"\u0062ad": null`, `"../x": {"agent_id":"../x"}`, `"odd": [1, 2 , 3]`, `"": {}`, `"text":"text"`,
	}
	lay(t, registryOf(dir), []byte("\xef\xbb\xbf{"+strings.Join(foreign, ",\n")+`, "us":{"agent_id":"us","status":"offline","pid":42,"more":{"a": 1}}}`))
	s := open(t, dir)
	cards, err := s.Cards(t.Context())
	must(t, err)
	var names []string
	for _, c := range cards {
		names = append(names, string(c.AgentID))
	}
	if got := strings.Join(names, " "); got != "coder tester us" {
		t.Errorf("cards of %s", got)
	}
	if cards[0].MaxTasks != 2 || !cards[0].LastHeartbeat.Equal(time.UnixMilli(1745659200000)) {
		t.Errorf("a camelCase entry: %+v", cards[0])
	}
	for n := range 3 {
		must(t, s.SetCard(t.Context(), mailboxtest.Card("us", n)))
	}
	got := readRegistry(t, dir)
	for _, entry := range foreign {
		key, value, _ := strings.Cut(entry, ":")
		key = strings.ReplaceAll(strings.TrimSpace(key), `\u0062`, "b")
		if !strings.Contains(got, key+": "+strings.TrimSpace(value)) {
			t.Errorf("%s is not in\n%s", entry, got)
		}
	}
	var all map[string]map[string]any
	_ = json.Unmarshal([]byte(got), &all) // some are no objects
	if us := all["us"]; us["pid"] != 42.0 || us["more"] == nil || us["status"] != "busy" {
		t.Errorf("our entry is %v", us)
	}
	if !json.Valid([]byte(got)) || strings.Contains(got, `\u003c`) {
		t.Errorf("the registry is\n%s", got)
	}
}

// Trap 10: the registry is read, changed and written by several programs at
// once. What a program that locks nothing drops of ours is there again with the next heartbeat.
func TestPutBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	stale, err := mailbox.EncodeCard(mailboxtest.Card("us", 4), nil)
	must(t, err)
	for what, data := range map[string]string{
		"dropped":   `{"coder":{"agent_id":"coder"}}`,
		"set back":  `{"coder":{"agent_id":"coder"},"us":` + string(stale) + `}`,
		"no object": `{"us":null,"coder":{"agent_id":"coder"}}`,
	} {
		rewrite(t, dir, data)
		must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 5)))
		if c, ok := card(t, s, "us"); !ok || !c.LastHeartbeat.Equal(mailboxtest.Card("us", 5).LastHeartbeat) {
			t.Errorf("%s: our card is %+v", what, c)
		}
		if got := readRegistry(t, dir); !strings.Contains(got, `"coder": {"agent_id":"coder"}`) {
			t.Errorf("%s: the other entry is gone: %s", what, got)
		}
	}
}

// A registry that is no JSON, or too large to be read, is kept for a person, and begins again with the cards of those
// whose hearts beat.
func TestBrokenRegistry(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var many strings.Builder
	for i := range filebox.MaxEntries + 1 {
		fmt.Fprintf(&many, `,"a%d":{}`, i)
	}
	broken := []string{`{"us":`, `[]`, `null`, "\x00\x00", `{"a":{}} x`, `{"a":{},}`, "{" + many.String()[1:] + "}",
		`{"x":"` + strings.Repeat("x", filebox.MaxRegistry) + `"}`}
	kept := func() (all []string) {
		for _, name := range list(t, dir, "") {
			if strings.HasPrefix(name, "_registry.json.broken-") {
				data, err := os.ReadFile(filepath.Join(dir, name))
				must(t, err)
				all = append(all, string(data))
			}
		}
		return all
	}
	old := time.Now().Add(-time.Minute)
	for i, data := range append(broken, "\n") {
		rewrite(t, dir, data)
		must(t, os.Chtimes(registryOf(dir), old, old)) // nobody is writing it any more
		if cards, err := s.Cards(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%.20q: cards %v, %v", data, cards, err)
		}
		for _, agent := range []mailbox.AgentID{"us", "coder"} {
			must(t, s.SetCard(t.Context(), mailboxtest.Card(agent, i)))
		}
		if cards, err := s.Cards(t.Context()); err != nil || len(cards) != 2 {
			t.Errorf("%.20q: cards %v, %v", data, cards, err)
		}
		time.Sleep(time.Millisecond) // of which each has a name
	}
	if !slices.Equal(kept(), broken) {
		t.Errorf("%d are kept, want all %d but the empty one", len(kept()), len(broken))
	}
	for i := range filebox.MaxBroken {
		rewrite(t, dir, fmt.Sprintf("broken %d", i))
		must(t, os.Chtimes(registryOf(dir), old, old))
		must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 100+i)))
		time.Sleep(time.Millisecond)
	}
	if got := kept(); len(got) != filebox.MaxBroken || got[0] != "broken 0" {
		t.Errorf("%d are kept, the oldest is %q", len(got), got[0])
	}
}

// A program that writes the registry in place leaves it cut for a moment: that
// is no reason to build it again.
func TestRegistryWrittenInPlace(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	whole := `{"coder":{"agent_id":"coder"},"tester":{"agent_id":"tester"}}`
	lay(t, registryOf(dir), []byte(whole[:20]))
	done := make(chan error)
	go func() { done <- s.SetCard(t.Context(), mailboxtest.Card("us", 1)) }()
	select {
	case err := <-done:
		t.Fatalf("set in half a registry: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f, err := os.OpenFile(registryOf(dir), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString(whole[20:])
	must(t, err)
	must(t, f.Close())
	must(t, <-done)
	if cards, err := s.Cards(t.Context()); err != nil || len(cards) != 3 {
		t.Errorf("cards %v, %v", cards, err)
	}
}

func TestRegistryBounds(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var many strings.Builder
	for i := range filebox.MaxEntries {
		fmt.Fprintf(&many, `,"a%d":{}`, i)
	}
	link := func(t *testing.T) {
		lay(t, filepath.Join(dir, "target"), []byte("{}"))
		must(t, os.RemoveAll(registryOf(dir)))
		must(t, os.Symlink("target", registryOf(dir)))
	}
	for name, tt := range map[string]struct {
		prepare func(t *testing.T)
		cards   string // the error of Cards; "" none
		set     string
	}{
		"too many entries with ours": {func(t *testing.T) { rewrite(t, dir, "{"+many.String()[1:]+"}") }, "", "more than 10000 entries"},
		"a link":                     {link, "no regular file", "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.prepare(t)
			before := readRegistry(t, dir)
			_, errCards := s.Cards(t.Context())
			for what, err := range map[string]error{tt.cards: errCards, tt.set: s.SetCard(t.Context(), mailboxtest.Card("us", 1))} {
				if what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what)) {
					t.Errorf("got %v, want %q", err, what)
				}
			}
			if readRegistry(t, dir) != before {
				t.Error("it was changed")
			}
			if got := list(t, dir, ".tmp"); len(got) > 0 {
				t.Errorf("%q is left", got)
			}
		})
	}
}

// A process that hangs with the lock in its hand stops nobody for ever.
func TestLockIsHeld(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	f, err := os.Create(filepath.Join(dir, "_registry.json.lock"))
	must(t, err)
	defer f.Close()
	_, err = safefile.TryLock(f)
	must(t, err)
	filebox.SetLockWait(s, 50*time.Millisecond)
	if err := s.SetCard(t.Context(), mailboxtest.Card("us", 1)); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("got %v, want an error that names the lock", err)
	}
	must(t, os.Remove(f.Name())) // another file is another lock
	must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 2)))
}

func TestRights(t *testing.T) {
	parent := t.TempDir()
	for name, want := range map[string]struct{ folder, dir, file os.FileMode }{
		"own":    {0o700, 0o700, 0o600},
		"shared": {0o770, 0o770, 0o660},
	} {
		dir := filepath.Join(parent, name)
		must(t, os.Mkdir(dir, want.folder))
		must(t, os.Chmod(dir, want.folder))
		s := open(t, dir)
		must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 1)))
		must(t, s.SetCard(t.Context(), mailboxtest.Card("us", 2)))
		key, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 1)))
		must(t, err)
		again, err := s.Again(t.Context(), key, mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 1)))
		must(t, err)
		must(t, s.Settle(t.Context(), "b", again, mailbox.Taken))
		must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			must(t, err)
			info, err := d.Info()
			must(t, err)
			if want := map[bool]os.FileMode{true: want.dir, false: want.file}[d.IsDir()]; info.Mode().Perm() != want {
				t.Errorf("%s: %v, want %v", path, info.Mode().Perm(), want)
			}
			return nil
		}))
	}
}

func FuzzRegistry(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":{}}`, `{"a":{},"a":{"x":1}}`, `{"a":`, "[]", "null", `{"a" : 1 , "b":[ ]}`, "\xef\xbb\xbf{}", "{\"\\u0061\":\"\xff\"}", `{"a":1}{}`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		once, ok := filebox.Reformat(data)
		var plain map[string]json.RawMessage
		trimmed := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
		err := json.Unmarshal(trimmed, &plain)
		if want := err == nil && plain != nil; ok != want {
			t.Fatalf("%q: read %v, encoding/json says %v", data, ok, err)
		}
		if !ok {
			return
		}
		var again map[string]json.RawMessage
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("%q became %q: %v", data, once, err)
		}
		if len(again) != len(plain) {
			t.Fatalf("%q became %q", data, once)
		}
		for id, raw := range plain {
			if !bytes.Equal(again[id], raw) {
				t.Errorf("%q of %q became %q", raw, id, again[id])
			}
		}
		if twice, ok := filebox.Reformat(once); !ok || !bytes.Equal(once, twice) {
			t.Errorf("%q became %q", once, twice)
		}
	})
}

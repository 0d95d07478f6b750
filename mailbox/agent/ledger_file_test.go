package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

func removeAll(tb testing.TB, dir string) {
	tb.Helper()
	if err := os.RemoveAll(dir); err != nil {
		tb.Fatal(err)
	}
}

func writeTask(tb testing.TB, dir, name, content string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func readTask(tb testing.TB, dir, name string) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	add(t, openTasks(t, dir), task("t1", mailbox.Pending))
	names := taskFiles(t, dir)
	if len(names) != 1 || names[0] != "received_manager%2Ft1.json" {
		t.Fatalf("files %v", names)
	}
	text := readTask(t, dir, names[0])
	for _, want := range []string{`"id":"t1"`, `"peer":"manager"`, `"text":"find <b>"`, `"ttl":3`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not hold %s", text, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("rights %v", info.Mode())
	}
}

func TestLedgerBrokenFilesAreSetAside(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	add(t, l, task("good", mailbox.Pending), task("copied", mailbox.Pending))
	good := readTask(t, dir, "received_manager%2Fgood.json")
	broken := map[string]string{
		"received_manager%2Fempty.json":   "",
		"received_manager%2Ftorn.json":    good[:len(good)/2],
		"received_manager%2Flist.json":    "[]",
		"received_manager%2Fnull.json":    "null",
		"received_manager%2Fnostate.json": `{"id":"nostate","direction":"received","peer":"manager"}`,
		"received_manager%2Fpeer.json":    `{"id":"peer","direction":"received","peer":"../x","state":"pending"}`,
		"received_manager%2Fbig.json":     `{"id":"big","text":"` + strings.Repeat("x", 300<<10) + `"}`,
		"a copy of good.json":             good,
		"sent_x%2Fsecret.json":            `{"text":"SECRET`,
	}
	for name, content := range broken {
		writeTask(t, dir, name, content)
	}
	writeTask(t, dir, "received_manager%2Fgood.json.ABCDEFGH.tmp", good[:10])
	writeTask(t, dir, "notes.txt", "mine")
	if err := os.Mkdir(filepath.Join(dir, "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}

	again, log := logged(t, dir)
	wantSame(t, again, l)
	for name, content := range broken {
		if got := readTask(t, dir, name+".broken"); got != content {
			t.Errorf("%s was changed", name)
		}
		if !strings.Contains(log, name) {
			t.Errorf("no warning names %s", name)
		}
	}
	if strings.Contains(log, "SECRET") || strings.Contains(log, "xxxx") {
		t.Error("the warning holds a task's text")
	}
	if n, want := len(taskFiles(t, dir)), 2+len(broken)+3; n != want {
		t.Errorf("%d files, want %d: the torn temporary file goes, what is none of ours stays: %v", n, want, taskFiles(t, dir))
	}
	if _, log := logged(t, dir); log != "" {
		t.Errorf("warned again: %s", log)
	}
}

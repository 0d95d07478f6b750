//go:build unix

package outbox

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"feishu-relay/relay"
)

// inOwnProcess reports whether this process has only the test t to run. If not, it runs t in
// such a process: [fillDisk] limits all files of a process.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	const variable = "OUTBOX_TEST_OWN_PROCESS"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// fillDisk leaves room for only that many bytes after the only segment in dir, until
// free is called: a longer write is cut short and then refused, as on a full disk.
func fillDisk(t *testing.T, dir string, room int64) (free func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	info, err := os.Stat(segmentFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	var unlimited syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		t.Fatal(err)
	}
	limited := unlimited
	limited.Cur = uint64(info.Size() + room)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
			t.Fatal(err)
		}
	}
}

// A line that a killed process left torn is ended before the next one, also where the disk
// was full when the box was opened.
func TestATornLineThatOpenCannotEnd(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	dir, q := t.TempDir(), &backend{}
	put(t, openBox(t, dir, Options{}), "1")
	appendTo(t, segmentFiles(t, dir)[0], `{"relay_msg_id":"torn","channel":"feis`)
	free := fillDisk(t, dir, 0)
	b := openBox(t, dir, Options{})
	if _, err := b.Put(message("refused")); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("put on a full disk: %v", err)
	}
	free()
	put(t, b, "2", "3")
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 3))
	wantEmpty(t, b)
	b = openBox(t, dir, Options{})
	if m, err := b.Put(message("4")); err != nil || m.Seq != 4 {
		t.Errorf("seq: got %d, %v; want 4", m.Seq, err)
	}
}

// Of lines that are appended together none is published when the disk has no room for all.
func TestLinesThatDoNotFitTogether(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	dir, q := t.TempDir(), &backend{}
	b := openBox(t, dir, Options{})
	appendEvents(t, b, 1, 1)
	before, err := os.ReadFile(segmentFiles(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, dir, int64(2*len(before)+10))
	err = b.Append(4, func(i int, seq relay.Seq) ([]byte, error) { return event(10+i, seq), nil })
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("append on a full disk: %v", err)
	}
	if after, err := os.ReadFile(segmentFiles(t, dir)[0]); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the refused lines are in the file: %q, %v", after, err)
	}
	free()
	appendEvents(t, b, 2, 4)
	drain(t, b, q)
	if want := events(1, 5); !slices.Equal(q.seen, want) {
		t.Errorf("published %q, want %q", q.seen, want)
	}
	wantEmpty(t, b)
}

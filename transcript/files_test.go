package transcript

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/safefile"
)

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, &Options{rotateSize: 1000, keep: 3})
	all := messages(0, 200)
	add(t, s, true, all...)
	names, err := s.files()
	must(t, err)
	if len(names) != 4 {
		t.Errorf("%d files, want the current one and 3: %v", len(names), names)
	}
	got, err := s.Tail("feishu", "oc_x", 1000)
	must(t, err)
	if diff := cmp.Diff(got, all[len(all)-len(got):]); diff != "" || len(got) < 25 {
		t.Errorf("%d entries kept (-got +want):\n%s", len(got), diff)
	}
	expectTail(t, s, 20, all[180:])
	chats, err := s.Chats()
	if err != nil || len(chats) != 1 || chats[0].ChatID != "oc_x" || chats[0].LastTS != all[199].TS || chats[0].Size < 3000 {
		t.Errorf("chats: %+v, %v", chats, err)
	}
	add(t, open(t, dir, nil), false, got...)
}

func TestForeignHands(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, path string){
		"truncated": func(t *testing.T, path string) { writeFile(t, path, "") },
		"truncated and longer again": func(t *testing.T, path string) {
			writeFile(t, path, lines(t, messages(100, 150)...))
		},
		"replaced": func(t *testing.T, path string) {
			writeFile(t, path+"~", "")
			must(t, os.Rename(path+"~", path))
		},
		"removed":                 func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"removed with its folder": func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) },
		"in a folder that was renamed and made again": func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			must(t, errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "transcripts")
			s := open(t, dir, nil)
			reader := open(t, dir, nil)
			add(t, s, true, messages(0, 10)...)
			expectTail(t, reader, 10, messages(0, 10))
			do(t, filepath.Join(dir, file))
			before, err := s.Tail("feishu", "oc_x", 1000)
			must(t, err)
			add(t, s, true, message(200))
			add(t, s, true, messages(0, 10)...) // they are no longer there
			add(t, s, false, messages(0, 10)...)
			add(t, s, false, before...)
			for _, s := range []*Store{s, reader} {
				expectTail(t, s, 1000, slices.Concat(before, []Entry{message(200)}, messages(0, 10)))
				if got, err := s.Chats(); err != nil || len(got) != 1 {
					t.Errorf("chats: %d, %v, want 1", len(got), err)
				}
			}
		})
	}
	t.Run("moved away as logrotate does", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, nil)
		add(t, s, true, messages(0, 10)...)
		must(t, os.Rename(filepath.Join(dir, file), filepath.Join(dir, file+".1")))
		expectTail(t, s, 100, messages(0, 10))
		add(t, s, true, message(10))
		add(t, s, false, messages(0, 11)...)
		expectTail(t, s, 100, messages(0, 11))
	})
}

// A process that is paused while it has the lock of a chat's file delays nothing but new messages of that chat, and
// those for ten seconds.
func TestLockThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // ten seconds pass at once
		dir := t.TempDir()
		s := open(t, dir, nil)
		add(t, s, true, message(0))
		unlock := locked(t, open(t, dir, nil))
		expectTail(t, s, 5, messages(0, 1)) // readers do not wait
		add(t, s, false, message(0))        // nor does what is known
		if added, err := s.Append("feishu", "oc_y", message(0)); !added || err != nil {
			t.Error("another chat waits", err)
		}
		if added, err := s.Append("feishu", "oc_x", message(1)); added || !errors.Is(err, ErrBusy) {
			t.Errorf("append: %t, %v, want ErrBusy", added, err)
		}
		other := open(t, dir, nil)
		time.AfterFunc(time.Second, func() { must(t, other.Close()) })
		if _, err := other.Append("feishu", "oc_x", message(2)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("append during Close: %v, want os.ErrClosed", err)
		}
		time.AfterFunc(time.Second, unlock)
		add(t, s, true, message(1))
	})
}

// locked takes the lock of a chat's file, as a process does that is paused then.
func locked(t *testing.T, s *Store) (unlock func()) {
	t.Helper()
	root, err := s.dir.Open(true)
	must(t, err)
	f, err := safefile.Open(root, file, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	must(t, err)
	ok, err := safefile.TryLock(f)
	if !ok || err != nil {
		t.Fatalf("no lock: %v", err)
	}
	return func() { must(t, f.Close()) }
}

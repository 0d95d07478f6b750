package transcript

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A writer that waited in turn, and whose message another process wrote meanwhile, leaves
// its turn: the lock is free for all.
func TestATurnThatIsNotNeededEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		holder, waiter, other := open(t, dir, nil), open(t, dir, nil), open(t, dir, nil)
		add(t, waiter, true, message(0))
		unlock := locked(t, holder.chat(chatKey{"feishu", "oc_x"}))
		done := appending(waiter, message(1))
		time.Sleep(300 * time.Millisecond) // it has the next turn
		line, err := encode(message(1))
		must(t, err)
		f, err := os.OpenFile(filepath.Join(dir, fileName("feishu", "oc_x")), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.Write(line)
		must(t, err)
		must(t, f.Close())
		must(t, <-done)
		unlock()
		began := time.Now()
		if added, err := other.TryAppend("feishu", "oc_x", message(2)); err != nil || !added || time.Since(began) > 0 {
			t.Errorf("with a free lock: added %v, %v after %v", added, err, time.Since(began))
		}
	})
}

// A paused process that has the lock of a file does not block writers after the folder
// was replaced.
func TestAReplacedFolderIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		holder, a := open(t, dir, nil), open(t, dir, nil)
		add(t, a, true, message(0))
		unlock := locked(t, holder.chat(chatKey{"feishu", "oc_x"}))
		must(t, os.Rename(dir, dir+".away"))
		must(t, os.Mkdir(dir, 0o700))
		if added, err := a.TryAppend("feishu", "oc_x", message(1)); err != nil || !added {
			t.Errorf("added %v, %v", added, err)
		}
		unlock()
	})
}

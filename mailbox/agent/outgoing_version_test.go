package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// What the version wrote that had no version field in its files goes on: what waits, what
// is in a pause, what is watched, what the store does not have, and the dead letters.
func TestFilesOfEarlierVersions(t *testing.T) {
	story(t, func(r *rig) {
		r.stop()
		if err := os.CopyFS(r.dir, os.DirFS(filepath.Join("testdata", "outgoing"))); err != nil {
			t.Fatal(err)
		}
		r.after(3 * s)
		r.open()
		if got, want := letterIDs(r), []string{"late", "refused"}; !slices.Equal(got, want) {
			t.Errorf("dead letters %v, want %v", got, want)
		}
		all, err := r.DeadLetters()
		if err != nil {
			t.Fatal(err)
		}
		if d := all[0]; d.Code != mailbox.AgentOffline || d.Attempts != 1 || !d.Expired || d.Envelope.Text() != "hello <b>" ||
			!d.DeadAt.Equal(r.start.Add(s)) {
			t.Errorf("dead letter %+v", d)
		}
		r.after(31 * s)
		r.wantCalls("3s put unsent 0 k1", "5s again busy 2 k2", "34s again waits 1 k1")
		r.after(time.Hour)
		if !r.IsDead("watched", "coder") || r.Pending() != 0 {
			t.Errorf("dead letters %v, %d wait", letterIDs(r), r.Pending())
		}
		for _, name := range files(t, r.dir, "dead") {
			data, err := os.ReadFile(filepath.Join(r.dir, "dead", name))
			if err != nil {
				t.Fatal(err)
			}
			if old := strings.HasPrefix(name, "0946684800000"); !old && !bytes.HasPrefix(data, []byte(`{"version":1,`)) {
				t.Errorf("%s: %s", name, data)
			}
		}
	})
}

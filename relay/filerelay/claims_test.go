package filerelay_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay/filerelay"
)

// claimFile writes the file of a claim, as old as age.
func claimFile(t *testing.T, dir, name, content string, age time.Duration) (path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "claims"), 0o700))
	path = filepath.Join(dir, "claims", name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	at := time.Now().Add(-age)
	must(t, os.Chtimes(path, at, at))
	return path
}

// lockClaims takes the lock of the claims as a paused process has it.
func lockClaims(t *testing.T, dir string) *os.File {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "claims"), 0o700))
	f, err := os.OpenFile(filepath.Join(dir, "claims", ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	must(t, safefile.Lock(f))
	return f
}

func unix(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

func wantClaim(t *testing.T, q *filerelay.Queue, key string, life time.Duration, want bool) {
	t.Helper()
	owner := rand.Text()
	if holder, err := q.Claim(t.Context(), key, owner, life); err != nil || (holder == owner) != want {
		t.Fatalf("claim %q for %s: got %q, %v, want it for oneself: %v", key, owner, holder, err, want)
	}
}

// What the file of a key holds decides, and for a file that cannot be believed its age.
func TestClaimFiles(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name    string
		content string
		age     time.Duration
		want    bool
	}{
		{"held", unix(now.Add(30 * time.Minute)), 30 * time.Minute, false},
		{"expired", unix(now.Add(-time.Minute)), time.Hour, true},
		{"expired though just written", unix(now.Add(-time.Minute)), 0, true},
		{"emptied by a power cut", "", 0, false},
		{"emptied by a power cut long ago", "", 2 * time.Hour, true},
		{"no number", "soon", 30 * time.Minute, false},
		{"no number, old", "soon", 2 * time.Hour, true},
		{"made while the clock was ahead", unix(now.Add(1000 * time.Hour)), 30 * time.Minute, false},
		{"made while the clock was ahead, old", unix(now.Add(1000 * time.Hour)), 2 * time.Hour, true},
		{"the clock of the file system is behind", unix(now.Add(time.Hour)), 30 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			claimFile(t, dir, "key", c.content, c.age)
			q := queue(t, dir, "a", filerelay.Options{})
			wantClaim(t, q, "key", time.Hour, c.want)
			wantClaim(t, q, "key", time.Hour, false)
		})
	}
}

// While a process is paused with the lock, keys that are free are claimed; and where the
// lock is removed meanwhile, one gets a key that has expired.
func TestClaimBesideAPausedProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := queue(t, dir, "a", filerelay.Options{}), queue(t, dir, "b", filerelay.Options{})
	f := lockClaims(t, dir)
	stale := claimFile(t, dir, "stale", "0", time.Hour)
	wantClaim(t, a, "key", time.Hour, true)
	wantClaim(t, b, "key", time.Hour, false)
	if _, err := os.Stat(stale); err != nil {
		t.Errorf("an expired claim was removed without the lock: %v", err)
	}

	var firsts atomic.Int64
	var racing sync.WaitGroup
	for _, q := range []*filerelay.Queue{a, b} {
		for range 10 {
			racing.Go(func() {
				owner := rand.Text()
				holder, err := q.Claim(t.Context(), "stale", owner, time.Hour)
				if err != nil {
					t.Error(err)
				}
				if holder == owner {
					firsts.Add(1)
				}
			})
		}
	}
	must(t, os.Remove(f.Name()))
	racing.Wait()
	if n := firsts.Load(); n != 1 {
		t.Errorf("%d got the expired claim, want 1", n)
	}
}

// Now and then what expired is removed, and what killed processes left.
func TestClaimsArePruned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	var gone, kept []string
	for i := range 20 {
		gone = append(gone, claimFile(t, dir, fmt.Sprint("expired", i), unix(now.Add(-time.Minute)), time.Hour))
		kept = append(kept, claimFile(t, dir, fmt.Sprint("held", i), unix(now.Add(time.Hour)), time.Hour))
	}
	gone = append(gone, claimFile(t, dir, ".new-X", unix(now.Add(-time.Minute)), time.Hour))
	kept = append(kept, claimFile(t, dir, "empty", "", 48*time.Hour), claimFile(t, dir, ".lock", "", 10_000*time.Hour))
	wantClaim(t, queue(t, dir, "a", filerelay.Options{}), "key", time.Hour, true)
	kept = append(kept, filepath.Join(dir, "claims", "key"))
	for _, path := range gone {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if list, err := filepath.Glob(filepath.Join(dir, "claims", ".new-*")); err != nil || len(list) > 0 {
		t.Errorf("left: %q, %v", list, err)
	}
}

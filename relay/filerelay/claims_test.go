package filerelay_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

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
		{"expired", unix(now.Add(-time.Minute)), time.Hour, true},
		{"emptied by a power cut", "", 0, false},
		{"emptied by a power cut long ago", "", 2 * time.Hour, true},
		{"made while the clock was ahead, old", unix(now.Add(1000 * time.Hour)), 2 * time.Hour, true},
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
	gone = append(gone, claimFile(t, dir, "key.XYZ.tmp", unix(now.Add(-time.Minute)), time.Hour))
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
}

package agent

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// start is when the tests' tasks are given: now, so that none is too old to keep.
var start = time.Now().UTC().Round(0)

func openTasks(tb testing.TB, dir string) *ledger { return openLogged(tb, dir, nil) }

func openLogged(tb testing.TB, dir string, log *slog.Logger) *ledger {
	tb.Helper()
	root, err := safefile.OpenDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { root.Close() })
	l, err := openLedger(root, log)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// logged opens the ledger in dir and returns what it warns of.
func logged(tb testing.TB, dir string) (*ledger, string) {
	tb.Helper()
	var out bytes.Buffer
	l := openLogged(tb, dir, slog.New(slog.NewTextHandler(&out, nil)))
	return l, out.String()
}

func task(id string, state mailbox.TaskState) TaskRecord {
	return TaskRecord{ID: id, Direction: Received, Peer: "manager", State: state, Text: "find <b>",
		MessageID: "msg_" + id, Hops: 3, Trace: []mailbox.AgentID{"manager"}, CreatedAt: start,
		Callback: &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"}}
}

func add(tb testing.TB, l *ledger, list ...TaskRecord) {
	tb.Helper()
	for _, r := range list {
		if _, added, err := l.Add(r); err != nil || !added {
			tb.Fatalf("add %s: %t, %v", r.ID, added, err)
		}
	}
}

func move(tb testing.TB, l *ledger, r TaskRecord, to mailbox.TaskState) (TaskRecord, bool) {
	tb.Helper()
	got, changed, err := l.Move(r.Direction, r.Peer, r.ID, to, "because", start.Add(time.Minute))
	if err != nil {
		tb.Fatalf("move %s to %s: %v", r.ID, to, err)
	}
	return got, changed
}

// wantSame fails where two ledgers do not hold the same.
func wantSame(tb testing.TB, got, want *ledger) {
	tb.Helper()
	if diff := cmp.Diff(want.List(), got.List()); diff != "" {
		tb.Errorf("reopened (+) it differs:\n%s", diff)
	}
}

func ids(list []TaskRecord) (all []string) {
	for _, r := range list {
		all = append(all, r.ID)
	}
	return all
}

func wantIDs(tb testing.TB, what string, got []TaskRecord, want ...string) {
	tb.Helper()
	if !slices.Equal(ids(got), want) {
		tb.Errorf("%s: got %v, want %v", what, ids(got), want)
	}
}

func taskFiles(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

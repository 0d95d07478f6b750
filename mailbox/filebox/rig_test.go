package filebox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

// patience is how long a test waits for what must come; then it fails.
const patience = 60 * time.Second

func unclosed(t testing.TB, dir string, recheck time.Duration) *filebox.Store {
	t.Helper()
	s, err := filebox.Open(dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	filebox.SetRecheck(s, recheck)
	return s
}

// open opens a store that looks again every 20 ms.
func open(t testing.TB, dir string) *filebox.Store {
	t.Helper()
	s := unclosed(t, dir, 20*time.Millisecond)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// receive runs a Receive until the test ends and returns what it shows.
func receive(t testing.TB, s *filebox.Store, agent mailbox.AgentID) <-chan mailbox.Item {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	items := make(chan mailbox.Item)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := s.Receive(ctx, agent, func(item mailbox.Item) {
			select {
			case items <- item:
			case <-ctx.Done():
			}
		}, nil)
		if ctx.Err() == nil {
			t.Errorf("Receive returned %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return items
}

func next(t testing.TB, items <-chan mailbox.Item) mailbox.Item {
	t.Helper()
	select {
	case item := <-items:
		return item
	case <-time.After(patience):
		t.Fatal("no mail came")
	}
	panic("not reached")
}

// keys takes as many items as there are keys wanted, and compares.
func wantKeys(t testing.TB, items <-chan mailbox.Item, want ...string) {
	t.Helper()
	for _, key := range want {
		if got := next(t, items); got.Key != key {
			t.Fatalf("got %s, want %s", got.Key, key)
		}
	}
}

func nothing(t testing.TB, items <-chan mailbox.Item) {
	t.Helper()
	select {
	case item := <-items:
		t.Fatalf("mail came where none was due: %s %.60q", item.Key, item.Raw)
	case <-time.After(100 * time.Millisecond):
	}
}

// lay writes a file as it is, with its folders, as another program might.
func lay(t testing.TB, path string, data []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, data, 0o600))
}

// list returns the names in a folder that end in suffix.
func list(t testing.TB, dir, suffix string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	must(t, err)
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// mail encodes the i-th message.
func mail(t testing.TB, i int) []byte {
	t.Helper()
	data, err := mailbox.Encode(mailboxtest.Envelope("a", "b", i))
	must(t, err)
	return data
}

func agents(n int) []mailbox.AgentID {
	var list []mailbox.AgentID
	for i := range n {
		list = append(list, mailbox.AgentID(fmt.Sprintf("agent%d", i)))
	}
	return list
}

func card(t testing.TB, s *filebox.Store, agent mailbox.AgentID) (mailbox.Card, bool) {
	t.Helper()
	cards, err := s.Cards(t.Context())
	must(t, err)
	at := slices.IndexFunc(cards, func(c mailbox.Card) bool { return c.AgentID == agent })
	if at < 0 {
		return mailbox.Card{}, false
	}
	return cards[at], true
}

// beats reads which heartbeat each entry of the registry has.
func beats(t *testing.T, dir string) map[string]int {
	t.Helper()
	var all map[string]struct {
		Beat  int      `json:"beat"`
		Tasks []string `json:"current_tasks"`
	}
	if json.Unmarshal([]byte(readRegistry(t, dir)), &all) != nil {
		return nil // being written in place
	}
	got := map[string]int{}
	for name, e := range all {
		got[name] = e.Beat
		if len(e.Tasks) > 0 {
			got[name], _ = strconv.Atoi(strings.TrimPrefix(e.Tasks[0], "task-"))
		}
	}
	return got
}

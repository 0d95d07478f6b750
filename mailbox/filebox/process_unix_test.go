//go:build unix

package filebox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

// The roles of processes, each with a folder and the name of an agent.
func TestMain(m *testing.M) {
	childtest.Main(m, map[string]func([]string) error{burst: putMany, beat: beatOn, work: workOn, full: onFullDisk,
		replace: func(args []string) error { return foreign(args, false) },
		inPlace: func(args []string) error { return foreign(args, true) }})
}

const (
	burst   = "burst"   // puts 250 messages to b
	beat    = "beat"    // sets its card until it is told to stop, then prints how often; ends when told again
	work    = "work"    // puts, puts again and sets its card, and prints what it was told is done
	replace = "replace" // foreign: rewrites the registry by rename, as beat does
	inPlace = "inplace" // foreign: rewrites the registry in place
	full    = "full"    // finds the disk full, and then not
)

const burstSize = 250

func putMany(args []string) error {
	s, err := filebox.Open(args[0], nil)
	for i := 0; err == nil && i < burstSize; i++ {
		_, err = s.Put(context.Background(), mailboxtest.Sealed(mailboxtest.Envelope(mailbox.AgentID(args[1]), "b", i)))
	}
	return err
}

func beatOn(args []string) error {
	s, err := filebox.Open(args[0], nil)
	if err != nil {
		return err
	}
	ctx, self := context.Background(), mailbox.AgentID(args[1])
	filebox.SetLockWait(s, patience) // a process without a processor for 10 s does not hang
	go func() {
		err := s.Receive(ctx, self, func(mailbox.Item) {}, nil)
		fmt.Fprintln(os.Stderr, self, err)
		os.Exit(1)
	}()
	return untilTold(func(n int) error { return s.SetCard(ctx, living(self, n)) })
}

func workOn(args []string) error {
	s, err := filebox.Open(args[0], nil)
	if err != nil {
		return err
	}
	ctx, self := context.Background(), mailbox.AgentID(args[1])
	for n := 1; ; n++ {
		e := mailboxtest.Envelope(self, "b", n)
		key, err := s.Put(ctx, mailboxtest.Sealed(e))
		if err != nil {
			return err
		}
		fmt.Println("key", key)
		if _, err := s.Again(ctx, key, mailboxtest.Sealed(e)); err != nil {
			return err
		}
		if err := s.SetCard(ctx, living(self, n)); err != nil {
			return err
		}
		fmt.Println("card", n)
	}
}

// onFullDisk may write 100 bytes to a file, and then more.
func onFullDisk(args []string) error {
	s, err := filebox.Open(args[0], nil)
	if err != nil {
		return err
	}
	ctx, self := context.Background(), mailbox.AgentID(args[1])
	for _, limit := range []uint64{100, 1 << 20} {
		if err := childtest.LimitFiles(limit); err != nil {
			return err
		}
		key, errPut := s.Put(ctx, mailboxtest.Sealed(mailboxtest.Envelope(self, "b", 1)))
		errCard := s.SetCard(ctx, living(self, 1))
		if bad := limit == 100; (errPut != nil) != bad || (errCard != nil) != bad {
			return fmt.Errorf("with a limit of %d bytes: Put %q, %v; SetCard %v", limit, key, errPut, errCard)
		}
	}
	return nil
}

// living is a card with the n-th heartbeat of an agent that is alive now.
func living(self mailbox.AgentID, n int) mailbox.Card {
	c := mailboxtest.Card(self, n)
	c.LastHeartbeat = time.Now().Truncate(time.Millisecond)
	return c
}

// untilTold calls do until a line comes in and prints how often that was; then
// once more for each further line. It returns when the standard input ends.
func untilTold(do func(n int) error) error {
	told := make(chan struct{})
	lines := bufio.NewScanner(os.Stdin)
	go func() { lines.Scan(); close(told) }()
	fmt.Println("ready")
	for n := 1; ; n++ {
		if err := do(n); err != nil {
			return err
		}
		select {
		case <-told:
			fmt.Println(n)
			if !lines.Scan() {
				return nil
			}
		case <-time.After(rand.N(3 * time.Millisecond)):
		}
	}
}

// foreign is a program of another make: it reads the whole registry, changes its
// own entry and writes the whole, with no lock (docs/protocol.md 6.5).
func foreign(args []string, inPlace bool) error {
	path, self := filepath.Join(args[0], "_registry.json"), args[1]
	return untilTold(func(n int) error {
		var all map[string]any
		for all == nil { // it does not exist yet, or is being written in place
			if data, err := os.ReadFile(path); err == nil {
				_ = json.Unmarshal(data, &all)
			}
		}
		all[self] = map[string]any{"agentId": self, "status": "idle", "beat": n,
			"lastHeartbeat": time.Now().Format(time.RFC3339Nano)}
		data, err := json.MarshalIndent(all, "", "    ")
		if err != nil {
			return err
		}
		time.Sleep(rand.N(time.Millisecond)) // in which it misses what others write
		if !inPlace {
			if err := os.WriteFile(path+".foreign", data, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".foreign", path)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		for part := range slices.Chunk(data, len(data)/3+1) {
			if _, err := f.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
}

// Trap 9: eight processes put 2,000 messages at once; 2,000 files lie there.
func TestBurstOfProcesses(t *testing.T) {
	dir := t.TempDir()
	var all []*childtest.Child
	for _, self := range agents(8) {
		all = append(all, childtest.Start(t, burst, dir, string(self)))
	}
	for _, p := range all {
		p.Wait()
	}
	names := list(t, filepath.Join(dir, "b", "inbox"), "")
	ids := map[string]bool{}
	for _, name := range names {
		raw, err := os.ReadFile(filepath.Join(dir, "b", "inbox", name))
		must(t, err)
		e, err := mailbox.Decode(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ids[e.ID] = true
	}
	if len(names) != 8*burstSize || len(ids) != 8*burstSize {
		t.Errorf("%d files with %d messages, want %d", len(names), len(ids), 8*burstSize)
	}
}

// Trap 10: eight processes beat at once, and programs that lock nothing rewrite
// the registry in between, by rename and in place. A heartbeat that one of these lost counts the next time: at the end
// every card is there, with its last heartbeat. FILEBOX_SOAK=1m lets them run so long.
func TestBeatingProcesses(t *testing.T) {
	long := 500 * time.Millisecond
	if text := os.Getenv("FILEBOX_SOAK"); text != "" {
		var err error
		long, err = time.ParseDuration(text)
		must(t, err)
	}
	dir := t.TempDir()
	open(t, dir)
	all := map[mailbox.AgentID]*childtest.Child{replace: childtest.Start(t, replace, dir, replace),
		inPlace: childtest.Start(t, inPlace, dir, inPlace)}
	for _, self := range agents(8) {
		all[self] = childtest.Start(t, beat, dir, string(self))
	}
	for _, p := range all {
		p.Line()
	}
	time.Sleep(long) // the time of the contest; nothing is expected of it
	want, got := map[string]int{}, map[string]int{}
	tell := func(self mailbox.AgentID) {
		all[self].Tell()
		want[string(self)], _ = strconv.Atoi(all[self].Line())
	}
	for self := range all {
		tell(self)
	}
	defer func() { t.Logf("beats: want %v\ngot %v", want, got) }()
	heartbeat := time.NewTicker(100 * time.Millisecond)
	defer heartbeat.Stop()
	relaytest.Eventually(t, "all cards with their last heartbeats", func() bool {
		got = beats(t, dir)
		select {
		case <-heartbeat.C:
			for self := range all {
				if got[string(self)] < want[string(self)] {
					tell(self)
				}
			}
		default:
		}
		return maps.Equal(got, want)
	})
	for _, p := range all {
		p.Wait()
	}
}

// A full disk gives an error, and leaves nothing behind.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	childtest.Start(t, full, dir, "a").Wait()
	if got := list(t, filepath.Join(dir, "b", "inbox"), ""); len(got) != 1 {
		t.Errorf("in the inbox: %q", got)
	}
	if got := list(t, dir, ""); len(got) != 3 { // registry, its lock, b
		t.Errorf("in the mailbox: %q", got)
	}
}

// A process killed at any point leaves whole messages and a whole registry, and
// what it was told is done is done.
func TestKilledWriters(t *testing.T) {
	kills := 12
	if os.Getenv("FILEBOX_SOAK") != "" {
		kills = 300
	}
	dir := t.TempDir()
	s := open(t, dir)
	observer := mailboxtest.Card("observer", 1)
	must(t, s.SetCard(t.Context(), observer))
	keys := map[string]bool{}
	for round := range kills / 3 {
		var all []*childtest.Child
		last := make([]int, 3)
		for i := range 3 {
			all = append(all, childtest.Start(t, work, dir, string(agents(3)[i])))
		}
		for i, p := range all {
			for range 2 + rand.IntN(10) {
				switch what, value, _ := strings.Cut(p.Line(), " "); what {
				case "key":
					keys[value] = true
				case "card":
					last[i], _ = strconv.Atoi(value)
				}
			}
		}
		for _, p := range all {
			p.Kill()
		}
		names := list(t, filepath.Join(dir, "b", "inbox"), ".msg.json")
		for _, name := range names {
			raw, err := os.ReadFile(filepath.Join(dir, "b", "inbox", name))
			must(t, err)
			if _, err := mailbox.Decode(raw); err != nil {
				t.Fatalf("round %d: %s: %v", round, name, err)
			}
		}
		for key := range keys {
			if !slices.Contains(names, key) {
				t.Fatalf("round %d: %s is gone", round, key)
			}
		}
		if !json.Valid([]byte(readRegistry(t, dir))) {
			t.Fatalf("round %d: the registry is %s", round, readRegistry(t, dir))
		}
		got := beats(t, dir)
		for i, n := range last {
			if n > 0 && got[string(agents(3)[i])] < n || got["observer"] != 1 {
				t.Fatalf("round %d: card %d of %s was set, the registry has %v", round, n, agents(3)[i], got)
			}
		}
		must(t, s.SetCard(t.Context(), observer)) // no lock is left
	}
	t.Logf("%d kills, %d messages, %d left-over temporary files", kills, len(keys),
		len(list(t, filepath.Join(dir, "b", "inbox"), ".tmp")))
}

//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// history records what was promised to the bots and what they got, and proves
// afterwards that the promises were kept.
type history struct {
	bots []string

	mu        sync.Mutex
	accepted  map[relay.MessageID]*promise
	said      map[conversation][]relay.MessageID // in the order of the sends
	heard     map[relay.MessageID]*promise       // users' messages
	delivered map[string]map[relay.MessageID]int // by bot: how often
	first     map[string][]relay.MessageID       // by bot: first deliveries in their order
	open      int                                // first deliveries that are due
	events    int                                // sends accepted and deliveries
	exempt    map[relay.MessageID]bool           // not to be delivered
	faults    []string
	changed   chan struct{} // closed at the next event
}

type conversation struct{ sender, chat string }

// promise is a message that a sidecar has accepted.
type promise struct {
	conversation
	sum uint64 // of the content
}

func newHistory(bots []string) *history {
	h := &history{bots: bots, accepted: map[relay.MessageID]*promise{}, said: map[conversation][]relay.MessageID{},
		heard: map[relay.MessageID]*promise{}, delivered: map[string]map[relay.MessageID]int{},
		first: map[string][]relay.MessageID{}, exempt: map[relay.MessageID]bool{}, changed: make(chan struct{})}
	for _, b := range bots {
		h.delivered[b] = map[relay.MessageID]int{}
	}
	return h
}

func sumOf(content string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(content)) // never fails
	return sum.Sum64()
}

// happened wakes who waits; the caller holds mu.
func (h *history) happened() {
	h.events++
	close(h.changed)
	h.changed = make(chan struct{})
}

// sent notes a send that was answered with 202.
func (h *history) sent(id relay.MessageID, sender, chat, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := conversation{sender, chat}
	h.accepted[id] = &promise{c, sumOf(content)}
	h.said[c] = append(h.said[c], id)
	if !h.exempt[id] {
		h.open += len(h.bots) - 1
	}
	h.happened()
}

// spare says, before it is sent, that a message is not to be delivered.
func (h *history) spare(id relay.MessageID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exempt[id] = true
}

// reported notes a user's message that was answered with 202.
func (h *history) reported(id relay.MessageID, user, chat, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard[id] = &promise{conversation{user, chat}, sumOf(content)}
	h.happened()
}

// got notes what a bot was given.
func (h *history) got(bot string, in *relay.Inbound) {
	id, _ := in.Metadata["relay_msg_id"].(string)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered[bot][relay.MessageID(id)]++
	if h.delivered[bot][relay.MessageID(id)] == 1 {
		h.first[bot] = append(h.first[bot], relay.MessageID(id))
		h.open--
	}
	sender, _, _ := strings.Cut(in.Content, "/")
	if from, _ := in.Metadata["sender_agent_name"].(string); from != sender || from == bot {
		h.faults = append(h.faults, fmt.Sprintf("%s got %s of %q as a message of %q", bot, id, sender, from))
	}
	if !strings.HasPrefix(in.Content, sender+"/"+string(in.ChatID)+"/") || !strings.HasSuffix(in.Content, ".") {
		h.faults = append(h.faults, fmt.Sprintf("%s got a mangled %s", bot, id))
	}
	h.happened()
}

// await waits until cond, which is asked at each event with mu held, holds.
func (h *history) await(ctx context.Context, cond func() bool) error {
	for {
		h.mu.Lock()
		ok, changed := cond(), h.changed
		h.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitSends is awaitEvents while nothing is delivered: then the bots stop at
// window, and it is enough that they have reached it.
func (h *history) awaitSends(ctx context.Context, n int) error {
	return h.awaitSome(ctx, n, func() bool { return h.open >= window })
}

// awaitEvents waits until n more things have happened.
func (h *history) awaitEvents(ctx context.Context, n int) error {
	return h.awaitSome(ctx, n, func() bool { return false })
}

func (h *history) awaitSome(ctx context.Context, n int, enough func() bool) error {
	start := -1
	return h.await(ctx, func() bool {
		if start < 0 {
			start = h.events
		}
		if enough() {
			return true
		}
		return h.events >= start+n
	})
}

// times is how often a bot was given a message.
func (h *history) times(bot string, id relay.MessageID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.delivered[bot][id]
}

// complete waits until every accepted message was given to every other bot.
func (h *history) complete(ctx context.Context, t *testing.T) {
	t.Helper()
	if h.await(ctx, func() bool { return h.open <= 0 && len(h.missing()) == 0 }) == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.missing()
	t.Fatalf("%d deliveries are missing, the first: %v", len(lost), lost[:min(5, len(lost))])
}

// missing lists the deliveries that are due; the caller holds mu.
func (h *history) missing() (lost []string) {
	for id, p := range h.accepted {
		for _, bot := range h.bots {
			if bot != p.sender && !h.exempt[id] && h.delivered[bot][id] == 0 {
				lost = append(lost, string(id)+" to "+bot)
			}
		}
	}
	slices.Sort(lost)
	return lost
}

// check proves order and number of the deliveries: the first ones of a
// sender's messages in a chat in the order of the sends, and none repeated more
// often than its receiver's sidecar was killed. It returns the repeats of each bot.
func (h *history) check(t *testing.T, kills func(bot string) int) map[string]int {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		t.Error(f)
	}
	repeats := map[string]int{}
	for _, bot := range h.bots {
		at := map[relay.MessageID]int{}
		for i, id := range h.first[bot] {
			at[id] = i
		}
		for c, ids := range h.said {
			due := slices.DeleteFunc(slices.Clone(ids), func(id relay.MessageID) bool { return h.exempt[id] })
			if c.sender == bot {
				continue
			}
			for i := 1; i < len(due); i++ {
				if at[due[i-1]] > at[due[i]] {
					t.Errorf("%s got %s before %s", bot, due[i], due[i-1])
				}
			}
		}
		for id, n := range h.delivered[bot] {
			switch p := h.accepted[id]; {
			case p == nil:
				t.Errorf("%s got %s, which nobody has sent", bot, id)
			case h.exempt[id]:
				t.Errorf("%s got %s, which is not for it", bot, id)
			case n-1 > kills(bot):
				t.Errorf("%s got %s %d times with %d kills", bot, id, n, kills(bot))
			}
			repeats[bot] += n - 1
		}
	}
	return repeats
}

// checkTranscripts proves that in each folder every accepted message stands
// once, in its chat and unchanged, and that what stands beside entries is at
// most a fragment for each kill.
func (h *history) checkTranscripts(t *testing.T, kills int, folders ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := maps.Clone(h.accepted)
	maps.Copy(all, h.heard)
	for _, folder := range folders {
		found, fragments := map[relay.MessageID]int{}, 0
		files, err := filepath.Glob(filepath.Join(folder, "*.jsonl*"))
		must(t, err)
		for _, file := range files {
			for line := range linesOf(t, file) {
				var e transcript.Entry
				if json.Unmarshal(line, &e) != nil {
					fragments++
					continue
				}
				id := relay.MessageID(e.MessageID)
				found[id]++
				switch p := all[id]; {
				case p == nil:
					t.Errorf("%s holds %s, which nobody has sent", file, id)
				case e.Sender != p.sender || filepath.Base(file) != "feishu_"+p.chat+".jsonl":
					t.Errorf("%s holds %s as of %s", file, id, e.Sender)
				case sumOf(e.Content) != p.sum:
					t.Errorf("%s holds %s with another content", file, id)
				}
			}
		}
		for id := range all {
			if found[id] != 1 {
				t.Errorf("%s holds %s %d times, want once", folder, id, found[id])
			}
		}
		if fragments > kills {
			t.Errorf("%s holds %d fragments after %d kills", folder, fragments, kills)
		}
	}
}

// checkQueue proves that every accepted message stands whole in the queue's
// files, and that each line that is no message is a mere fragment, set aside
// by every sidecar.
func (h *history) checkQueue(t *testing.T, kills int, relayDir string) (fragments int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(relayDir, "outbound*.jsonl"))
	must(t, err)
	found := map[relay.MessageID]bool{}
	var torn [][]byte
	for _, file := range files {
		for line := range linesOf(t, file) {
			m, err := relay.Decode(line)
			if err == nil {
				found[m.ID()] = true
				continue
			}
			torn = append(torn, bytes.Clone(line))
			if bytes.Contains(line[1:], []byte(`{"relay_msg_id":`)) {
				t.Error("a torn line has swallowed the one behind it")
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.accepted {
		if !found[id] {
			t.Errorf("%s does not stand in the queue", id)
		}
	}
	if len(torn) > kills {
		t.Errorf("%d fragments after %d kills", len(torn), kills)
	}
	for _, bot := range h.bots {
		aside, _ := os.ReadFile(filepath.Join(relayDir, "processed", bot+".malformed.jsonl")) // missing: empty
		for _, fragment := range torn {
			quoted, err := json.Marshal(string(fragment))
			must(t, err)
			if len(aside) < 1<<20 && !bytes.Contains(aside, quoted) {
				t.Errorf("%s has not set a fragment of %d bytes aside", bot, len(fragment))
			}
		}
	}
	return len(torn)
}

// linesOf yields the lines of a file that are not blank.
func linesOf(t *testing.T, file string) func(func([]byte) bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(data) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line) {
				return
			}
		}
	}
}

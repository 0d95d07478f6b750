//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"feishu-relay/relay"
)

// history makes the record while the bots talk, and lets tests wait for events.
type history struct {
	mu      sync.Mutex
	record  record
	moment  int64
	times   map[string]map[relay.MessageID]int // deliveries, by bot
	open    int                                // first deliveries that are due
	mail    []mailed                           // direct messages that bots received
	mailing map[string]int64                   // when a bot began to send each, by its id
	events  int                                // accepted sends and deliveries
	changed chan struct{}                      // closed at the next event

	// stops returns why a bot must not receive the messages of a chat, "" if it
	// must. Nil: every bot receives all.
	stops func(bot, chat string) relay.Reason
}

// mailed is a direct message that a bot received.
type mailed struct {
	bot, id, kind, text string
}

func newHistory(bots []string) *history {
	h := &history{times: map[string]map[relay.MessageID]int{},
		mailing: map[string]int64{}, changed: make(chan struct{}),
		record: record{Bots: bots, Messages: map[relay.MessageID]*sentMessage{},
			Killed: map[string][]int{}, Resumes: map[string]bool{}}}
	for _, b := range bots {
		h.times[b] = map[relay.MessageID]int{}
	}
	return h
}

func sumOf(content string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(content)) // never fails
	return sum.Sum64()
}

// now numbers the events; the caller holds mu.
func (h *history) now() int64 {
	h.moment++
	return h.moment
}

// happened wakes who waits; the caller holds mu.
func (h *history) happened() {
	h.events++
	close(h.changed)
	h.changed = make(chan struct{})
}

// sending notes a send before its first call.
func (h *history) sending(id relay.MessageID, sender, chat, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := &sentMessage{conversation: conversation{sender, chat}, Sum: sumOf(content), Called: h.now(),
		Stopped: map[string]relay.Reason{}}
	for _, bot := range h.record.Bots {
		if h.stops != nil && h.stops(bot, chat) != "" {
			m.Stopped[bot] = h.stops(bot, chat)
		}
	}
	h.record.Messages[id] = m
}

// accepted notes that a send was answered with 202.
func (h *history) accepted(id relay.MessageID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record.Messages[id].Accepted = h.now()
	h.open += len(h.record.receivers(id))
	h.happened()
}

// reported notes a person's message that was answered with 202.
func (h *history) reported(id relay.MessageID, person, chat, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.now()
	h.record.Messages[id] = &sentMessage{conversation: conversation{person, chat}, Sum: sumOf(content), Person: true,
		Called: at, Accepted: at}
	h.happened()
}

// got notes what a bot received from a life of its sidecar.
func (h *history) got(bot string, life int, in *relay.Inbound) {
	text, _ := in.Metadata["relay_msg_id"].(string)
	from, _ := in.Metadata["sender_agent_name"].(string)
	id := relay.MessageID(text)
	h.mu.Lock()
	defer h.mu.Unlock()
	if in.Channel == "mailbox" {
		kind, _ := in.Metadata["mailbox_type"].(string)
		h.mail = append(h.mail, mailed{bot, text, kind, in.Content})
		h.happened()
		return
	}
	h.record.Deliveries = append(h.record.Deliveries, delivered{Bot: bot, ID: id,
		conversation: conversation{from, string(in.ChatID)}, Sum: sumOf(in.Content), Life: life, At: h.now()})
	if h.times[bot][id]++; h.times[bot][id] == 1 {
		h.open--
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

// received is how often a bot received a message.
func (h *history) received(bot string, id relay.MessageID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times[bot][id]
}

// given is how often a bot received each message.
func (h *history) given(bot string) map[relay.MessageID]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.times[bot])
}

// complete waits until every accepted message was given to every bot that must
// receive it.
func (h *history) complete(ctx context.Context, t *testing.T) {
	t.Helper()
	var lost violations
	if h.await(ctx, func() bool {
		if h.open > 0 {
			return false
		}
		lost = h.record.lost()
		return len(lost) == 0
	}) == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lost = h.record.lost()
	t.Fatalf("%d deliveries are missing, the first: %v", len(lost), lost[:min(5, len(lost))])
}

// checkQueue proves that every accepted message is whole in the queue's files, and that each kill left at most one line
// that is not a message.
func (h *history) checkQueue(t *testing.T, kills int, relayDir string) (torn int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(relayDir, "outbound*.jsonl"))
	must(t, err)
	found := map[relay.MessageID]bool{}
	for _, file := range files {
		for line := range linesOf(t, file) {
			m, err := relay.Decode(line)
			if err == nil {
				found[m.ID()] = true
				continue
			}
			torn++
			if bytes.Contains(line[1:], []byte(`{"relay_msg_id":`)) {
				t.Error("a torn line has swallowed the one behind it")
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, m := range h.record.Messages {
		if m.Accepted > 0 && !m.Person && !found[id] {
			t.Errorf("%s is not in the queue", id)
		}
	}
	if torn > kills {
		t.Errorf("%d fragments after %d kills", torn, kills)
	}
	return torn
}

// linesOf yields the lines of a file that are not blank, but not one that is just being written.
func linesOf(t *testing.T, file string) func(func([]byte) bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line) {
				return
			}
		}
	}
}

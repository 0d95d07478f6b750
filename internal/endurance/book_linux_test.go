package endurance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// book is what was sent and what came, as seen from outside of the sidecars. Ids are those of
// messages in groups and, with the channel mailbox, of mail.
type book struct {
	mu      sync.Mutex
	sent    map[string]message            // accepted, by id; guarded by mu
	came    map[string]map[string][]visit // by bot and id; guarded by mu
	changed chan struct{}                 // closed at the next change; guarded by mu
}

// message is one that was accepted.
type message struct {
	from, to string // to is a bot; "": all bots but the sender
	text     string // part of the content; "": not compared
}

// visit is one delivery of a message to a bot.
type visit struct {
	life int // of the bot's sidecar; 0: not known
	text string
}

func newBook() *book {
	return &book{sent: map[string]message{}, came: map[string]map[string][]visit{}, changed: make(chan struct{})}
}

func (b *book) accepted(id string, m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent[id] = m
	b.wake()
}

func (b *book) got(bot, id string, v visit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.came[bot] == nil {
		b.came[bot] = map[string][]visit{}
	}
	b.came[bot][id] = append(b.came[bot][id], v)
	b.wake()
}

// wake wakes who waits; the caller holds mu.
func (b *book) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until cond, which is asked at each change with mu held, holds.
func (b *book) await(ctx context.Context, cond func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := cond(), b.changed
		b.mu.Unlock()
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

// has waits until a bot was given a message.
func (b *book) has(ctx context.Context, t *testing.T, bot string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if b.await(ctx, func() bool { return len(b.came[bot][id]) > 0 }) != nil {
			t.Fatalf("%s was not given %s", bot, id)
		}
	}
}

// hasText waits until a bot was given something with a text.
func (b *book) hasText(ctx context.Context, t *testing.T, bot, text string) {
	t.Helper()
	if b.await(ctx, func() bool { return b.times(bot, text) > 0 }) != nil {
		t.Fatalf("%s was given nothing with %q", bot, text)
	}
}

// times is how often a bot was given something with a text; the caller holds mu.
func (b *book) times(bot, text string) (n int) {
	for _, visits := range b.came[bot] {
		for _, v := range visits {
			if strings.Contains(v.text, text) {
				n++
			}
		}
	}
	return n
}

// missing are the deliveries that are due at these bots; the caller holds mu.
func (b *book) missing(bots []string) (due []string) {
	for _, id := range slices.Sorted(maps.Keys(b.sent)) {
		m := b.sent[id]
		for _, bot := range bots {
			if bot != m.from && (m.to == "" || m.to == bot) && len(b.came[bot][id]) == 0 {
				due = append(due, fmt.Sprintf("%s from %s to %s", id, m.from, bot))
			}
		}
	}
	return due
}

// complete waits until every accepted message was given to every bot that it is for.
func (b *book) complete(ctx context.Context, t *testing.T, bots []string) {
	t.Helper()
	var due []string
	if b.await(ctx, func() bool { due = b.missing(bots); return len(due) == 0 }) != nil {
		t.Fatalf("%d deliveries are missing, the first: %v", len(due), due[:min(5, len(due))])
	}
}

// faults lists what came twice where no kill explains it, what came altered, and how often a kill
// explained a repeat.
func (b *book) faults(killed func(bot string, life int) bool) (found []string, repeats int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for bot, ids := range b.came {
		for id, visits := range ids {
			m, known := b.sent[id]
			if known && !strings.Contains(visits[0].text, m.text) {
				found = append(found, fmt.Sprintf("%s was given %s with another text: %.100q", bot, id, visits[0].text))
			}
			for i := 1; i < len(visits); i++ {
				if killed(bot, visits[i-1].life) && visits[i].life != visits[i-1].life {
					repeats++
					continue
				}
				found = append(found, fmt.Sprintf("%s was given %s again, in lives %d and %d of its sidecar", bot, id,
					visits[i-1].life, visits[i].life))
			}
		}
	}
	slices.Sort(found)
	return found, repeats
}

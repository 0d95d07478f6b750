package endurance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// book is what was sent and what came, as seen from outside of the sidecars. Ids are those of
// messages in groups and, with the channel mailbox, of mail.
type book struct {
	names []string // of the bots

	mu      sync.Mutex
	sent    map[string]message            // accepted, by id; guarded by mu
	came    map[string]map[string][]visit // by bot and id; guarded by mu
	due     map[due]bool                  // accepted and neither delivered nor stopped; guarded by mu
	stopped map[due]string                // reasons; guarded by mu
	changed chan struct{}                 // closed at the next change; guarded by mu
}

// due is a delivery: of a message to a bot.
type due struct{ id, bot string }

// head is the part of a text that the book keeps: it is enough to know it by.
func head(text string) string { return text[:min(len(text), 60)] }

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
	return &book{sent: map[string]message{}, came: map[string]map[string][]visit{}, due: map[due]bool{},
		stopped: map[due]string{}, changed: make(chan struct{})}
}

func (b *book) accepted(id string, m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.text = head(m.text)
	b.sent[id] = m
	for _, bot := range b.names {
		if bot != m.from && (m.to == "" || m.to == bot) && len(b.came[bot][id]) == 0 && b.stopped[due{id, bot}] == "" {
			b.due[due{id, bot}] = true
		}
	}
	b.wake()
}

func (b *book) got(bot, id string, v visit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.came[bot] == nil {
		b.came[bot] = map[string][]visit{}
	}
	v.text = head(v.text)
	b.came[bot][id] = append(b.came[bot][id], v)
	delete(b.due, due{id, bot})
	b.wake()
}

// stop notes that a message does not go to a bot, and why.
func (b *book) stop(bot, id, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped[due{id, bot}] = reason
	delete(b.due, due{id, bot})
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

// complete waits until every accepted message was given to every bot that it is for, or stopped.
func (b *book) complete(ctx context.Context, t *testing.T) {
	t.Helper()
	if b.await(ctx, func() bool { return len(b.due) == 0 }) == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := range b.due {
		t.Errorf("%s from %s was not given to %s", d.id, b.sent[d.id].from, d.bot)
	}
	t.Fatalf("%d deliveries are missing", len(b.due))
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

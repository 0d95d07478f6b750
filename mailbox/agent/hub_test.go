package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"feishu-relay/mailbox"
)

// hub is a store in memory: the simplest thing that keeps the promises of
// [mailbox.Store].
type hub struct {
	mu      sync.Mutex
	n       int
	boxes   map[mailbox.AgentID]*box
	cards   map[mailbox.AgentID]mailbox.Card
	changed chan struct{}
	// replaced counts how often what lies under an agent's key became another message.
	replaced map[mailbox.AgentID]int
	signing  mailbox.Signing
	fails    func(op string, id mailbox.AgentID) error // nil: nothing does
}

type box struct {
	items   []mailbox.Item
	settled map[string]mailbox.Outcome
}

func newHub() *hub {
	return &hub{boxes: map[mailbox.AgentID]*box{}, cards: map[mailbox.AgentID]mailbox.Card{}, changed: make(chan struct{}), replaced: map[mailbox.AgentID]int{}}
}

// box is called with mu held.
func (h *hub) box(id mailbox.AgentID) *box {
	if h.boxes[id] == nil {
		h.boxes[id] = &box{settled: map[string]mailbox.Outcome{}}
	}
	return h.boxes[id]
}

func (h *hub) put(to mailbox.AgentID, raw []byte) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	key := fmt.Sprintf("%06d.msg.json", h.n)
	b := h.box(to)
	b.items = append(b.items, mailbox.Item{Key: key, Raw: raw})
	close(h.changed)
	h.changed = make(chan struct{})
	return key
}

// replace writes another message in the place of one that waits.
func (h *hub) replace(to mailbox.AgentID, key string, raw []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	items := h.box(to).items
	items[slices.IndexFunc(items, func(item mailbox.Item) bool { return item.Key == key })] = mailbox.Item{Key: key, Raw: raw}
	h.replaced[to+"/"+mailbox.AgentID(key)]++
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *hub) waiting(id mailbox.AgentID) []mailbox.Item {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.box(id).items)
}

// outcome tells what became of an item; false: it waits.
func (h *hub) outcome(id mailbox.AgentID, key string) (mailbox.Outcome, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	how, ok := h.box(id).settled[key]
	return how, ok
}

// failing has operations fail from now on; nil ends that.
func (h *hub) failing(fails func(op string, id mailbox.AgentID) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails = fails
}

// refusing has one operation fail from now on, for one agent or for all.
func (h *hub) refusing(op string, of mailbox.AgentID, err error) {
	h.failing(func(now string, id mailbox.AgentID) error {
		if now == op && (of == "" || of == id) {
			return err
		}
		return nil
	})
}

// handle is a process's way to the hub; it ends with the process.
type handle struct {
	*hub
	dead *atomic.Bool
}

var _ mailbox.Store = (*handle)(nil)

var errCrashed = errors.New("the process is no more")

func (h *handle) may(ctx context.Context, op string, id mailbox.AgentID) error {
	if h.dead.Load() {
		return errCrashed
	}
	h.mu.Lock()
	fails := h.fails
	h.mu.Unlock()
	if fails != nil {
		if err := fails(op, id); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (h *handle) Put(ctx context.Context, m mailbox.Sealed) (string, error) {
	if err := h.may(ctx, "put", m.To); err != nil {
		return "", err
	}
	return h.put(m.To, m.Raw), nil
}

func (h *handle) Again(ctx context.Context, key string, m mailbox.Sealed) (string, error) {
	if err := h.may(ctx, "again", m.To); err != nil {
		return "", err
	}
	h.mu.Lock()
	items := h.box(m.To).items
	i := slices.IndexFunc(items, func(item mailbox.Item) bool { return item.Key == key })
	if i >= 0 {
		items[i].Raw = m.Raw
	}
	h.mu.Unlock()
	if i >= 0 {
		return key, nil
	}
	return h.put(m.To, m.Raw), nil
}

func (h *handle) Where(ctx context.Context, to mailbox.AgentID, key string) (mailbox.Place, error) {
	if err := h.may(ctx, "where", to); err != nil {
		return mailbox.Gone, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if how, ok := h.box(to).settled[key]; ok {
		if how == mailbox.Malformed {
			return mailbox.Aside, nil
		}
		return mailbox.Processed, nil
	}
	if slices.ContainsFunc(h.box(to).items, func(item mailbox.Item) bool { return item.Key == key }) {
		return mailbox.Waiting, nil
	}
	return mailbox.Gone, nil
}

func (h *handle) Receive(ctx context.Context, id mailbox.AgentID, take func(mailbox.Item), looked func()) error {
	shown := map[string]int{}
	for {
		if err := h.may(ctx, "receive", id); err != nil {
			return err
		}
		h.mu.Lock()
		items, changed, replaced := slices.Clone(h.box(id).items), h.changed, maps.Clone(h.replaced)
		h.mu.Unlock()
		for _, item := range items {
			version := 1 + replaced[id+"/"+mailbox.AgentID(item.Key)]
			if ctx.Err() == nil && shown[item.Key] < version {
				shown[item.Key] = version
				take(item)
			}
		}
		if looked != nil {
			looked()
			looked = nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *handle) Read(ctx context.Context, id mailbox.AgentID, key string) (mailbox.Item, error) {
	if err := h.may(ctx, "read", id); err != nil {
		return mailbox.Item{}, err
	}
	for _, item := range h.waiting(id) {
		if item.Key == key {
			return item, nil
		}
	}
	return mailbox.Item{}, mailbox.ErrGone
}

func (h *handle) Settle(ctx context.Context, id mailbox.AgentID, key string, how mailbox.Outcome) error {
	if err := h.may(ctx, "settle", id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.box(id)
	b.items = slices.DeleteFunc(b.items, func(item mailbox.Item) bool { return item.Key == key })
	if _, ok := b.settled[key]; !ok {
		b.settled[key] = how
	}
	return nil
}

func (h *handle) Cards(ctx context.Context) ([]mailbox.Card, error) {
	if err := h.may(ctx, "cards", ""); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []mailbox.Card{}
	for _, id := range slices.Sorted(maps.Keys(h.cards)) {
		out = append(out, h.cards[id])
	}
	return out, nil
}

func (h *handle) SetCard(ctx context.Context, c mailbox.Card) error {
	if err := h.may(ctx, "card", c.AgentID); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cards[c.AgentID] = c
	return nil
}

func (h *handle) Close() error { return nil }

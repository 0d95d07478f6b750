package gateway

import (
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// bounded is a map that forgets its oldest entry beyond max.
type bounded[K comparable, V any] struct {
	max   int
	m     map[K]V
	order []K // oldest first; may hold keys that were taken out
}

func newBounded[K comparable, V any](max int) *bounded[K, V] {
	return &bounded[K, V]{max: max, m: make(map[K]V)}
}

func (b *bounded[K, V]) get(k K) (V, bool) {
	v, ok := b.m[k]
	return v, ok
}

func (b *bounded[K, V]) put(k K, v V) {
	if _, ok := b.m[k]; !ok {
		if len(b.order) >= b.max {
			delete(b.m, b.order[0])
			b.order = b.order[1:]
		}
		b.order = append(b.order, k)
	}
	b.m[k] = v
}

func (b *bounded[K, V]) take(k K) (V, bool) {
	v, ok := b.m[k]
	delete(b.m, k)
	return v, ok
}

// maxRecent bounds each table of recents. What is forgotten costs a hint, never
// a message.
const maxRecent = 2048

// recents remembers the last messages and typing signs.
type recents struct {
	mu     sync.Mutex
	chats  *bounded[relay.MessageID, relay.ChatID] // where a message stands. guarded by mu
	sent   *bounded[relay.MessageID, published]    // own messages that went out. guarded by mu
	typing *bounded[string, relay.MessageID]       // reaction id: the message it is on. guarded by mu
	asked  *bounded[string, time.Time]             // "chat/id": when that chat was last asked who the id is. guarded by mu
	gone   *bounded[relay.MessageID, struct{}]     // recalled messages. guarded by mu
}

// published is an own message that is beyond change here.
type published struct {
	at   time.Time
	card bool
}

func newRecents() *recents {
	return &recents{
		chats:  newBounded[relay.MessageID, relay.ChatID](maxRecent),
		sent:   newBounded[relay.MessageID, published](maxRecent),
		typing: newBounded[string, relay.MessageID](maxRecent),
		asked:  newBounded[string, time.Time](maxRecent),
		gone:   newBounded[relay.MessageID, struct{}](maxRecent),
	}
}

func (r *recents) stands(id relay.MessageID, chat relay.ChatID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chats.put(id, chat)
}

func (r *recents) chatOf(id relay.MessageID) relay.ChatID {
	r.mu.Lock()
	defer r.mu.Unlock()
	chat, _ := r.chats.get(id)
	return chat
}

func (r *recents) published(m *feishu.Message, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent.put(m.ID, published{at: at, card: m.Type == typeCard})
}

func (r *recents) wasPublished(id relay.MessageID) (published, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent.get(id)
}

func (r *recents) recalls(id relay.MessageID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone.put(id, struct{}{})
}

func (r *recents) wasRecalled(id relay.MessageID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.gone.get(id)
	return ok
}

func (r *recents) types(reaction string, on relay.MessageID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.typing.put(reaction, on)
}

func (r *recents) typed(reaction string) (relay.MessageID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.typing.take(reaction)
}

// askedFor returns when the chat was last asked who one of its ids is.
func (r *recents) askedFor(chat relay.ChatID, id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, _ := r.asked.get(string(chat) + "/" + id)
	return at
}

func (r *recents) askFor(chat relay.ChatID, id string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked.put(string(chat)+"/"+id, at)
}

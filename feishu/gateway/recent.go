package gateway

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/relay"
)

// maxRecent bounds each table of recents. What is forgotten costs a hint, never
// a message.
const maxRecent = 2048

// recents remembers the last messages and typing signs.
type recents struct {
	chats  *lru.Cache[relay.MessageID, relay.ChatID] // where a message was said
	sent   *lru.Cache[relay.MessageID, published]    // own messages that went out
	typing *lru.Cache[string, relay.MessageID]       // reaction id: the message it is on
	asked  *lru.Cache[nameless, time.Time]           // when a chat was last asked whom an id names
	gone   *lru.Cache[relay.MessageID, struct{}]     // recalled messages
	cards  *lru.Cache[string, struct{}]              // those of CardKit that were sent to Feishu's chats
}

// published is an own message that is beyond change here.
type published struct {
	at   time.Time
	card bool
}

// nameless is an id in a chat that nobody could name.
type nameless struct {
	chat relay.ChatID
	id   string
}

func newRecents() *recents {
	return &recents{
		chats:  newLRU[relay.MessageID, relay.ChatID](maxRecent),
		sent:   newLRU[relay.MessageID, published](maxRecent),
		typing: newLRU[string, relay.MessageID](maxRecent),
		asked:  newLRU[nameless, time.Time](maxRecent),
		gone:   newLRU[relay.MessageID, struct{}](maxRecent),
		cards:  newLRU[string, struct{}](maxRecent),
	}
}

// newLRU returns a cache of the newest size entries, size above 0.
func newLRU[K comparable, V any](size int) *lru.Cache[K, V] {
	c, _ := lru.New[K, V](size) // fails only for a size below 1
	return c
}

func (r *recents) chatOf(id relay.MessageID) relay.ChatID {
	chat, _ := r.chats.Get(id)
	return chat
}

package send

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"feishu-relay/relay"
)

// Feishu takes 5 messages a second in a group, from all of its bots together,
// and 50 a second from an app (docs/feishu.md 6.3).
const (
	chatRate = 5
	appRate  = 50
	maxChats = 10_000 // whose rate is remembered; the one longest unused starts again
)

// limits keep the sends of this app below Feishu's.
type limits struct {
	app   *rate.Limiter
	chats *lru.Cache[relay.ChatID, *chat]
}

// chat is where sends wait for each other: the pieces of one answer are not
// mixed with those of the next.
type chat struct {
	rate *rate.Limiter
	turn chan struct{} // holds one token, of who is sending
}

func newLimits() *limits {
	chats, err := lru.New[relay.ChatID, *chat](maxChats)
	if err != nil {
		panic(err) // only of a size below 1
	}
	return &limits{app: rate.NewLimiter(appRate, appRate), chats: chats}
}

func (l *limits) of(id relay.ChatID) *chat {
	fresh := &chat{rate: rate.NewLimiter(chatRate, chatRate), turn: make(chan struct{}, 1)}
	if known, ok, _ := l.chats.PeekOrAdd(id, fresh); ok {
		l.chats.Get(id) // used just now
		return known
	}
	return fresh
}

// wait returns when the next message may be sent to ch, or with an error when
// ctx is done before that.
func (l *limits) wait(ctx context.Context, ch *chat) error {
	if err := ch.rate.Wait(ctx); err != nil {
		return err
	}
	return l.app.Wait(ctx)
}

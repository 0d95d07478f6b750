package redislink

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Subscribed waits at most limit until the server confirms the subscription that sub has asked for.
func Subscribed(ctx context.Context, sub *redis.PubSub, limit time.Duration) error {
	reply, err := sub.ReceiveTimeout(ctx, limit)
	if _, ok := reply.(*redis.Subscription); err == nil && !ok {
		return errors.New("unexpected reply")
	}
	return err
}

var errSilent = &Fault{Says: "redis does not answer on the connection of a subscription"}

// Listen calls take for each message that comes on the channels of sub, until the connection
// fails or ctx is done; then it closes sub. It asks for a sign of life each time that every has
// passed, and fails when nothing came for limit. The library's own check writes a ping and
// does not wait for the answer.
func Listen(ctx context.Context, sub *redis.PubSub, every, limit time.Duration, take func(*redis.Message)) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error {
		<-ctx.Done() // a blocked read ends only with its connection
		return sub.Close()
	})
	parts.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(every):
			}
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	})
	parts.Go(func() error {
		for {
			got, err := sub.ReceiveTimeout(ctx, limit)
			if TimedOut(err) {
				return errSilent
			} else if err != nil {
				return err
			}
			if m, ok := got.(*redis.Message); ok {
				take(m)
			}
		}
	})
	return parts.Wait() // the first fault, not what followed from it
}

// Read waits for entries of a stream behind the id after: for block, or not at all if that is negative. It returns
// at most count entries, none if none came, and fails if the server does not answer within limit.
func Read(ctx context.Context, client redis.UniversalClient, stream string, after EntryID, count int64,
	block, limit time.Duration) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	streams, err := client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{stream, after.String()}, Count: count, Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) == 0 {
		return nil, err
	}
	return streams[0].Messages, nil
}

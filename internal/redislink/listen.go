package redislink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Subscribed waits at most limit until the server confirms the subscription that sub has asked for.
func Subscribed(ctx context.Context, sub *redis.PubSub, limit time.Duration) error {
	reply, err := sub.ReceiveTimeout(ctx, limit)
	if _, ok := reply.(*redis.Subscription); err == nil && !ok {
		err = errors.New("unexpected reply")
	}
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

var errSilent = &Fault{Says: "redis does not answer on the connection of a subscription"}

// Listen calls take for each message that comes on the channels of sub, until the connection
// fails or ctx is done; then it closes sub. It asks for a sign of life when nothing came for half
// of every, and fails when nothing came for limit. The library's own check writes a ping and
// does not wait for the answer.
func Listen(ctx context.Context, sub *redis.PubSub, every, limit time.Duration, take func(*redis.Message)) error {
	began := time.Now()
	var heard atomic.Int64 // when the last sign of life came: nanoseconds since began
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error {
		<-ctx.Done() // a blocked read ends only with its connection
		return sub.Close()
	})
	parts.Go(func() error {
		// Without a deadline: one that came in the middle of a message would leave its rest to be read as a reply.
		for {
			got, err := sub.ReceiveTimeout(ctx, 0)
			if err != nil {
				return err
			}
			heard.Store(int64(time.Since(began)))
			if m, ok := got.(*redis.Message); ok {
				take(m)
			}
		}
	})
	parts.Go(func() error {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
			silent := time.Since(began) - time.Duration(heard.Load())
			if silent > limit {
				return errSilent
			}
			if silent < every/2 {
				continue
			}
			if err := sub.Ping(ctx); err != nil {
				return err
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

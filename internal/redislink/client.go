package redislink

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// NewClient makes a client. One for a Cluster asks again which node has which slots as soon as a
// node does not answer: the library does so once a minute, and when a node says that a slot
// has moved, which a dead node does not.
func NewClient(o *redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(o)
	if c, ok := client.(*redis.ClusterClient); ok {
		c.AddHook(reloader{c})
	}
	return client
}

// reloader lets a Cluster's client learn the nodes anew after a fault.
type reloader struct{ client *redis.ClusterClient }

func (r reloader) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (r reloader) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.see(ctx, err)
		return err
	}
}

func (r reloader) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		r.see(ctx, err)
		return err
	}
}

// see reloads after what may mean that another node is to be asked.
func (r reloader) see(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return
	}
	if _, answered := errors.AsType[redis.Error](err); !answered || strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		r.client.ReloadState(ctx)
	}
}

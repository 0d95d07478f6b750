package redislink

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// NewClient makes a client. A Cluster's client reloads the map of slots to nodes as soon as a
// node does not answer. The library itself reloads it only once a minute and after a MOVED
// reply, which a dead node does not send.
func NewClient(o *redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(o)
	if c, ok := client.(*redis.ClusterClient); ok {
		c.AddHook(reloader{c})
	}
	return client
}

// reloader lets a Cluster's client reload the nodes after a fault.
type reloader struct{ client *redis.ClusterClient }

func (r reloader) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (r reloader) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return r.see(ctx, next(ctx, cmd)) }
}

func (r reloader) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return r.see(ctx, next(ctx, cmds)) }
}

// see reloads after an error that may mean that another node has the slot, and returns it.
func (r reloader) see(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return err
	}
	if _, answered := errors.AsType[redis.Error](err); !answered || strings.HasPrefix(err.Error(), "CLUSTERDOWN") {
		r.client.ReloadState(ctx)
	}
	return err
}

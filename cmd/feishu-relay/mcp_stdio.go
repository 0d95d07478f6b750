package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpFinish is the most time that calls still have when stdin has ended.
const mcpFinish = 10 * time.Second

// finishing is a transport that answers what was asked before its input ended.
// The SDK by itself drops it, so that requests out of a file or from `echo` got
// no answer.
type finishing struct{ mcp.Transport }

func (f finishing) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := f.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &finishingConn{Connection: c, idle: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type finishingConn struct {
	mcp.Connection
	idle   chan struct{} // gets a value when nothing is open
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open int // requests not answered; guarded by mu
}

func (c *finishingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		c.count(1)
	}
	if errors.Is(err, io.EOF) {
		c.finish(ctx)
	}
	return msg, err
}

func (c *finishingConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if _, ok := msg.(*jsonrpc.Response); ok {
		c.count(-1)
	}
	return err
}

func (c *finishingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}

func (c *finishingConn) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open += n; c.open == 0 {
		select {
		case c.idle <- struct{}{}:
		default: // there is one already
		}
	}
}

// finish waits until everything is answered. Nothing is read any more, so no
// request comes in meanwhile.
func (c *finishingConn) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mcpFinish)
	defer cancel()
	for {
		c.mu.Lock()
		open := c.open
		c.mu.Unlock()
		if open <= 0 {
			return
		}
		select {
		case <-c.idle:
		case <-c.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

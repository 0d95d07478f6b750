package core

import (
	"context"
	"sync"

	"feishu-relay/deliver"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// Mail is mail for the bot on one channel. It is the mailbox's, which gives it again after an error or a restart.
type Mail struct {
	Key   string
	ID    relay.MessageID
	From  relay.AgentName
	Sent  relay.Millis
	Bytes int
	Only  string // the channel
	// Write is as that of a [Channel], on a connection of the channel.
	Write   func(ctx context.Context, conn uint64, again bool, written func()) error
	Written func() // the bot has it whole, and has not answered
	// Settled is what the bot has said of it elsewhere, once the context of GiveMail is done; "": nothing.
	Settled func() deliver.Result
}

// mails are those in progress.
type mails struct {
	mu   sync.Mutex
	list map[string]*mail // by key; guarded by mu
}

type mail struct {
	Mail
	ended chan *deliver.Effect // of capacity 1
}

func (m *mails) get(key string) *Mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.list[key]; x != nil {
		return &x.Mail
	}
	return nil
}

func (m *mails) put(x *mail) (forget func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil {
		m.list = map[string]*mail{}
	}
	m.list[x.Key] = x
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.list[x.Key] == x {
			delete(m.list, x.Key)
		}
	}
}

// ended passes on how a piece of mail has ended, and reports whether somebody waits for that.
func (m *mails) ended(f *deliver.Effect) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.list[f.Key]
	if x == nil {
		return false
	}
	delete(m.list, f.Key)
	x.ended <- f
	return true
}

// GiveMail has the bot get mail, and returns what came of it.
func (c *Core) GiveMail(ctx context.Context, m Mail) (result deliver.Result, detail string) {
	x := &mail{m, make(chan *deliver.Effect, 1)}
	defer c.mails.put(x)()
	item := deliver.Item{Key: m.Key, ID: m.ID, Sent: m.Sent, From: m.From, Bytes: m.Bytes, Once: true, Only: m.Only}
	err := c.loop.Post(ctx, loop.Event{Deliver: &deliver.Event{Kind: deliver.Take, Item: &item}})
	if err != nil {
		return deliver.NotWritten, err.Error()
	}
	select {
	case f := <-x.ended:
		return f.Result, f.Detail
	case <-ctx.Done():
	}
	said := m.Settled()
	e := deliver.Event{Kind: deliver.Settle, ID: m.ID, Result: said}
	if said == "" {
		e = deliver.Event{Kind: deliver.Withdraw, Key: m.Key, Reason: relay.Undeliverable}
		said = deliver.NotWritten
	}
	_ = c.loop.Post(c.ctx, loop.Event{Deliver: &e})
	return said, "the mailbox has it back"
}

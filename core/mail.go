package core

import (
	"context"

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
	Bytes int            // without Text
	Only  string         // the channel
	Text  *relay.Inbound // for a channel that is a [Resumer]
	// Write is as that of a [Channel], on a connection of the channel.
	Write   func(ctx context.Context, conn uint64, again bool, written func()) error
	Written func() // the bot has it whole, and has not answered
	// Settled is what the bot has said of it elsewhere, once the context of GiveMail is done; "": nothing.
	Settled func() deliver.Result
}

type mail struct {
	Mail
	ended chan *deliver.Effect // of capacity 1
}

// mailEnded passes on how a piece of mail has ended, and reports whether somebody waits for that.
func (c *Core) mailEnded(f *deliver.Effect) bool {
	x, waited := c.mails.LoadAndDelete(f.Key)
	if waited {
		x.(*mail).ended <- f
	}
	return waited
}

// GiveMail has the bot get mail, and returns what came of it.
func (c *Core) GiveMail(ctx context.Context, m Mail) (result deliver.Result, detail string) {
	x := &mail{m, make(chan *deliver.Effect, 1)}
	c.mails.Store(m.Key, x)
	defer c.mails.CompareAndDelete(m.Key, x)
	item := deliver.Item{Key: m.Key, ID: m.ID, Sent: m.Sent, From: m.From, Bytes: m.Bytes, Once: true, Only: m.Only}
	took := loop.Event{Deliver: &deliver.Event{Kind: deliver.Take, Item: &item}}
	if m.Text != nil {
		took.TextOf, took.Text = m.Key, encode(&given{Mail: m.Text})
		item.Bytes = len(took.Text)
	}
	if err := c.loop.Post(ctx, took); err != nil {
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

package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"feishu-relay/relay"
)

// bot is one of the three: it knows the local API of its sidecar, and nothing
// else of the relay.
type bot struct {
	character
	stage   *stage
	sidecar *sidecar

	hangUp context.CancelFunc // ends the stream; nil: not connected
	gone   chan struct{}      // closed when the stream has ended

	mu     sync.Mutex
	lastID string // of the last message from the stream; guarded by mu
}

// connect opens the bot's stream, behind what it got before.
func (b *bot) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	last := b.lastID
	b.mu.Unlock()
	stream, err := b.stage.client.subscribe(ctx, b.sidecar.url()+"/v1/stream", last)
	if err != nil {
		cancel()
		return fmt.Errorf("connect %s: %w", b.name, err)
	}
	b.hangUp, b.gone = cancel, make(chan struct{})
	gone := b.gone
	b.stage.listeners.Go(func() {
		defer close(gone)
		defer stream.Close()
		for e, err := range stream.all {
			if err == nil {
				err = b.receive(ctx, e)
			}
			if err != nil && ctx.Err() == nil {
				b.stage.fail(fmt.Errorf("stream of %s: %w", b.name, err))
			}
			if err != nil {
				return
			}
		}
	})
	return nil
}

// disconnect closes the stream and returns when that has ended.
func (b *bot) disconnect() {
	if b.hangUp != nil {
		b.hangUp()
		<-b.gone
		b.hangUp = nil
	}
}

// receive takes an event of the stream and answers the message in it.
func (b *bot) receive(ctx context.Context, e event) error {
	if e.kind != "message" {
		return fmt.Errorf("the sidecar says %q", e.kind)
	}
	var in struct {
		ChatID   relay.ChatID `json:"chat_id"`
		Content  string       `json:"content"`
		Metadata struct {
			RelayMsgID  relay.MessageID `json:"relay_msg_id"`
			IsMentioned bool            `json:"is_mentioned"`
			SenderName  string          `json:"sender_name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(e.data, &in); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	b.mu.Lock()
	b.lastID = e.id
	b.mu.Unlock()
	done := b.stage.board.received(b.agent, in.Metadata.RelayMsgID, in.Content)
	defer done()
	if !in.Metadata.IsMentioned {
		return nil
	}
	answer := b.answerBot(in.Metadata.SenderName, in.Content)
	if answer == "" {
		return nil
	}
	return b.say(ctx, in.ChatID, in.Metadata.RelayMsgID, answer)
}

// hear takes what Feishu gives every bot of a group: a person's message. The
// bot reports it to its sidecar, which tells whether it is for the bot.
func (b *bot) hear(ctx context.Context, m *message) (forMe bool, err error) {
	report := map[string]any{"chat_id": m.chat, "chat_type": "group", "content": m.text, "sender": userName,
		"sender_id": userOpenID, "message_id": m.id, "ts": m.ts}
	var told struct {
		ForMe bool `json:"for_me"`
	}
	if err := b.stage.client.post(ctx, b.sidecar.url()+"/v1/inbound", report, &told); err != nil {
		return false, fmt.Errorf("%s reports what it heard: %w", b.name, err)
	}
	return told.ForMe, nil
}

// answer answers a person's message, if it is meant for the bot; first says that
// it is this bot's to answer what names nobody.
func (b *bot) answer(ctx context.Context, m *message, first bool) error {
	if answer := b.answerUser(m.text, first); answer != "" {
		return b.say(ctx, m.chat, m.id, answer)
	}
	return nil
}

// say sends to the group: Feishu takes it, and the bot tells its sidecar.
func (b *bot) say(ctx context.Context, chat relay.ChatID, parent relay.MessageID, text string) error {
	m := b.stage.board.post(b.agent, b.name, chat, text)
	out := map[string]any{"chat_id": chat, "content": text, "message_id": m.id, "parent_id": parent, "ts": m.ts,
		"metadata": map[string]string{"chat_type": "group"}}
	var sent struct{ Relayed bool }
	if err := b.stage.client.post(ctx, b.sidecar.url()+"/v1/outbound", out, &sent); err != nil {
		return fmt.Errorf("%s reports what it sent: %w", b.name, err)
	}
	if !sent.Relayed {
		return fmt.Errorf("what %s sent was accepted, but not relayed", b.name)
	}
	return nil
}

// awaitAway waits until the sidecar has noticed that the bot is not there: what
// it writes to a connection that is just ending counts as delivered.
func (b *bot) awaitAway(ctx context.Context) error {
	return until(ctx, settledWithin, "the sidecar of "+b.name+" notices that its bot left",
		func(ctx context.Context) (bool, error) {
			var status struct{ Door struct{ Connected bool } }
			err := b.stage.client.get(ctx, b.sidecar.url()+"/v1/status", &status)
			return err == nil && !status.Door.Connected, nil
		})
}

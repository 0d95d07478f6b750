package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"feishu-relay/internal/sse"
	"feishu-relay/relay"
)

const userOpenID = "ou_demo_user"

// localAct is the first act: three bots on the local API.
type localAct struct {
	*stage
	bots []*bot // in the order of the cast
}

// start writes the GROUPS_FILE of the sidecars and starts them, and the bots.
func (a *localAct) start(ctx context.Context, env []string) {
	must(wrap(os.WriteFile(filepath.Join(a.dir, "groups.json"), a.script.groupsFile(), 0o600), "write the groups file"))
	a.startSidecars(ctx, env)
	for _, sc := range a.sidecars {
		b := &bot{sidecar: sc}
		a.bots = append(a.bots, b)
		b.connect(ctx)
	}
}

func (s *script) groupsFile() []byte {
	agents, groups := object{}, object{}
	for _, c := range s.Cast {
		agents[c.Agent] = object{"name": c.Name, "feishu_open_id": c.OpenID, "type": "bot", "description": c.Role}
	}
	for _, g := range s.Groups {
		groups[string(g.ID)] = object{"name": g.Name, "members": g.Members}
	}
	return []byte(asJSON(object{"agents": agents, "groups": groups}))
}

// says puts the user's words into a group, and waits until every bot of it has
// reported them and those whom they are for have answered.
func (a *localAct) says(ctx context.Context, chat relay.ChatID, text string) {
	m := a.board.post("", a.out.user(), cmp.Or(chat, a.script.Groups[0].ID), text)
	given := make([]bool, len(a.bots))
	a.each(func(i int, b *bot) {
		if slices.Contains(a.board.groups[m.chat].Members, b.Agent) {
			given[i] = b.hear(ctx, m)
		}
	})
	if !slices.Contains(given, true) {
		a.await(ctx, "the sidecars tell what becomes of it", func() bool { return a.board.explained(m) })
	}
	first := slices.Index(given, true) // answers what names nobody
	a.each(func(i int, b *bot) {
		if given[i] && a.script.addresses(&b.character, m.text, i == first) {
			b.say(ctx, m.chat, m.id, a.script.pick(b.Asked, "", m.text).Says)
		}
	})
}

// each lets the bots act at once.
func (a *localAct) each(does func(int, *bot)) {
	var all errgroup.Group
	for i, b := range a.bots {
		all.Go(func() error { return try(func() { does(i, b) }) })
	}
	must(all.Wait())
}

func (a *localAct) verbs() map[string]verb {
	find := func(agent string) *bot {
		return a.bots[slices.IndexFunc(a.bots, func(b *bot) bool { return b.Agent == agent })]
	}
	return map[string]verb{
		"leave": func(ctx context.Context, agent string) {
			b := find(agent)
			b.disconnect()
			// What the sidecar writes to a connection that is just ending counts as delivered.
			until(ctx, "the sidecar of "+b.Name+" notices that its bot left", func(ctx context.Context) (bool, error) {
				var status struct{ Door struct{ Connected bool } }
				err := b.call(ctx, "/v1/status", nil, &status)
				return !status.Door.Connected, err
			})
		},
		"join": func(ctx context.Context, agent string) { find(agent).connect(ctx) },
	}
}

func (a *localAct) leave() {
	for _, b := range a.bots {
		b.disconnect()
	}
}

func (*localAct) close() error { return nil }

// bot is one of the three: it knows the local API of its sidecar, and nothing
// else of the relay.
type bot struct {
	*sidecar
	hangUp context.CancelFunc // ends the stream; nil: not connected
	gone   chan struct{}      // closed when the stream has ended
	lastID string             // of the last message from the stream
}

// connect opens the bot's stream, behind what it got before.
func (b *bot) connect(ctx context.Context) {
	ctx, hangUp := context.WithCancel(ctx)
	stream, err := b.open(ctx, "/v1/stream", nil, b.lastID)
	if err != nil {
		hangUp()
		must(fmt.Errorf("connect %s: %w", b.Name, err))
	}
	gone := make(chan struct{})
	b.hangUp, b.gone = hangUp, gone
	b.stage.listeners.Go(func() {
		defer close(gone)
		err := read(stream, func(e sse.Event) error { return try(func() { b.receive(ctx, e) }) })
		if ctx.Err() == nil {
			b.stage.fail(fmt.Errorf("stream of %s: %w", b.Name, err))
		}
	})
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
func (b *bot) receive(ctx context.Context, e sse.Event) {
	if e.Kind != "message" {
		must(fmt.Errorf("the sidecar says %q", e.Kind))
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
	must(wrap(json.Unmarshal(e.Data, &in), "decode a message"))
	b.lastID = e.ID
	of := in.Metadata
	defer b.stage.board.received(b.Agent, of.RelayMsgID, in.Content)()
	if of.IsMentioned {
		b.say(ctx, in.ChatID, of.RelayMsgID, b.stage.script.pick(b.Told, of.SenderName, in.Content).Says)
	}
}

// hear takes what Feishu gives every bot of a group: a person's message. The
// bot reports it to its sidecar, which tells whether it is for the bot.
func (b *bot) hear(ctx context.Context, m *message) bool {
	report := object{"chat_id": m.chat, "chat_type": "group", "content": m.text, "sender": m.name,
		"sender_id": userOpenID, "message_id": m.id, "ts": m.ts}
	var told struct {
		ForMe bool `json:"for_me"`
	}
	must(wrap(b.call(ctx, "/v1/inbound", report, &told), "%s reports what it heard", b.Name))
	return told.ForMe
}

// say sends to the group, unless the text is "": Feishu takes it, and the bot
// tells its sidecar.
func (b *bot) say(ctx context.Context, chat relay.ChatID, parent relay.MessageID, text string) {
	if text == "" {
		return
	}
	m := b.stage.board.post(b.Agent, b.Name, chat, text)
	out := object{"chat_id": chat, "content": text, "message_id": m.id, "parent_id": parent, "ts": m.ts,
		"metadata": object{"chat_type": "group"}}
	var sent struct{ Relayed bool }
	must(wrap(b.call(ctx, "/v1/outbound", out, &sent), "%s reports what it sent", b.Name))
	if !sent.Relayed {
		must(fmt.Errorf("what %s sent was accepted, but not relayed", b.Name))
	}
}

package demo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// tenant is what the second and the third act play in: a stand-in for Feishu
// with a person in it, and bots on Feishu's SDK, each behind the gateway of its
// sidecar. No groups file tells who they are.
type tenant struct {
	*stage
	feishu  *feishusim.Server
	players []character     // the bots on the SDK
	apps    []feishusim.App // theirs, in the same order
	user    string

	end     context.CancelFunc // of the bots, and of watching Feishu; nil: not begun
	running sync.WaitGroup     // the bots
}

// clientConfig is what the stand-in tells long connections: Feishu's own seconds
// are 30 and 120, and the gateway makes 2 and 3 of them. A demo has less time.
var clientConfig = feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, ReconnectNonce: 1, PingInterval: 1}

// settle is GATEWAY_SETTLE here: these bots write nothing behind a card's end.
const settle = "200ms"

func newTenant(s *stage, players []character) *tenant {
	t := &tenant{stage: s, feishu: feishusim.New(feishusim.Options{Client: clientConfig}), players: players}
	t.user = t.feishu.AddUser(userName).ID
	for _, c := range players {
		t.apps = append(t.apps, t.feishu.AddApp(feishusim.App{Name: c.name})) // hears people, and no bots
	}
	return t
}

// open lets Feishu answer and enters on the board what is said there. It adds
// what the sidecars have to know of it to env. The bots end with the context.
func (t *tenant) open(ctx context.Context, env []string) (context.Context, []string, error) {
	base, err := t.feishu.Listen("127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("the stand-in for Feishu: %w", err)
	}
	activities, unwatch, err := t.feishu.Watch()
	if err != nil {
		return nil, nil, fmt.Errorf("the stand-in for Feishu: %w", err)
	}
	ctx, t.end = context.WithCancel(ctx)
	t.listeners.Go(func() {
		defer unwatch()
		t.follow(ctx, activities)
	})
	return ctx, append(slices.Clone(env), "FEISHU_BASE_URL="+base, "GATEWAY_SETTLE="+settle), nil
}

// startBot starts the bot of the i-th player behind gate, and waits until Feishu
// has its long connection. received is told of each message that the SDK gave
// the bot, and the function it returns that the answer stands in the chat.
func (t *tenant) startBot(ctx context.Context, i int, gate string,
	answer func(context.Context, incoming) (string, error), received func(incoming) (done func())) error {
	name, app := t.players[i].name, t.apps[i]
	var b *sdkBot
	muted(func() { b = newSDKBot(app.ID, app.Secret, "http://"+gate) })
	b.answer = answer
	b.heard = func(in incoming) func(string, error) {
		rest := received(in)
		return func(sent string, err error) {
			defer rest()
			if err == nil && sent != "" {
				err = t.said(ctx, sent)
			}
			if err != nil && ctx.Err() == nil {
				t.fail(fmt.Errorf("%s answers: %w", name, err))
			}
		}
	}
	if err := b.introduce(ctx); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	t.running.Go(func() {
		if err := b.run(ctx); err != nil {
			t.fail(fmt.Errorf("the SDK of %s: %w", name, err))
		}
	})
	connecting, cancel := context.WithTimeoutCause(ctx, readyWithin,
		fmt.Errorf("start %s: no long connection within %s", name, readyWithin))
	defer cancel()
	return t.feishu.WaitConnected(connecting, app.ID, 1)
}

// muted keeps what make prints from the demo's output: the SDK's dispatcher says
// on standard output that it is ready, before it can be told where to log. Nobody
// else uses os.Stdout meanwhile.
func muted(make func()) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		make() // with a line more
		return
	}
	shown := os.Stdout
	os.Stdout = null
	make()
	os.Stdout = shown
	_ = null.Close() // nothing was to be kept
}

// post lets the user speak. It returns when the message stands on the board.
func (t *tenant) post(ctx context.Context, u feishusim.Utterance) error {
	u.User = t.user
	id, err := t.feishu.Post(u)
	if err != nil {
		return err
	}
	return t.said(ctx, id)
}

// said waits until a message stands on the board.
func (t *tenant) said(ctx context.Context, id string) error {
	return t.board.await(ctx, "a message that Feishu accepted",
		func() bool { return t.board.byID[relay.MessageID(id)] != nil })
}

// follow enters on the board what happens in Feishu's chats.
func (t *tenant) follow(ctx context.Context, activities <-chan feishusim.Activity) {
	for {
		select {
		case <-ctx.Done():
			return
		case happened := <-activities:
			switch happened.Kind {
			case "message":
				t.enter(happened.Message)
			case "reaction":
				t.reacted(happened.Message)
			case "edit":
				t.board.rewrite(relay.MessageID(happened.Message.ID), happened.Message.Text, happened.Message.Streaming)
			}
		}
	}
}

// reacted notes the newest reaction to a message.
func (t *tenant) reacted(to *feishusim.Message) {
	if n := len(to.Reactions); n > 0 {
		by := to.Reactions[n-1].By
		if i := t.player(by); i >= 0 {
			by = t.players[i].name
		}
		t.board.reacted(by, to.Reactions[n-1].Emoji, to.Text)
	}
}

func (t *tenant) enter(said *feishusim.Message) {
	m := &message{id: relay.MessageID(said.ID), ts: relay.Millis(said.CreateTime), chat: relay.ChatID(said.ChatID),
		name: said.SenderName, text: said.Text, streaming: said.Streaming}
	if said.CardID != "" {
		m.drafts = []string{said.Text}
	}
	g, isGroup := t.board.chats[m.chat]
	if !isGroup { // with the one bot that has any
		g = group{privateChat, []string{t.players[0].agent}}
		m.group, m.to = g.name, []string{}
	}
	if i := t.player(said.Sender); i >= 0 {
		m.sender = t.players[i].agent
	} else {
		m.given = g.members
	}
	t.board.add(m)
}

// player is whose an app is; -1: nobody's.
func (t *tenant) player(app string) int {
	return slices.IndexFunc(t.apps, func(o feishusim.App) bool { return o.ID == app })
}

func (t *tenant) leave() {
	if t.end != nil {
		t.end()
	}
	t.running.Wait()
}

func (t *tenant) close() error { return t.feishu.Close() }

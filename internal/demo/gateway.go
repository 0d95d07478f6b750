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

// gatewayAct is the second act: two bots on Feishu's SDK, each behind the
// gateway of its sidecar. No groups file tells who they are.
type gatewayAct struct {
	*stage
	feishu *feishusim.Server
	apps   []feishusim.App // in the order of the cast
	user   string
	group  relay.ChatID

	end     context.CancelFunc // of the bots, and of watching Feishu; nil: not begun
	running sync.WaitGroup     // the bots
}

// sdkCast is who plays: the first two of the cast, by their names in Feishu.
var sdkCast = []character{
	{agent: "agent_a", name: "BotA", role: cast[0].role, asked: cast[0].asked, told: cast[0].told},
	{agent: "agent_b", name: "BotB", role: cast[1].role, asked: cast[1].asked, told: cast[1].told},
}

// clientConfig is what the stand-in tells long connections: Feishu's own seconds
// are 30 and 120, and the gateway makes 2 and 3 of them. A demo has less time.
var clientConfig = feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, ReconnectNonce: 1, PingInterval: 1}

// settle is GATEWAY_SETTLE here: these bots write nothing behind a card's end.
const settle = "200ms"

func newGatewayAct(s *stage) act {
	a := &gatewayAct{stage: s, feishu: feishusim.New(feishusim.Options{Client: clientConfig})}
	a.user = a.feishu.AddUser(userName).ID
	members, agents := []string{a.user}, []string{}
	for _, c := range sdkCast {
		app := a.feishu.AddApp(feishusim.App{Name: c.name}) // hears people, and no bots
		a.apps = append(a.apps, app)
		members, agents = append(members, app.ID), append(agents, c.agent)
	}
	name := chats[pairGroup].name
	a.group = relay.ChatID(a.feishu.AddGroup(name, members...).ID)
	s.board = newBoard(s.out, sdkCast, map[relay.ChatID]group{a.group: {name, agents}})
	return a
}

func (a *gatewayAct) start(ctx context.Context, env []string) error {
	a.out.title("Two bots on Feishu's official SDK, that know nothing of the relay: their base URL is a gateway, that is all.")
	base, err := a.feishu.Listen("127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the stand-in for Feishu: %w", err)
	}
	activities, unwatch, err := a.feishu.Watch()
	if err != nil {
		return fmt.Errorf("the stand-in for Feishu: %w", err)
	}
	ctx, a.end = context.WithCancel(ctx)
	a.listeners.Go(func() {
		defer unwatch()
		a.follow(ctx, activities)
	})
	env = append(slices.Clone(env), "FEISHU_BASE_URL="+base, "GATEWAY_SETTLE="+settle)
	for _, c := range sdkCast {
		sc := newSidecar(a.stage, c, env)
		sc.front = true
		a.sidecars = append(a.sidecars, sc)
	}
	if err := a.startSidecars(ctx, "two"); err != nil {
		return err
	}
	for i := range sdkCast {
		if err := a.startBot(ctx, i); err != nil {
			return fmt.Errorf("start %s: %w", sdkCast[i].name, err)
		}
	}
	return nil
}

// startBot starts the bot of the i-th of the cast, and waits until Feishu has
// its long connection.
func (a *gatewayAct) startBot(ctx context.Context, i int) error {
	c, app := &sdkCast[i], a.apps[i]
	var b *sdkBot
	muted(func() { b = newSDKBot(app.ID, app.Secret, "http://"+a.sidecars[i].gate) })
	b.answer = func(fromBot bool, sender, words string) string {
		if fromBot {
			return c.answerBot(sender, words)
		}
		return pick(c.asked, sender, words)
	}
	b.heard = func(id, text string) func(string, error) { return a.heard(ctx, c, id, text) }
	if err := b.introduce(ctx); err != nil {
		return err
	}
	a.running.Go(func() {
		if err := b.run(ctx); err != nil {
			a.fail(fmt.Errorf("the SDK of %s: %w", c.name, err))
		}
	})
	connecting, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("no long connection within %s", readyWithin))
	defer cancel()
	return a.feishu.WaitConnected(connecting, app.ID, 1)
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

// heard notes a message that the SDK gave a bot, and at its end that the answer
// stands in the group.
func (a *gatewayAct) heard(ctx context.Context, c *character, id, text string) (done func(sent string, err error)) {
	rest := a.board.received(c.agent, relay.MessageID(id), text)
	return func(sent string, err error) {
		defer rest()
		if err == nil && sent != "" {
			err = a.said(ctx, sent)
		}
		if err != nil && ctx.Err() == nil {
			a.fail(fmt.Errorf("%s answers: %w", c.name, err))
		}
	}
}

// said waits until a message stands on the board.
func (a *gatewayAct) said(ctx context.Context, id string) error {
	return a.board.await(ctx, "a message that Feishu accepted", func() bool { return a.board.byID[relay.MessageID(id)] != nil })
}

// follow enters on the board what happens in the group.
func (a *gatewayAct) follow(ctx context.Context, activities <-chan feishusim.Activity) {
	for {
		select {
		case <-ctx.Done():
			return
		case happened := <-activities:
			switch happened.Kind {
			case "message":
				a.enter(happened.Message)
			case "edit":
				a.board.rewrite(relay.MessageID(happened.Message.ID), happened.Message.Text, happened.Message.Streaming)
			}
		}
	}
}

func (a *gatewayAct) enter(said *feishusim.Message) {
	m := &message{id: relay.MessageID(said.ID), ts: relay.Millis(said.CreateTime), chat: relay.ChatID(said.ChatID),
		name: said.SenderName, text: said.Text, streaming: said.Streaming}
	if said.CardID != "" {
		m.drafts = []string{said.Text}
	}
	if i := a.player(said.Sender); i >= 0 {
		m.sender = sdkCast[i].agent
	} else {
		m.given = a.board.chats[m.chat].members
	}
	a.board.add(m)
}

// player is whose of the cast an app is; -1: nobody's.
func (a *gatewayAct) player(app string) int {
	return slices.IndexFunc(a.apps, func(o feishusim.App) bool { return o.ID == app })
}

func (a *gatewayAct) lobby() (relay.ChatID, []string) {
	return a.group, []string{
		"you are the user in " + a.board.chats[a.group].name + ". BotA plans, BotB writes code; they answer when they are mentioned.",
		"try: @BotA 帮我写个排序函数 — @BotA 替我谢谢 BotB — /quit ends",
	}
}

func (a *gatewayAct) says(ctx context.Context, chat relay.ChatID, text string) error {
	id, err := a.feishu.Say(string(chat), a.user, text)
	if err != nil {
		return err
	}
	return a.said(ctx, id)
}

func (a *gatewayAct) leave() {
	if a.end != nil {
		a.end()
	}
	a.running.Wait()
}

func (a *gatewayAct) close() error { return a.feishu.Close() }

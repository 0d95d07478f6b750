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

// settle is GATEWAY_SETTLE and GATEWAY_EDIT_SETTLE here: these bots write nothing behind a card's end, and edit no text.
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
func (t *tenant) open(ctx context.Context, env []string) (context.Context, []string) {
	base, err := t.feishu.Listen("127.0.0.1:0")
	must(wrap(err, "the stand-in for Feishu"))
	activities, unwatch, err := t.feishu.Watch()
	must(wrap(err, "the stand-in for Feishu"))
	ctx, t.end = context.WithCancel(ctx)
	t.listeners.Go(func() {
		defer unwatch()
		t.follow(ctx, activities)
	})
	return ctx, append(slices.Clone(env), "FEISHU_BASE_URL="+base, "GATEWAY_SETTLE="+settle, "GATEWAY_EDIT_SETTLE="+settle)
}

// front is the sidecar of the i-th player, with a gateway.
func (t *tenant) front(i int, env []string) *sidecar {
	sc := newSidecar(t.stage, t.players[i], env)
	sc.front = true
	return sc
}

// startBot starts the bot of the i-th player behind its gateway, and waits until
// Feishu has its long connection. received is told of each message that the SDK gave
// the bot, and the function it returns that the answer stands in the chat.
func (t *tenant) startBot(ctx context.Context, i int,
	answer func(context.Context, incoming) string, received func(incoming) (done func())) {
	name, app := t.players[i].name, t.apps[i]
	var b *sdkBot
	muted(func() { b = newSDKBot(app.ID, app.Secret, "http://"+t.sidecars[i].gate) })
	b.answer = answer
	b.heard = func(in incoming) func(string, error) {
		rest := received(in)
		return func(sent string, err error) {
			defer rest()
			// What was said in a chat with an agent is not in Feishu.
			if _, known := t.feishu.Message(sent); known && err == nil {
				err = try(func() { t.said(ctx, sent) })
			}
			if err != nil && ctx.Err() == nil {
				t.fail(fmt.Errorf("%s answers: %w", name, err))
			}
		}
	}
	must(wrap(try(func() { b.introduce(ctx) }), "start %s", name))
	t.running.Go(func() {
		if err := b.run(ctx); err != nil {
			t.fail(fmt.Errorf("the SDK of %s: %w", name, err))
		}
	})
	connecting, cancel := context.WithTimeoutCause(ctx, readyWithin,
		fmt.Errorf("start %s: no long connection within %s", name, readyWithin))
	defer cancel()
	must(t.feishu.WaitConnected(connecting, app.ID, 1))
}

// muted keeps what make prints from the demo's output: the SDK's dispatcher says
// on standard output that it is ready, before it can be told where to log. Nobody
// else uses os.Stdout meanwhile.
func muted(make func()) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err == nil { // else there is a line more
		defer null.Close()
		defer func(shown *os.File) { os.Stdout = shown }(os.Stdout)
		os.Stdout = null
	}
	make()
}

// post lets the user speak. It returns when the message stands on the board.
func (t *tenant) post(ctx context.Context, u feishusim.Utterance) {
	u.User = t.user
	id, err := t.feishu.Post(u)
	must(err)
	t.said(ctx, id)
}

// said waits until a message stands on the board.
func (t *tenant) said(ctx context.Context, id string) {
	t.await(ctx, "a message that Feishu accepted", func() bool { return t.board.byID[relay.MessageID(id)] != nil })
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

// gatewayAct is the second act: two bots on Feishu's SDK, each behind the
// gateway of its sidecar.
type gatewayAct struct {
	*tenant
	group relay.ChatID
}

// sdkCast is who plays: the first two of the cast, by their names in Feishu.
var sdkCast = []character{
	{agent: "agent_a", name: "BotA", role: cast[0].role, asked: cast[0].asked, told: cast[0].told},
	{agent: "agent_b", name: "BotB", role: cast[1].role, asked: cast[1].asked, told: cast[1].told},
}

func newGatewayAct(s *stage) act {
	a := &gatewayAct{tenant: newTenant(s, sdkCast)}
	name := chats[pairGroup].name
	a.group = relay.ChatID(a.feishu.AddGroup(name, a.user, a.apps[0].ID, a.apps[1].ID).ID)
	s.board = newBoard(s.out, sdkCast, map[relay.ChatID]group{a.group: {name, []string{sdkCast[0].agent, sdkCast[1].agent}}})
	return a
}

func (a *gatewayAct) start(ctx context.Context, env []string) {
	a.out.title("Two bots on Feishu's official SDK, that know nothing of the relay: their base URL is a gateway, that is all.")
	ctx, env = a.open(ctx, env)
	a.startSidecars(ctx, "two", a.front(0, env), a.front(1, env))
	for i, c := range sdkCast {
		answer := func(_ context.Context, in incoming) string {
			if in.fromBot {
				return c.answerBot(in.sender, in.words)
			}
			return pick(c.asked, in.sender, in.words)
		}
		a.startBot(ctx, i, answer, func(in incoming) func() {
			return a.board.received(c.agent, relay.MessageID(in.id), in.text)
		})
	}
}

func (a *gatewayAct) lobby() (relay.ChatID, []string) {
	return a.group, []string{
		"you are the user in " + a.board.chats[a.group].name +
			". BotA plans, BotB writes code; they answer when they are mentioned.",
		"try: @BotA 帮我写个排序函数 — @BotA 替我谢谢 BotB",
	}
}

func (a *gatewayAct) says(ctx context.Context, chat relay.ChatID, text string) {
	a.post(ctx, feishusim.Utterance{Chat: string(chat), Text: text})
}

func (a *gatewayAct) scenes() []scene {
	done := []outcome{{"agent_a", passed}, {"agent_b", judged}, {"agent_a", limit}}
	return []scene{
		{
			title: "a hand-over by @mention, answered with a streamed card", chat: a.group, asks: "@BotA 帮我写个排序函数", want: done,
			ends: "Feishu showed neither bot what the other said; BotA got the card once, when it was finished",
		},
		{
			title: "a courtesy loop is stopped", chat: a.group, asks: "@BotA 替我谢谢 BotB",
			want: []outcome{{"agent_a", passed}, {"agent_b", refused}},
		},
		{
			title: "a sidecar is killed while the other bot hands over", chat: a.group, asks: "@BotA 再写一个查找函数",
			play: a.crash, want: done, ends: "nothing lost, nothing twice",
		},
		{
			title: "native delivery is switched on: Feishu brings the bots' messages too", chat: a.group, asks: "@BotA 最后写个测试",
			play: a.native, want: done,
		},
	}
}

// crash kills BotB's sidecar, and with it the bot's way to Feishu. It comes back
// when BotA has handed over.
func (a *gatewayAct) crash(ctx context.Context, sc scene) {
	killed, from := a.sidecars[1], a.board.said()
	killed.kill()
	a.board.note("the sidecar of BotB is killed (SIGKILL)")
	a.says(ctx, sc.chat, sc.asks)
	// When the bot's call was answered, its sidecar has the message.
	a.await(ctx, "the hand-over", func() bool { return len(a.ofBots(from)) > 0 && a.board.busy == 0 })
	must(killed.start(ctx))
	a.board.note("… and is back; the bot's SDK finds it again by itself")
}

// native lets Feishu deliver bots' messages to bots too, and waits until the
// sidecars have taken all of these from it.
func (a *gatewayAct) native(ctx context.Context, sc scene) {
	from := a.board.said()
	var before []string
	a.board.do(func() { before = a.ofBots(0) })
	// Reactions to a message are events, too.
	for _, d := range a.feishu.Deliveries() {
		if d.EventType == messageReceived && slices.Contains(before, d.MessageID) {
			must(fmt.Errorf("Feishu delivered %s to a bot, which it was not to yet", d.MessageID))
		}
	}
	for _, app := range a.apps {
		app.Scopes = append(feishusim.DefaultScopes(), feishusim.ScopeAtIncludeBot, feishusim.ScopeGroupBots)
		_, err := a.feishu.UpdateApp(app)
		must(err)
	}
	a.says(ctx, sc.chat, sc.asks)
	a.settle(ctx)
	var said []string
	a.board.do(func() { said = a.ofBots(from) })
	within, cancel := context.WithTimeoutCause(ctx, settledWithin, fmt.Errorf("Feishu's own copies: not within %s", settledWithin))
	defer cancel()
	for _, id := range said {
		_, err := a.feishu.WaitDelivery(within, func(d feishusim.Delivery) bool {
			return d.MessageID == id && d.EventType == messageReceived && d.Acked == 200
		})
		must(err)
	}
	a.board.note("all %d came from Feishu as well, the card as \"%s\"; each bot got the final text, and each message once", len(said), thinking)
}

// messageReceived is the type of the event that brings a bot a message.
const messageReceived = "im.message.receive_v1"

// ofBots are the ids of the messages of bots since from. The board's lock is held.
func (a *gatewayAct) ofBots(from int) (all []string) {
	for _, m := range a.board.messages[from:] {
		if m.sender != "" {
			all = append(all, string(m.id))
		}
	}
	return all
}

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

// settle is GATEWAY_SETTLE and GATEWAY_EDIT_SETTLE here: these bots write nothing behind a card's end, and edit
// no text.
const settle = "200ms"

func newTenant(s *stage, players []character) *tenant {
	t := &tenant{stage: s, feishu: feishusim.New(feishusim.Options{Client: clientConfig}), players: players}
	t.user = t.feishu.AddUser(s.out.user()).ID
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

// thinking is what a card says before there is an answer.
func (t *tenant) thinking() string { return t.out.say("Thinking…", "正在想…") }

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
	b.answer, b.thinking = answer, t.thinking()
	b.heard = func(in incoming) func(string, error) {
		if _, known := t.feishu.Message(in.id); known { // it stands on the board before what comes of it
			if err := try(func() { t.said(ctx, in.id) }); err != nil && ctx.Err() == nil {
				t.fail(fmt.Errorf("%s hears: %w", name, err))
			}
		}
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
		g = group{t.out.private(), []string{t.players[0].agent}}
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

// sdkCast is who plays: the first two of the cast.
func (l language) sdkCast() []character {
	all := l.cast()[:2]
	all[0].agent, all[1].agent = "agent_a", "agent_b"
	return all
}

func newGatewayAct(s *stage) act {
	cast, name := s.out.sdkCast(), s.out.groups()[pairGroup].name
	a := &gatewayAct{tenant: newTenant(s, cast)}
	a.group = relay.ChatID(a.feishu.AddGroup(name, a.user, a.apps[0].ID, a.apps[1].ID).ID)
	s.board = newBoard(s.out, cast, map[relay.ChatID]group{a.group: {name, []string{cast[0].agent, cast[1].agent}}})
	return a
}

func (a *gatewayAct) start(ctx context.Context, env []string) {
	a.out.title(a.out.say(
		"Two unchanged bots on Feishu's official SDK. Only their base URL is another: their sidecar's gateway.",
		"两个没改过的机器人，用飞书官方 SDK，只把 base URL 换成了各自边车的网关。"))
	ctx, env = a.open(ctx, env)
	a.startSidecars(ctx, a.out.say("two", "两"), a.front(0, env), a.front(1, env))
	for i, c := range a.players {
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
		a.out.say("you are the user in Pair. Planner plans, Coder writes code; they answer when they are mentioned.",
			"你是双人群里的用户。小策管计划，小码写代码；点到名才回答。"),
		a.out.say("try: @Planner write a sort function — @Planner thank Coder for me", "试试：@小策 帮我写个排序函数 — @小策 替我谢谢小码"),
	}
}

func (a *gatewayAct) says(ctx context.Context, chat relay.ChatID, text string) {
	a.post(ctx, feishusim.Utterance{Chat: string(chat), Text: text})
}

func (a *gatewayAct) scenes() []scene {
	done := []result{{"agent_a", passed}, {"agent_b", judged}, {"agent_a", limit}}
	say := a.out.say
	return []scene{
		{
			title: say("work handed over with @, answered with a streamed card", "@ 一下交出去的活，用流式卡片回答"), chat: a.group,
			asks: say("@Planner write a sort function", "@小策 帮我写个排序函数"), want: done,
			ends: say("Feishu showed neither bot what the other said; Planner got the card once, when it was finished",
				"飞书没有把对方的话给任何一个机器人；卡片写完后才送给小策，只送一次"),
		},
		{
			title: say("bots that thank each other are stopped", "互相道谢，会被拦下"), chat: a.group,
			asks: say("@Planner thank Coder for me", "@小策 替我谢谢小码"),
			want: []result{{"agent_a", passed}, {"agent_b", refused}},
		},
		{
			title: say("a sidecar is away while work is handed over to its bot", "交活的时候，对方的边车被杀掉了"), chat: a.group,
			asks: say("@Planner write a search function too", "@小策 再写一个查找函数"),
			play: a.crash, want: done, ends: say("nothing was lost, nothing came twice", "一条没丢，一条没重"),
		},
		{
			title: say("Feishu delivers the bots' messages as well (include_bot)",
				"飞书自己也投递机器人的消息（include_bot）"),
			chat: a.group,
			asks: say("@Planner write a test", "@小策 最后写个测试"),
			play: a.native, want: done,
		},
	}
}

// crash kills the Coder's sidecar, and with it the bot's connection to Feishu. It comes back
// when the Planner has handed over.
func (a *gatewayAct) crash(ctx context.Context, sc scene) {
	killed, from := a.sidecars[1], a.board.said()
	killed.kill()
	a.board.note(a.out.say("the sidecar of Coder is killed (SIGKILL)", "小码的边车被杀掉（SIGKILL）"))
	a.says(ctx, sc.chat, sc.asks)
	// When the bot's call was answered, its sidecar has the message.
	a.await(ctx, "the hand-over", func() bool { return len(a.ofBots(from)) > 0 && a.board.busy == 0 })
	must(killed.start(ctx))
	a.board.note(a.out.say("… and is back; the bot's SDK reconnects by itself", "……又回来了；机器人的 SDK 自己重新连上"))
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
	within, cancel := context.WithTimeoutCause(ctx, settledWithin,
		fmt.Errorf("Feishu's own copies: not within %s", settledWithin))
	defer cancel()
	for _, id := range said {
		_, err := a.feishu.WaitDelivery(within, func(d feishusim.Delivery) bool {
			return d.MessageID == id && d.EventType == messageReceived && d.Acked == 200
		})
		must(err)
	}
	a.board.note(a.out.say(
		"all %d came from Feishu as well, the card as \"%s\"; each bot got each message once, with its final text",
		"飞书也投递了这 %d 条，其中卡片只有“%s”；每个机器人每条只收到一次，而且是最终内容", len(said), a.thinking()))
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

package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

// gatewayAct is the second act or the third: a stand-in for Feishu with a person in it, and bots on Feishu's SDK, each
// behind the gateway of its sidecar. No groups file tells who they are.
type gatewayAct struct {
	*stage
	feishu *feishusim.Server
	user   string
	apps   []feishusim.App // of the bots, in the order of the cast

	end     context.CancelFunc // of the bots, and of watching Feishu; nil: not begun
	running sync.WaitGroup     // the bots

	// The first bot of the third act thinks with the peer tools of its sidecar; they are all that it knows of other
	// agents.
	tools *mcp.ClientSession
	asked atomic.Value // the chat in which a person spoke to it, a string

	// A bot without lines answers what it hears with what the scenes put here.
	thoughts chan thought
}

// clientConfig is what the stand-in tells long connections: Feishu's own seconds
// are 30 and 120, and the gateway makes 2 and 3 of them. A demo has less time.
var clientConfig = feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, ReconnectNonce: 1, PingInterval: 1}

// settle is GATEWAY_SETTLE and GATEWAY_EDIT_SETTLE here: these bots write nothing behind a card's end, and edit
// no text.
const settle = "200ms"

func newGatewayAct(s *stage) act {
	a := &gatewayAct{stage: s, feishu: feishusim.New(feishusim.Options{Client: clientConfig}), thoughts: make(chan thought, 1)}
	a.user = a.feishu.AddUser(s.out.user()).ID
	for _, c := range s.script.Cast {
		a.apps = append(a.apps, a.feishu.AddApp(feishusim.App{Name: c.Name})) // hears people, and no bots
	}
	for _, g := range s.script.Groups {
		members := []string{a.user}
		for i, c := range s.script.Cast {
			if slices.Contains(g.Members, c.Agent) {
				members = append(members, a.apps[i].ID)
			}
		}
		must(a.feishu.Build(feishusim.Scenario{Groups: []feishusim.Group{{ID: string(g.ID), Name: g.Name, Members: members}}}))
	}
	return a
}

// start lets Feishu answer, enters on the board what is said there, and starts sidecars and bots.
func (a *gatewayAct) start(ctx context.Context, env []string) {
	base, err := a.feishu.Listen("127.0.0.1:0")
	must(wrap(err, "the stand-in for Feishu"))
	activities, unwatch, err := a.feishu.Watch()
	must(wrap(err, "the stand-in for Feishu"))
	ctx, a.end = context.WithCancel(ctx)
	a.listeners.Go(func() {
		defer unwatch()
		a.follow(ctx, activities)
	})
	a.startSidecars(ctx, append(env, "FEISHU_BASE_URL="+base, "GATEWAY_SETTLE="+settle, "GATEWAY_EDIT_SETTLE="+settle))
	if len(a.script.Groups) == 0 {
		a.openTools(ctx)
	}
	for i := range a.script.Cast {
		a.startBot(ctx, i)
	}
}

// startBot starts the i-th bot behind its gateway, and waits until Feishu has its long connection.
func (a *gatewayAct) startBot(ctx context.Context, i int) {
	c, app := &a.script.Cast[i], a.apps[i]
	failed := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			a.fail(fmt.Errorf("%s %s: %w", c.Name, what, err))
		}
	}
	var b *sdkBot
	muted(func() { b = newSDKBot(app.ID, app.Secret, "http://"+a.sidecars[i].gate) })
	b.thinking = a.out.say("Thinking…", "正在想…")
	b.answer = func(ctx context.Context, in *incoming) string { return a.answer(ctx, b, c, in) }
	b.heard = func(in *incoming) func(string, error) {
		failed("hears", try(func() { a.said(ctx, in.id) })) // it stands on the board before what comes of it
		done := a.received(i, in)
		return func(sent string, err error) {
			defer done()
			if err == nil {
				err = try(func() { a.said(ctx, sent) })
			}
			failed("answers", err)
		}
	}
	must(wrap(try(func() { b.introduce(ctx) }), "start %s", c.Name))
	a.running.Go(func() { failed("has an SDK, which ended", b.run(ctx)) })
	connecting, cancel := context.WithTimeoutCause(ctx, readyWithin,
		fmt.Errorf("start %s: no long connection within %s", c.Name, readyWithin))
	defer cancel()
	must(a.feishu.WaitConnected(connecting, app.ID, 1))
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

// answer is what a bot says; what it does for that it has done then.
func (a *gatewayAct) answer(ctx context.Context, b *sdkBot, c *character, in *incoming) string {
	lines := c.Asked
	if in.fromBot {
		lines = c.Told
	}
	if lines == nil {
		return a.think(ctx, b, in)
	}
	l := a.script.pick(lines, in.sender, in.text)
	if l.Gives != "" {
		a.giveTask(ctx, in.chat, l.Gives)
	}
	if l.Tells != "" {
		a.tell(ctx, l.Tells)
	}
	return l.Says
}

// received notes what the SDK gave the i-th bot, and counts the bot as at work until done is called. A private chat
// with a bot is mail.
func (a *gatewayAct) received(i int, in *incoming) (done func()) {
	if in.fromBot && in.private {
		return a.mailed(i, in)
	}
	if in.private {
		a.asked.Store(in.chat)
	}
	return a.board.received(a.script.Cast[i].Agent, relay.MessageID(in.id), in.text)
}

// says lets the user speak: in a group, or with the first bot alone.
func (a *gatewayAct) says(ctx context.Context, chat relay.ChatID, text string) {
	said := feishusim.Utterance{User: a.user, App: a.apps[0].ID, Text: text}
	if len(a.script.Groups) > 0 {
		said.App, said.Chat = "", cmp.Or(string(chat), string(a.script.Groups[0].ID))
	}
	id, err := a.feishu.Post(said)
	must(err)
	a.said(ctx, id)
}

// said waits until a message stands on the board, unless it is not in Feishu, since it was said in a chat with an agent.
func (a *gatewayAct) said(ctx context.Context, id string) {
	if _, known := a.feishu.Message(id); known {
		a.await(ctx, "a message that Feishu accepted", func() bool { return a.board.byID[relay.MessageID(id)] != nil })
	}
}

// follow enters on the board what happens in Feishu's chats.
func (a *gatewayAct) follow(ctx context.Context, activities <-chan feishusim.Activity) {
	for {
		select {
		case <-ctx.Done():
			return
		case happened := <-activities:
			switch m := happened.Message; happened.Kind {
			case "message":
				a.enter(m)
			case "edit":
				a.board.rewrite(relay.MessageID(m.ID), m.Text, m.Streaming)
			case "reaction":
				if n := len(m.Reactions); n > 0 {
					by := m.Reactions[n-1].By
					if c := a.character(by); c != nil {
						by = c.Name
					}
					a.board.reacted(by, m.Reactions[n-1].Emoji, m.Text)
				}
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
	g, isGroup := a.board.groups[m.chat]
	if !isGroup { // with the one bot that has any
		g.Members = []string{a.script.Cast[0].Agent}
		m.group, m.to = a.out.say("private", "私聊"), []string{}
	}
	if c := a.character(said.Sender); c != nil {
		m.sender = c.Agent
	} else {
		m.given = g.Members
	}
	a.board.add(m)
}

// character is whose an app is; nil: nobody's.
func (a *gatewayAct) character(app string) *character {
	i := slices.IndexFunc(a.apps, func(o feishusim.App) bool { return o.ID == app })
	if i < 0 {
		return nil
	}
	return &a.script.Cast[i]
}

func (a *gatewayAct) leave() {
	if a.end != nil {
		a.end()
	}
	a.running.Wait()
	if a.tools != nil {
		_ = a.tools.Close() // nothing is under way any more
	}
}

func (a *gatewayAct) close() error { return a.feishu.Close() }

func (a *gatewayAct) verbs() map[string]verb {
	verbs := a.mailVerbs()
	verbs["include bots"] = a.includeBots
	verbs["delivered by Feishu"] = a.deliveredByFeishu
	return verbs
}

// includeBots lets Feishu deliver bots' messages to bots too. So far it must not have.
func (a *gatewayAct) includeBots(context.Context, string) {
	var said []string
	a.board.do(func() { said = a.board.ofBots(0) })
	for _, d := range a.feishu.Deliveries() {
		if d.EventType == messageReceived && slices.Contains(said, d.MessageID) { // reactions to it are events, too
			must(fmt.Errorf("Feishu delivered %s to a bot, which it was not to yet", d.MessageID))
		}
	}
	for _, app := range a.apps {
		app.Scopes = append(feishusim.DefaultScopes(), feishusim.ScopeAtIncludeBot, feishusim.ScopeGroupBots)
		_, err := a.feishu.UpdateApp(app)
		must(err)
	}
}

// deliveredByFeishu waits until the sidecars have taken all of the scene's messages of bots from Feishu.
func (a *gatewayAct) deliveredByFeishu(ctx context.Context, _ string) {
	var said []string
	a.board.do(func() { said = a.board.ofBots(a.from) })
	ctx, cancel := context.WithTimeoutCause(ctx, settledWithin, fmt.Errorf("Feishu's own copies: not within %s", settledWithin))
	defer cancel()
	for _, id := range said {
		_, err := a.feishu.WaitDelivery(ctx, func(d feishusim.Delivery) bool {
			return d.MessageID == id && d.EventType == messageReceived && d.Acked == 200
		})
		must(err)
	}
}

// messageReceived is the type of the event that brings a bot a message.
const messageReceived = "im.message.receive_v1"

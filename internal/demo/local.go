package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"feishu-relay/relay"
)

// localAct is the first act: three bots on the local API.
type localAct struct {
	*stage
	bots []*bot // in the order of the cast
}

func newLocalAct(s *stage) act {
	s.board = newBoard(s.out, s.out.cast(), s.out.groups())
	return &localAct{stage: s}
}

func (a *localAct) start(ctx context.Context, env []string) {
	groups := groupsFile(a.board.cast, a.board.chats)
	must(wrap(os.WriteFile(filepath.Join(a.dir, "groups.json"), groups, 0o600), "write the groups file"))
	var sidecars []*sidecar
	for _, c := range a.board.cast {
		sc := newSidecar(a.stage, c, env, "BOT_NAME="+c.name, "BOT_OPEN_ID="+c.openID)
		sidecars = append(sidecars, sc)
		a.bots = append(a.bots, &bot{sidecar: sc})
	}
	a.startSidecars(ctx, a.out.say("three", "三"), sidecars...)
	for _, b := range a.bots {
		b.connect(ctx)
	}
}

func (a *localAct) lobby() (relay.ChatID, []string) {
	return devGroup, []string{
		a.out.say("you are the user in Dev. Planner plans, Coder writes code, Reviewer reviews; "+
			"@NAME addresses one, everyone all.",
			"你是研发群里的用户。小策管计划，小码写代码，小审做审查；用 @名字 点名，用“大家”叫所有人。"),
		a.out.say("try: @Planner write a sort function — hello everyone — @Planner thank Coder for me",
			"试试：@小策 帮我写个排序函数 — 大家好 — @小策 替我谢谢小码"),
	}
}

// says puts the user's words into a group, and waits until every bot of it has
// reported them and those whom they are for have answered.
func (a *localAct) says(ctx context.Context, chat relay.ChatID, text string) {
	m := a.board.post("", a.out.user(), chat, text)
	given := make([]bool, len(a.bots))
	a.each(func(i int, b *bot) {
		if a.board.chats[chat].has(b.agent) {
			given[i] = b.hear(ctx, m)
		}
	})
	if !slices.Contains(given, true) {
		a.await(ctx, "the sidecars tell what becomes of it", func() bool { return a.board.explained(m) })
	}
	first := slices.Index(given, true) // answers what names nobody
	a.each(func(i int, b *bot) {
		if given[i] {
			b.say(ctx, m.chat, m.id, b.answerUser(m.text, i == first))
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

func (a *localAct) leave() {
	for _, b := range a.bots {
		b.disconnect()
	}
}

func (*localAct) close() error { return nil }

func (a *localAct) scenes() []scene {
	say := a.out.say
	return []scene{
		{
			title: say("a bot hands work over with @", "@ 一下，把活交给另一个机器人"), chat: devGroup,
			asks: say("@Planner write a sort function", "@小策 帮我写个排序函数"), want: handedOver,
			ends: say("the last message was for the user, who reads it in the group", "最后一句是说给用户的，用户在群里看得到"),
		},
		{
			title: say("parallel answers to a person count once", "几个机器人同时回答一个人，只算一次"), chat: devGroup,
			asks: say("everyone: which sort should we use?", "大家觉得用哪种排序好？"),
			want: []result{
				{"agent_plan", passed + "; " + passed},
				{"agent_code", passed + "; " + passed},
				{"agent_review", passed + "; " + passed},
			},
		},
		{
			title: say("bots that thank each other are stopped", "互相道谢，会被拦下"), chat: devGroup,
			asks: say("@Planner thank Coder for me", "@小策 替我谢谢小码"),
			want: []result{{"agent_plan", passed + "; " + passed}, {"agent_code", refused + "; " + refused}},
			ends: say("these two would thank each other without end", "不拦，这两个会一直谢下去"),
		},
		{
			title: say("so are bots that ask each other without end", "没完没了地互相提问，也会被拦下"), chat: devGroup,
			asks: say("@Planner discuss sorting with Coder", "@小策 和小码讨论一下排序算法"), want: handedOver,
			ends: say("each message is a real question; the limit of three in a row stops them", "每句都是正经问题；靠连续三条的上限拦下"),
		},
		{
			title: say("a bot hears only its own groups", "机器人只听得到自己所在的群"), chat: pairGroup,
			asks: say("@Planner write a test", "@小策 写个测试"),
			want: []result{
				{"agent_plan", passed + "; " + notThere},
				{"agent_code", judged + "; " + notThere},
				{"agent_plan", limit + "; " + notThere},
			},
			ends: say("Reviewer is not in this group", "小审不在这个群里"),
		},
		{
			title: say("a sidecar is killed before it delivers", "边车还没送达就被杀掉"), chat: devGroup,
			asks: say("@Planner write a search function too", "@小策 再写一个查找函数"),
			play: a.crash, want: handedOver, ends: say("nothing was lost, nothing came twice", "一条没丢，一条没重"),
		},
	}
}

// handedOver is a task handed over, done and reported.
var handedOver = []result{
	{"agent_plan", passed + "; " + passed},
	{"agent_code", judged + "; " + judged},
	{"agent_plan", limit + "; " + limit},
}

// crash kills the coder's sidecar when it has decided to pass the hand-over on
// and cannot deliver it, since its bot is restarting.
func (a *localAct) crash(ctx context.Context, sc scene) {
	coder := a.bots[1]
	coder.disconnect()
	// What the sidecar writes to a connection that is just ending counts as delivered.
	must(until(ctx, settledWithin, "the sidecar of "+coder.name+" notices that its bot left",
		func(ctx context.Context) (bool, error) {
			var status struct{ Door struct{ Connected bool } }
			err := coder.get(ctx, "/v1/status", &status)
			return err == nil && !status.Door.Connected, nil
		}))
	from := a.board.said()
	a.says(ctx, sc.chat, sc.asks)
	a.await(ctx, "the hand-over is decided, and heard by the third bot", func() bool {
		for _, m := range a.board.messages[from:] {
			if f := m.fates[coder.agent]; f != nil && f.decided {
				return m.fates[a.bots[2].agent].ended()
			}
		}
		return false
	})
	a.board.note(a.out.say("%s restarts, its sidecar keeps the message …", "%s 在重启，消息留在它的边车里……", coder.name))
	coder.kill()
	a.board.note(a.out.say("… and is killed (SIGKILL)", "……边车被杀掉（SIGKILL）"))
	must(coder.start(ctx))
	a.board.note(a.out.say("the sidecar is back, and so is its bot", "边车回来了，机器人也回来了"))
	coder.connect(ctx)
}

// bot is one of the three: it knows the local API of its sidecar, and nothing
// else of the relay.
type bot struct {
	*sidecar
	hangUp context.CancelFunc // ends the stream; nil: not connected
	gone   chan struct{}      // closed when the stream has ended
	lastID atomic.Value       // of the last message from the stream, a string
}

// connect opens the bot's stream, behind what it got before.
func (b *bot) connect(ctx context.Context) {
	ctx, hangUp := context.WithCancel(ctx)
	last, _ := b.lastID.Load().(string)
	stream, err := b.subscribe(ctx, "/v1/stream", last)
	if err != nil {
		hangUp()
		must(fmt.Errorf("connect %s: %w", b.name, err))
	}
	gone := make(chan struct{})
	b.hangUp, b.gone = hangUp, gone
	b.stage.listeners.Go(func() {
		defer close(gone)
		err := stream.each(func(e event) error { return try(func() { b.receive(ctx, e) }) })
		if ctx.Err() == nil {
			b.stage.fail(fmt.Errorf("stream of %s: %w", b.name, err))
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
func (b *bot) receive(ctx context.Context, e event) {
	if e.kind != "message" {
		must(fmt.Errorf("the sidecar says %q", e.kind))
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
	must(wrap(json.Unmarshal(e.data, &in), "decode a message"))
	b.lastID.Store(e.id)
	defer b.stage.board.received(b.agent, in.Metadata.RelayMsgID, in.Content)()
	if in.Metadata.IsMentioned {
		b.say(ctx, in.ChatID, in.Metadata.RelayMsgID, b.answerBot(in.Metadata.SenderName, in.Content))
	}
}

// hear takes what Feishu gives every bot of a group: a person's message. The
// bot reports it to its sidecar, which tells whether it is for the bot.
func (b *bot) hear(ctx context.Context, m *message) bool {
	report := map[string]any{"chat_id": m.chat, "chat_type": "group", "content": m.text, "sender": m.name,
		"sender_id": userOpenID, "message_id": m.id, "ts": m.ts}
	var told struct {
		ForMe bool `json:"for_me"`
	}
	must(wrap(b.post(ctx, "/v1/inbound", report, &told), "%s reports what it heard", b.name))
	return told.ForMe
}

// say sends to the group, unless the text is "": Feishu takes it, and the bot
// tells its sidecar.
func (b *bot) say(ctx context.Context, chat relay.ChatID, parent relay.MessageID, text string) {
	if text == "" {
		return
	}
	m := b.stage.board.post(b.agent, b.name, chat, text)
	out := map[string]any{"chat_id": chat, "content": text, "message_id": m.id, "parent_id": parent, "ts": m.ts,
		"metadata": map[string]string{"chat_type": "group"}}
	var sent struct{ Relayed bool }
	must(wrap(b.post(ctx, "/v1/outbound", out, &sent), "%s reports what it sent", b.name))
	if !sent.Relayed {
		must(fmt.Errorf("what %s sent was accepted, but not relayed", b.name))
	}
}

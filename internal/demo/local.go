package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"feishu-relay/relay"
)

// localAct is the first act: three bots on the local API.
type localAct struct {
	*stage
	bots []*bot // in the order of the cast
}

func newLocalAct(s *stage) act {
	s.board = newBoard(s.out, cast, chats)
	return &localAct{stage: s}
}

func (a *localAct) start(ctx context.Context, env []string) error {
	if err := os.WriteFile(filepath.Join(a.dir, "groups.json"), groupsFile(), 0o600); err != nil {
		return fmt.Errorf("write the groups file: %w", err)
	}
	for _, c := range cast {
		sc := newSidecar(a.stage, c, append(slices.Clone(env), "BOT_NAME="+c.name, "BOT_OPEN_ID="+c.openID))
		a.sidecars = append(a.sidecars, sc)
		a.bots = append(a.bots, &bot{character: c, stage: a.stage, sidecar: sc})
	}
	if err := a.startSidecars(ctx, "three"); err != nil {
		return err
	}
	for _, b := range a.bots {
		if err := b.connect(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *localAct) lobby() (relay.ChatID, []string) {
	return devGroup, []string{
		"you are the user in " + chats[devGroup].name + ". " + cast[0].name + " plans, " + cast[1].name +
			" writes code, " + cast[2].name + " reviews; @NAME addresses one, 大家 or \"everyone\" all.",
		"try: @小策 帮我写个排序函数 — 大家好 — @小策 替我谢谢 BotB",
	}
}

// says puts the user's words into a group, and waits until every bot of it has
// reported them and those whom they are for have answered.
func (a *localAct) says(ctx context.Context, chat relay.ChatID, text string) error {
	m := a.board.post("", userName, chat, text)
	given := make([]bool, len(a.bots))
	hearing, each := errgroup.WithContext(ctx)
	for i, b := range a.bots {
		if chats[chat].has(b.agent) {
			hearing.Go(func() (err error) {
				given[i], err = b.hear(each, m)
				return err
			})
		}
	}
	if err := hearing.Wait(); err != nil {
		return err
	}
	if !slices.Contains(given, true) {
		if err := a.board.await(ctx, "the sidecars tell what becomes of it", func() bool { return a.board.explained(m) }); err != nil {
			return err
		}
	}
	first := slices.Index(given, true) // answers what names nobody
	answering, each := errgroup.WithContext(ctx)
	for i, b := range a.bots {
		if given[i] {
			answering.Go(func() error { return b.answer(each, m, i == first) })
		}
	}
	return answering.Wait()
}

func (a *localAct) leave() {
	for _, b := range a.bots {
		b.disconnect()
	}
}

func (*localAct) close() error { return nil }

func (a *localAct) scenes() []scene {
	return []scene{
		{
			title: "a hand-over by @mention", chat: devGroup, asks: "@小策 帮我写个排序函数", want: handedOver(),
			ends: "the last word was for the user, who reads it in the group; no bot has to hear it",
		},
		{
			title: "parallel answers to a person count once", chat: devGroup, asks: "大家觉得用哪种排序好？",
			want: []outcome{
				{"agent_plan", passed + "; " + passed},
				{"agent_code", passed + "; " + passed},
				{"agent_review", passed + "; " + passed},
			},
		},
		{
			title: "a courtesy loop is stopped", chat: devGroup, asks: "@小策 替我谢谢 BotB",
			want: []outcome{{"agent_plan", passed + "; " + passed}, {"agent_code", refused + "; " + refused}},
			ends: "these bots would thank each other for ever",
		},
		{
			title: "so is a talk that has no end", chat: devGroup, asks: "@小策 和 BotB 讨论一下排序算法",
			want: handedOver(),
			ends: "each question deserves an answer; the limit does not ask",
		},
		{
			title: "a bot hears only its own groups", chat: pairGroup, asks: "@小策 写个测试",
			want: []outcome{
				{"agent_plan", passed + "; " + notThere},
				{"agent_code", judged + "; " + notThere},
				{"agent_plan", limit + "; " + notThere},
			},
			ends: "小审 is not in this group",
		},
		{
			title: "a sidecar is killed in the middle of a hand-over", chat: devGroup, asks: "@小策 再写一个查找函数",
			play: a.crash, want: handedOver(),
			ends: "nothing lost, nothing twice",
		},
	}
}

// handedOver is a task handed over, done and reported.
func handedOver() []outcome {
	return []outcome{
		{"agent_plan", passed + "; " + passed},
		{"agent_code", judged + "; " + judged},
		{"agent_plan", limit + "; " + limit},
	}
}

// crash kills the coder's sidecar when it has decided to pass the hand-over on
// and cannot deliver it, since its bot is restarting.
func (a *localAct) crash(ctx context.Context, sc scene) error {
	coder := a.bots[1]
	coder.disconnect()
	if err := coder.awaitAway(ctx); err != nil {
		return err
	}
	from := a.board.said()
	if err := a.says(ctx, sc.chat, sc.asks); err != nil {
		return err
	}
	err := a.board.await(ctx, "the hand-over is decided, and heard by the third bot", func() bool {
		for _, m := range a.board.messages[from:] {
			if f := m.fates[coder.agent]; f != nil && f.decided {
				return m.fates[cast[2].agent].ended()
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	a.board.note("%s is restarting, its sidecar holds the message …", coder.name)
	coder.sidecar.kill()
	a.board.note("… and is killed (SIGKILL)")
	if err := coder.sidecar.start(ctx); err != nil {
		return err
	}
	a.board.note("the sidecar is back, and so is its bot")
	return coder.connect(ctx)
}

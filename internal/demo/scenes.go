package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"feishu-relay/relay"
)

// scene is one thing to show: the user says something in a group, and then
// this and nothing else has to happen.
type scene struct {
	title string
	chat  relay.ChatID
	asks  string
	// play replaces the plain way, which is to let the user ask.
	play func(*stage, context.Context, scene) error
	// want is what bots say, each with its fates at the others in the order of
	// the cast, as fate.String has them. Those of one bot are in order.
	want []outcome
	ends string // what there is to see in it
}

type outcome struct {
	says  string // agent
	fates string // separated by "; "
}

const (
	passed   = "1 threshold delivered"
	judged   = "2 judge delivered"
	refused  = "2 judge judge_no"
	limit    = "3 hard_limit max_depth"
	notThere = "not_a_member"
)

func scenes() []scene {
	handedOver := []outcome{
		{"agent_plan", passed + "; " + passed},
		{"agent_code", judged + "; " + judged},
		{"agent_plan", limit + "; " + limit},
	}
	return []scene{
		{
			title: "a hand-over by @mention", chat: devGroup, asks: "@小策 帮我写个排序函数", want: handedOver,
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
			want: handedOver,
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
			play: (*stage).crash, want: handedOver,
			ends: "nothing lost, nothing twice",
		},
	}
}

// playScenes plays all scenes, each to its expected end.
func (s *stage) playScenes(ctx context.Context) error {
	for i, sc := range scenes() {
		s.out.blank()
		s.out.title(fmt.Sprintf("%d. %s", i+1, sc.title))
		from := s.board.said()
		play := sc.play
		if play == nil {
			play = (*stage).ask
		}
		if err := play(s, ctx, sc); err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
		if err := s.board.await(ctx, "everything delivered or stopped", s.board.quiet); err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
		if diff := s.board.compare(from, sc.want); diff != "" {
			return fmt.Errorf("scene %d did not come to its expected end: %s", i+1, diff)
		}
		if sc.ends != "" {
			s.board.note("%s", sc.ends)
		}
	}
	return nil
}

// ask lets the user speak, and waits until every bot has reported that.
func (s *stage) ask(ctx context.Context, sc scene) error {
	return s.userSays(ctx, sc.chat, sc.asks)
}

func (s *stage) userSays(ctx context.Context, chat relay.ChatID, text string) error {
	m := s.board.post("", userName, chat, text)
	errs := make(chan error, len(s.bots))
	var hearing sync.WaitGroup
	for _, b := range s.bots {
		if !chats[chat].has(b.agent) {
			continue
		}
		hearing.Go(func() { errs <- b.hear(ctx, m) })
	}
	hearing.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (g group) has(agent string) bool {
	return slices.Contains(g.members, agent)
}

// crash kills the coder's sidecar when it has decided to pass the hand-over on
// and cannot deliver it, since its bot is restarting.
func (s *stage) crash(ctx context.Context, sc scene) error {
	coder := s.bots[1]
	coder.disconnect()
	if err := coder.awaitAway(ctx); err != nil {
		return err
	}
	from := s.board.said()
	if err := s.ask(ctx, sc); err != nil {
		return err
	}
	err := s.board.await(ctx, "the hand-over is decided, and heard by the third bot", func() bool {
		for _, m := range s.board.messages[from:] {
			if f := m.fates[coder.agent]; f != nil && f.decided {
				return m.fates[cast[2].agent].ended()
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	s.board.note("%s is restarting, its sidecar holds the message …", coder.name)
	coder.sidecar.kill()
	s.board.note("… and is killed (SIGKILL)")
	if err := coder.sidecar.start(ctx); err != nil {
		return err
	}
	s.board.note("the sidecar is back, and so is its bot")
	return coder.connect(ctx)
}

// compare tells how what was said since from differs from want; "" is not at all.
func (b *board) compare(from int, want []outcome) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	got, wanted := map[string][]string{}, map[string][]string{}
	for _, m := range b.messages[from:] {
		if m.sender == "" {
			continue
		}
		var fates []string
		for _, c := range cast {
			if f := m.fates[c.agent]; f != nil {
				fates = append(fates, f.String())
			}
		}
		got[m.sender] = append(got[m.sender], strings.Join(fates, "; "))
	}
	for _, w := range want {
		wanted[w.says] = append(wanted[w.says], w.fates)
	}
	for _, c := range cast {
		g, w := got[c.agent], wanted[c.agent]
		for i := range max(len(g), len(w)) {
			switch {
			case i >= len(g):
				return fmt.Sprintf("%s did not say what was to be %q", c.name, w[i])
			case i >= len(w):
				return fmt.Sprintf("%s said more than expected, %q", c.name, g[i])
			case g[i] != w[i]:
				return fmt.Sprintf("message %d of %s: got %q, want %q", i+1, c.name, g[i], w[i])
			}
		}
	}
	return ""
}

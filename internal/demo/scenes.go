package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// scene is one thing to show: the user says something in a group, and then
// this and nothing else has to happen.
type scene struct {
	title string
	chat  relay.ChatID
	asks  string
	// play replaces the plain way, which is to let the user ask.
	play func(context.Context, scene) error
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

// playScenes plays all scenes, each to its expected end.
func (s *stage) playScenes(ctx context.Context, a act) error {
	for i, sc := range a.scenes() {
		s.out.blank()
		s.out.title(fmt.Sprintf("%d. %s", i+1, sc.title))
		from := s.board.said()
		if err := s.playScene(ctx, a, sc); err != nil {
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

func (s *stage) playScene(ctx context.Context, a act, sc scene) error {
	var err error
	if sc.play != nil {
		err = sc.play(ctx, sc)
	} else {
		err = a.says(ctx, sc.chat, sc.asks)
	}
	if err != nil {
		return err
	}
	return s.board.await(ctx, allEnded, s.board.quiet)
}

// allEnded is what is waited for at the end of a scene.
const allEnded = "everything delivered or stopped"

func (g group) has(agent string) bool {
	return slices.Contains(g.members, agent)
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
		for _, c := range b.cast {
			if f := m.fates[c.agent]; f != nil {
				fates = append(fates, f.String())
			}
		}
		got[m.sender] = append(got[m.sender], strings.Join(fates, "; "))
	}
	for _, w := range want {
		wanted[w.says] = append(wanted[w.says], w.fates)
	}
	for _, c := range b.cast {
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

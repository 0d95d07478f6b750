package demo

import (
	"context"

	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
)

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
	members, agents := []string{a.user}, []string{}
	for i, c := range sdkCast {
		members, agents = append(members, a.apps[i].ID), append(agents, c.agent)
	}
	name := chats[pairGroup].name
	a.group = relay.ChatID(a.feishu.AddGroup(name, members...).ID)
	s.board = newBoard(s.out, sdkCast, map[relay.ChatID]group{a.group: {name, agents}})
	return a
}

func (a *gatewayAct) start(ctx context.Context, env []string) error {
	a.out.title("Two bots on Feishu's official SDK, that know nothing of the relay: their base URL is a gateway, that is all.")
	ctx, env, err := a.open(ctx, env)
	if err != nil {
		return err
	}
	for _, c := range sdkCast {
		sc := newSidecar(a.stage, c, env)
		sc.front = true
		a.sidecars = append(a.sidecars, sc)
	}
	if err := a.startSidecars(ctx, "two"); err != nil {
		return err
	}
	for i := range sdkCast {
		c := &sdkCast[i]
		answer := func(_ context.Context, in incoming) (string, error) {
			if in.fromBot {
				return c.answerBot(in.sender, in.words), nil
			}
			return pick(c.asked, in.sender, in.words), nil
		}
		received := func(in incoming) func() { return a.board.received(c.agent, relay.MessageID(in.id), in.text) }
		if err := a.startBot(ctx, i, a.sidecars[i].gate, answer, received); err != nil {
			return err
		}
	}
	return nil
}

func (a *gatewayAct) lobby() (relay.ChatID, []string) {
	return a.group, []string{
		"you are the user in " + a.board.chats[a.group].name +
			". BotA plans, BotB writes code; they answer when they are mentioned.",
		"try: @BotA 帮我写个排序函数 — @BotA 替我谢谢 BotB",
	}
}

func (a *gatewayAct) says(ctx context.Context, chat relay.ChatID, text string) error {
	return a.post(ctx, feishusim.Utterance{Chat: string(chat), Text: text})
}

package demo

import (
	"context"
	"fmt"
	"slices"

	"feishu-relay/internal/feishusim"
)

// messageReceived is the type of the event that brings a bot a message.
const messageReceived = "im.message.receive_v1"

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
func (a *gatewayAct) crash(ctx context.Context, sc scene) error {
	killed, from := a.sidecars[1], a.board.said()
	killed.kill()
	a.board.note("the sidecar of BotB is killed (SIGKILL)")
	if err := a.says(ctx, sc.chat, sc.asks); err != nil {
		return err
	}
	err := a.board.await(ctx, "the hand-over", func() bool {
		for _, m := range a.board.messages[from:] {
			if m.sender != "" {
				return a.board.busy == 0 // the bot's call was answered: its sidecar has the message
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	if err := killed.start(ctx); err != nil {
		return err
	}
	a.board.note("… and is back; the bot's SDK finds it again by itself")
	return nil
}

// native lets Feishu deliver bots' messages to bots too, and waits until the
// sidecars have taken all of these from it.
func (a *gatewayAct) native(ctx context.Context, sc scene) error {
	from := a.board.said()
	for _, id := range a.ofBots(0) {
		if a.brought(id) {
			return fmt.Errorf("Feishu delivered %s to a bot, which it was not to yet", id)
		}
	}
	for _, app := range a.apps {
		app.Scopes = append(feishusim.DefaultScopes(), feishusim.ScopeAtIncludeBot, feishusim.ScopeGroupBots)
		if _, err := a.feishu.UpdateApp(app); err != nil {
			return err
		}
	}
	if err := a.says(ctx, sc.chat, sc.asks); err != nil {
		return err
	}
	if err := a.board.await(ctx, allEnded, a.board.quiet); err != nil {
		return err
	}
	said := a.ofBots(from)
	within, cancel := context.WithTimeoutCause(ctx, settledWithin, fmt.Errorf("Feishu's own copies: not within %s", settledWithin))
	defer cancel()
	for _, id := range said {
		if _, err := a.feishu.WaitDelivery(within, func(d feishusim.Delivery) bool {
			return d.MessageID == id && d.EventType == messageReceived && d.Acked == 200
		}); err != nil {
			return err
		}
	}
	a.board.note("all %d came from Feishu as well, the card as \"%s\"; each bot got the final text, and each message once", len(said), thinking)
	return nil
}

// ofBots are the ids of the messages of bots since from.
func (a *gatewayAct) ofBots(from int) []string {
	a.board.mu.Lock()
	defer a.board.mu.Unlock()
	var all []string
	for _, m := range a.board.messages[from:] {
		if m.sender != "" {
			all = append(all, string(m.id))
		}
	}
	return all
}

// brought reports whether Feishu tried to deliver a message to anybody; reactions to it are events, too.
func (a *gatewayAct) brought(id string) bool {
	return slices.ContainsFunc(a.feishu.Deliveries(), func(d feishusim.Delivery) bool {
		return d.MessageID == id && d.EventType == messageReceived
	})
}

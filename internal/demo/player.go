package demo

import (
	"context"
	"fmt"
	"os"
	"strings"

	"feishu-relay/relay"
)

// player is a bot of the cast, on Feishu's SDK, whose base URL is the gateway of its sidecar.
type player struct {
	*sidecar
	*sdkBot
}

// startBots starts the bots, which end with ctx, and waits until Feishu has their long connections.
func (s *stage) startBots(ctx context.Context) {
	for i, sc := range s.sidecars {
		p := &player{sidecar: sc}
		muted(func() { p.sdkBot = newSDKBot(s.apps[i].ID, s.apps[i].Secret, "http://"+sc.gate) })
		p.heard, p.openID, p.names = p.hears, s.openID(i, i), map[string]string{}
		for other, c := range s.script.Cast {
			p.names[s.openID(i, other)] = c.Name
		}
		s.bots.Go(func() { p.failed(ctx, "has an SDK that ended", p.run(ctx)) })
		connecting, cancel := context.WithTimeoutCause(ctx, readyWithin,
			fmt.Errorf("start %s: no long connection within %s", p.Name, readyWithin))
		defer cancel()
		must(s.feishu.WaitConnected(connecting, s.apps[i].ID, 1))
	}
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

// failed ends the act if err is not nil, unless it ends already.
func (p *player) failed(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		p.stage.fail(fmt.Errorf("%s %s: %w", p.Name, what, err))
	}
}

// hears takes a message that the SDK gave the bot.
func (p *player) hears(ctx context.Context, in *incoming) {
	p.failed(ctx, "answers", try(func() {
		s := p.stage
		s.said(ctx, in.id) // it stands on the board before what comes of it
		if in.fromBot && in.private {
			defer p.mailed(in)()
		} else {
			defer s.board.received(p.Agent, relay.MessageID(in.id), in.text)()
		}
		if in.addressed || !in.fromBot && has(in.text, s.script.Everybody) {
			p.answer(ctx, in)
		}
	}))
}

// answer says what the script has for the bot to say, after it has done what that needs.
func (p *player) answer(ctx context.Context, in *incoming) {
	var l line
	s := p.stage
	switch {
	case p.Asked == nil:
		l.Says = s.think(ctx)
	case in.fromBot:
		l = s.script.pick(p.Told, in.sender, in.text)
	default:
		l = s.script.pick(p.Asked, "", in.text)
	}
	if l.Gives != "" {
		s.giveTask(ctx, in.chat, l.Gives)
	}
	if l.Tells != "" {
		s.tell(ctx, l.Tells)
	}
	if l.Says == "" {
		return
	}
	if strings.Contains(l.Says, "\n") {
		s.said(ctx, p.stream(ctx, in.id, l.Says, s.out.say("Thinking…", "正在想…")))
		return
	}
	s.said(ctx, p.say(ctx, in.id, l.Says))
}

// openID is that of a bot, as the i-th one sees it.
func (s *stage) openID(i, of int) string { return s.feishu.OpenID(s.apps[i].ID, s.apps[of].ID) }

package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"feishu-relay/internal/sse"
	"feishu-relay/relay"
)

// player is a bot of the cast, on Feishu's SDK. In the first act it speaks to Feishu itself, knows the local API of its
// sidecar, and nothing else of the relay. In the others its base URL is the gateway of its sidecar.
type player struct {
	*sidecar
	*sdkBot

	// The stream of the local API.
	hangUp context.CancelFunc // nil: not connected
	gone   chan struct{}      // closed when it has ended
	lastID string             // of the last message from it
}

// startBots starts the bots, which end with ctx, and waits until Feishu has their long connections.
func (s *stage) startBots(ctx context.Context, feishu string) {
	for i, sc := range s.sidecars {
		p, base := &player{sidecar: sc}, feishu
		if !s.script.Local {
			base = "http://" + sc.gate
		}
		muted(func() { p.sdkBot = newSDKBot(s.apps[i].ID, s.apps[i].Secret, base) })
		p.heard, p.openID, p.names = p.hears, s.openID(i, i), map[string]string{}
		for other, c := range s.script.Cast {
			p.names[s.openID(i, other)] = c.Name
		}
		s.players = append(s.players, p)
		s.bots.Go(func() { p.failed(ctx, "has an SDK that ended", p.run(ctx)) })
		connecting, cancel := context.WithTimeoutCause(ctx, readyWithin,
			fmt.Errorf("start %s: no long connection within %s", p.Name, readyWithin))
		defer cancel()
		must(s.feishu.WaitConnected(connecting, s.apps[i].ID, 1))
		if s.script.Local {
			p.connect(ctx)
		}
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
		m := p.stage.said(ctx, in.id) // it stands on the board before what comes of it
		switch {
		case p.stage.script.Local:
			p.report(ctx, in, m)
			return
		case in.fromBot && in.private:
			defer p.mailed(in)()
		default:
			defer p.stage.board.received(p.Agent, relay.MessageID(in.id), in.text)()
		}
		if in.addressed {
			p.answer(ctx, in)
		}
	}))
}

// report tells the sidecar of a person's message m, and answers it if it is for the bot. What names nobody is answered
// by the first of those whom it is for.
func (p *player) report(ctx context.Context, in *incoming, m *message) {
	s := p.stage
	report := object{"chat_id": m.chat, "chat_type": "group", "content": in.text, "sender": m.name,
		"sender_id": in.from, "message_id": m.id, "ts": m.ts}
	var told struct {
		ForMe bool `json:"for_me"`
	}
	must(wrap(p.call(ctx, "/v1/inbound", report, &told), "%s reports what it heard", p.Name))
	s.board.do(func() { m.forMe[p.Agent] = told.ForMe })
	if !told.ForMe {
		return
	}
	defer s.board.received(p.Agent, m.id, in.text)()
	first := false
	s.await(ctx, "all bots of the group have reported it", func() bool {
		first = m.to[slices.IndexFunc(m.to, func(agent string) bool { return m.forMe[agent] })] == p.Agent
		return len(m.forMe) == len(m.to)
	})
	if s.script.addresses(&p.character, in.text, first) {
		p.answer(ctx, in)
	}
}

// answer says what the script has for the bot to say, after it has done what that needs.
func (p *player) answer(ctx context.Context, in *incoming) {
	var l line
	s := p.stage
	switch {
	case p.Asked == nil:
		l.Says = p.think(ctx, in)
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
	if strings.Contains(l.Says, "\n") && !s.script.Local {
		s.said(ctx, p.stream(ctx, in.id, l.Says, s.out.say("Thinking…", "正在想…")))
		return
	}
	m := s.said(ctx, p.say(ctx, in.id, l.Says))
	if !s.script.Local {
		return
	}
	out := object{"chat_id": m.chat, "content": l.Says, "message_id": m.id, "parent_id": in.id, "ts": m.ts,
		"metadata": object{"chat_type": "group"}}
	var sent struct{ Relayed bool }
	must(wrap(p.call(ctx, "/v1/outbound", out, &sent), "%s reports what it sent", p.Name))
	if !sent.Relayed {
		must(fmt.Errorf("what %s sent was accepted, but not relayed", p.Name))
	}
}

// connect opens the bot's stream, behind what it got before.
func (p *player) connect(ctx context.Context) {
	ctx, hangUp := context.WithCancel(ctx)
	stream, err := p.open(ctx, "/v1/stream", nil, p.lastID)
	if err != nil {
		hangUp()
		must(fmt.Errorf("connect %s: %w", p.Name, err))
	}
	gone := make(chan struct{})
	p.hangUp, p.gone = hangUp, gone
	p.stage.bots.Go(func() {
		defer close(gone)
		p.failed(ctx, "has a stream that ended", read(stream, func(e sse.Event) error {
			return try(func() { p.receive(ctx, e) })
		}))
	})
}

// receive takes an event of the stream and answers the message in it.
func (p *player) receive(ctx context.Context, e sse.Event) {
	if e.Kind != "message" {
		must(fmt.Errorf("the sidecar says %q", e.Kind))
	}
	var in struct {
		ChatID   string `json:"chat_id"`
		Content  string
		Metadata struct {
			RelayMsgID  string `json:"relay_msg_id"`
			IsMentioned bool   `json:"is_mentioned"`
			SenderName  string `json:"sender_name"`
		}
	}
	must(wrap(json.Unmarshal(e.Data, &in), "decode a message"))
	p.lastID = e.ID
	of := in.Metadata
	defer p.stage.board.received(p.Agent, relay.MessageID(of.RelayMsgID), in.Content)()
	if of.IsMentioned {
		p.answer(ctx, &incoming{id: of.RelayMsgID, chat: in.ChatID, fromBot: true, sender: of.SenderName, text: in.Content})
	}
}

// disconnect closes the stream and returns when the sidecar has noticed: what it writes to a connection that is just
// ending counts as delivered.
func (p *player) disconnect(ctx context.Context) {
	p.hangUp()
	<-p.gone
	must(await(ctx, "the sidecar of "+p.Name+" notices that its bot left", func(ctx context.Context) (bool, error) {
		var status struct{ Door struct{ Connected bool } }
		err := p.call(ctx, "/v1/status", nil, &status)
		return !status.Door.Connected, err
	}))
}

// writeGroups writes the GROUPS_FILE of the sidecars in the first act.
func (s *stage) writeGroups() {
	agents, groups := object{}, object{}
	for i, c := range s.script.Cast {
		agents[c.Agent] = object{"name": c.Name, "feishu_open_id": s.openID(i, i), "type": "bot",
			"description": c.Role}
	}
	for _, g := range s.script.Groups {
		groups[string(g.ID)] = object{"name": g.Name, "members": g.Members}
	}
	file := asJSON(object{"agents": agents, "groups": groups})
	must(wrap(os.WriteFile(filepath.Join(s.dir, "groups.json"), []byte(file), 0o600), "write the groups file"))
}

// openID is that of a bot, as the i-th one sees it.
func (s *stage) openID(i, of int) string { return s.feishu.OpenID(s.apps[i].ID, s.apps[of].ID) }

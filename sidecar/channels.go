package sidecar

import (
	"cmp"
	"context"
	"errors"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/feishu"
	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/loop"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
)

// channels are the delivery channels to the bot: the gateway, INJECT_URL and the stream, in the order in which they are
// tried.
type channels struct {
	gateway *gatewayDoor    // nil without a gateway
	webhook *webhookDoor    // nil without INJECT_URL
	stream  *httpapi.Stream // nil with INJECT_URL
}

// Names of the channels in logs, events and the status.
const (
	doorGateway = "gateway"
	doorWebhook = "webhook"
	doorStream  = "stream"
)

// openChannels makes the channels, and lists them in the order in which they are tried; the gateway listens later.
func (s *Sidecar) openChannels() (list []core.Channel) {
	if s.cfg.Gateway.Addr != "" {
		s.channels.gateway = newGatewayDoor(s)
		list = append(list, s.channels.gateway)
	}
	if s.cfg.InjectURL != "" {
		s.channels.webhook = newWebhook(s.cfg.InjectURL, s.cfg.InjectSecret)
		return append(list, s.channels.webhook)
	}
	s.channels.stream = httpapi.NewStream(func(id relay.MessageID) {
		s.core.Acknowledge(id)
		s.events.Publish(httpapi.Event{Type: httpapi.EventReceipt, RelayMsgID: id, Door: doorStream})
	})
	return append(list, streamDoor{s.channels.stream})
}

// connected tells of each channel whether the bot is there.
func (d *channels) connected() map[string]bool {
	is := map[string]bool{}
	if d.gateway != nil {
		is[doorGateway] = d.gateway.gateway.Status().Connected
	}
	if d.webhook != nil {
		is[doorWebhook] = !d.webhook.away()
	}
	if d.stream != nil {
		is[doorStream] = d.stream.Connected()
	}
	return is
}

// current is the name of the channel that would deliver now.
func (d *channels) current() string {
	switch {
	case d.gateway != nil && d.gateway.gateway.Connected():
		return doorGateway
	case d.webhook != nil:
		return doorWebhook
	case d.gateway != nil && !d.stream.Connected():
		return doorGateway
	}
	return doorStream
}

// streamDoor is the stream as a channel.
type streamDoor struct{ *httpapi.Stream }

var _ core.Resumer = streamDoor{}

func (streamDoor) Name() string                        { return doorStream }
func (d streamDoor) Present() bool                     { return d.Connected() }
func (streamDoor) Serial() bool                        { return false }
func (streamDoor) Pauses() (first, most time.Duration) { return webhookFirst, webhookMax }

func (d streamDoor) Write(ctx context.Context, in *core.Input, _ bool, written func()) error {
	err := d.Offer(ctx, in.Conn, in.ID, in.Inbound, written)
	switch {
	case errors.Is(err, httpapi.ErrNoReader):
		return &core.ResultError{Result: deliver.NotWritten, Err: err}
	case errors.Is(err, httpapi.ErrReaderGone):
		return &core.ResultError{Result: deliver.Broken, Err: err}
	case errors.Is(err, httpapi.ErrUnconfirmed):
		return &core.ResultError{Result: deliver.Unconfirmed, Err: err}
	}
	return err
}

// injectionError is the error of an injection into the bot's Feishu connection as a channel returns it.
func injectionError(err error) error {
	a, answered := errors.AsType[*feishu.AnswerError](err)
	switch {
	case answered && feishu.IsRefusal(a.Code):
		return &core.ResultError{Result: deliver.Refused, Err: err}
	case errors.Is(err, feishu.ErrNotInjected):
		return &core.ResultError{Result: deliver.NotWritten, Err: err}
	case errors.Is(err, feishu.ErrInjectionEnded):
		return &core.ResultError{Result: deliver.Broken, Err: err}
	}
	return err
}

func (s *Sidecar) openJudge() (err error) {
	s.judge = countedJudge{judge.Rules{}, s.metrics}
	if s.cfg.Judge.APIKey != "" {
		s.llm, err = judge.New(judge.Options{APIKey: string(s.cfg.Judge.APIKey), BaseURL: s.cfg.Judge.BaseURL,
			Model: s.cfg.Judge.Model, Timeout: s.cfg.Limits.Timeout, Logger: s.log})
		s.judge = countedJudge{s.llm, s.metrics}
	}
	if err != nil {
		return &setting{err}
	}
	return nil
}

// limits are the judge's.
func (s *Sidecar) limits() policy.Limits {
	l := s.cfg.Limits
	if s.llm == nil {
		l.Timeout = rulesWithin
	}
	return l
}

// rulesWithin is the time limit of the rules. They only compute, and a busy machine is not to make them fail.
const rulesWithin = time.Hour

func (s *Sidecar) openCore(given []core.Channel) (err error) {
	if all := s.openChannels(); given == nil {
		given = all
	}
	o := core.Options{Agent: s.cfg.Agent, Role: s.cfg.Role, Dir: s.bookDir(),
		Sync: s.cfg.Sync, Secret: string(s.cfg.RelaySecret), MaxAge: s.cfg.MaxAge,
		Timeout: cmp.Or(s.cfg.DeliveryTimeout, 15*time.Minute),
		Self: func() core.Self {
			self := s.app.self()
			return core.Self{Name: self.Name, OpenID: self.OpenID, AppID: self.AppID}
		},
		Config: s.groupConfig, Member: s.member, Revision: s.revision, Checked: s.chats.enforced,
		Asks:  func(of loop.Chat) bool { return s.cfg.KnowsFeishu() && of.Channel == relay.DefaultChannel },
		Names: func(m *relay.Message) group.Names { return group.NamesOf(s.app.directory(), m) },
		Context: func(of loop.Chat) int {
			if n := s.chats.group(of.ID).InjectContext; n != nil {
				return *n
			}
			return s.cfg.InjectContext
		},
		Resolve: func(out relay.Outbound) []relay.Mention { return s.app.resolve(out.Content, out.MsgType, out.Mentions) },
		MayEdit: s.mayEdit, BotOf: s.app.botOf,
		Passed: s.passed.Contains,
		ShownAs: func(m *relay.Message) relay.MessageID {
			if s.channels.gateway == nil {
				return ""
			}
			return s.channels.gateway.idOf(m)
		},
		Bare: s.app.bare,
		Foreign: func(agent relay.AgentName) error {
			if e := s.presence.seen.Load().secrets[agent]; e != nil {
				return e
			}
			return nil
		},
		Bots: s.lanes[core.Outbound], People: s.lanes[core.Inbound], Side: s.lanes[core.Side],
		Transcripts: s.chats.transcript, Channels: given, Feishu: inFeishu{s}, GivesPeople: s.cfg.Connector,
		Watch: s, Noted: s.chats.noted, Trace: s.trace, Logger: s.log,
		Judge: func() (policy.Limits, policy.Judge) { return s.limits(), s.judge }}
	if s.core, err = core.Open(o); err != nil {
		return err
	}
	s.chats.note = s.core.Note
	s.onClose(s.core.Close)
	return nil
}

// member reports whether the bot is in a chat, as the groups file says. A group that is listed for its limits alone
// says nothing of who is in it, where Feishu does; and there nobody is out who was seen there.
func (s *Sidecar) member(of loop.Chat) (member, known bool) {
	if of.Channel != relay.DefaultChannel {
		return false, false
	}
	file := s.chats.groups.Current()
	member, known = file.Member(string(of.ID), string(s.cfg.Agent))
	if s.cfg.KnowsFeishu() {
		known = known && member && file.Groups[string(of.ID)].Members != nil
	}
	return member && known, known
}

// revision is of what the core is told of the chats' settings.
func (s *Sidecar) revision() any {
	_, now := s.canWrite(relay.DefaultChannel)
	return struct {
		file any
		name string
		now  bool
	}{s.chats.groups.Current(), s.app.self().Name, now}
}

// groupConfig is what this sidecar is set to in a chat.
func (s *Sidecar) groupConfig(of loop.Chat) *group.Config {
	g, cfg, file := s.chats.group(of.ID), &s.cfg, map[string]bool{}
	mode := cmp.Or(cfg.Steer.AnswerMode, string(group.ModeAll))
	base := group.Settings{Answer: group.Mode(inFile(file, "answer", present(g.AnswerMode), mode)),
		DefaultBot: relay.AgentName(inFile(file, "default_bot", present(g.DefaultBot), "")),
		Limit:      inFile(file, "limit", g.MaxBotReplyDepth, cfg.Limits.MaxDepth),
		Threshold:  inFile(file, "threshold", g.BotReplyLLMThreshold, cfg.Limits.Threshold),
		Judge:      inFile(file, "judge", g.BotReplyLLMCheck, cfg.Limits.Check),
		Budget:     inFile(file, "budget", g.GroupBudget, cfg.Steer.Budget)}
	canWrite, now := s.canWrite(of.Channel)
	by := cmp.Or(g.SteerBy, cfg.Steer.By, "members")
	if by != "members" && by != "admins" {
		by = "list"
	}
	notice := cmp.Or(g.StopNotice, cfg.Steer.StopNotice)
	return &group.Config{Agent: cfg.Agent, Name: s.app.self().Name, MentionAll: cfg.MentionAll, CanWrite: canWrite,
		NotYet: canWrite && !now, AnyChat: !s.chats.enforced(),
		AsksMembership: cfg.KnowsFeishu() && of.Channel == relay.DefaultChannel,
		Base:           base, File: file, Locked: g.Locked, MaxDepth: inFile(file, "", g.SteerMaxDepth, cfg.Steer.MaxDepth),
		SteerBy: by, Commands: cfg.Steer.Commands, Notice: notice != "off", NoticeText: notice == "text",
		Count: cfg.Limits.Count, GroupPolicy: cfg.groupPolicyFor(g), OnErrorAllow: cfg.Limits.OnErrorAllow,
		JudgeTimeout: s.limits().Timeout, Window: cmp.Or(cfg.Steer.ContinueWindow, time.Hour), MaxAge: cfg.MaxAge,
		ShareMessages: cfg.UserMessages}
}

func inFile[T any](file map[string]bool, key string, is *T, otherwise T) T {
	if is == nil {
		return otherwise
	}
	if key != "" {
		file[key] = true
	}
	return *is
}

func present(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

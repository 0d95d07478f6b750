package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/delivery"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/web"
	"feishu-relay/loop"
	"feishu-relay/mailbox"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// Cored is a sidecar on package core, without Feishu and mail. It takes the place of [Sidecar] once it has these.
type Cored struct {
	*base
	started  time.Time
	chats    *chats
	app      *app
	core     *core.Core
	doors    doors
	presence *presence
	api      *localAPI
	events   *httpapi.Events
	judge    policy.Judge
	llm      *judge.LLM // nil where the rules judge
	queues   map[string]relay.Backend
	away     atomic.Bool // the last delivery of all failed
	probe    folderProbe
}

// NewCored opens all files and binds the listener. It starts no goroutine.
func NewCored(cfg Config, opts Options) (_ *Cored, err error) {
	b := newBase(cfg, opts)
	c := &Cored{base: b, started: time.Now(), events: &httpapi.Events{}, queues: map[string]relay.Backend{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := b.openFolders(); err != nil {
		return nil, err
	}
	if c.chats, err = openChats(b); err != nil {
		return nil, err
	}
	if c.app, err = openApp(b, c.chats); err != nil {
		return nil, err
	}
	if c.presence, err = openPresence(b, func() *mailbox.Bot { return nil }, func() string { return c.app.self().Name }); err != nil {
		return nil, err
	}
	if err := c.openJudge(); err != nil {
		return nil, err
	}
	if err := c.openDoors(); err != nil {
		return nil, err
	}
	if err := c.openCore(); err != nil {
		return nil, err
	}
	if c.api, err = openAPI(b); err != nil {
		return nil, err
	}
	b.metrics.gauge("outcomes_pending", "Outcomes of messages that the other sidecars cannot read yet.", nil,
		func() float64 { return float64(c.core.Lane(core.Side)) })
	c.probe.dirs = []setFolder{{cfg.setBy("RELAY_DIR", cfg.RelayDir), cfg.RelayDir},
		{cfg.setBy("TRANSCRIPT_DIR", cfg.TranscriptDir), cfg.TranscriptDir}}
	return c, c.api.listen(c.served())
}

func (c *Cored) openDoors() (err error) {
	if c.cfg.InjectURL != "" {
		c.doors.webhook = newWebhook(c.cfg.InjectURL, c.cfg.InjectSecret)
		return nil
	}
	c.doors.stream, err = httpapi.NewStream(httpapi.StreamOptions{Root: c.bad.root, Name: c.name() + ".stream.jsonl",
		MaxAge: c.cfg.MaxAge, Logger: c.log, Receipt: func(id relay.MessageID) { c.core.Acknowledge(id) }})
	if err == nil {
		c.onClose(c.doors.stream.Close)
	}
	return err
}

func (c *Cored) openJudge() (err error) {
	c.judge = countedJudge{judge.Rules{}, c.metrics}
	if c.cfg.Judge.APIKey != "" {
		c.llm, err = judge.New(judge.Options{APIKey: string(c.cfg.Judge.APIKey), BaseURL: c.cfg.Judge.BaseURL,
			Model: c.cfg.Judge.Model, Timeout: c.cfg.Limits.Timeout, Logger: c.log})
		c.judge = countedJudge{c.llm, c.metrics}
	}
	return err
}

func (c *Cored) openCore() (err error) {
	ls := &lanes{base: c.base}
	for _, name := range []string{outboundQueue, inboundQueue, marksQueue} {
		if c.queues[name], err = ls.openQueue(name); err != nil {
			return err
		}
		c.onClose(c.queues[name].Close)
	}
	var channels []core.Channel
	for _, ch := range c.doors.channels() {
		channels = append(channels, doorChannel{ch})
	}
	c.core, err = core.Open(core.Options{Agent: c.cfg.Agent, Role: c.cfg.Role,
		Dir:  filepath.Join(c.cfg.RelayDir, "agents", safefile.Name(string(c.cfg.Agent))),
		Sync: c.cfg.OutboxSync, Secret: string(c.cfg.RelaySecret), MaxAge: c.cfg.MaxAge,
		Timeout: cmp.Or(c.cfg.DeliveryTimeout, 15*time.Minute), Dedup: c.cfg.DedupSize,
		Self: func() core.Self {
			self := c.app.self()
			return core.Self{Name: self.Name, OpenID: self.OpenID, AppID: self.AppID}
		},
		Config: c.groupConfig,
		Member: func(of loop.Chat) (member, known bool) {
			return c.chats.groups.Current().Member(string(of.ID), string(c.cfg.Agent))
		},
		Revision: func() any { return c.chats.groups.Current() },
		Checked:  c.chats.enforced,
		Names:    func(m *relay.Message) group.Names { return group.NamesOf(c.app.directory(), m) },
		Context: func(of loop.Chat) int {
			if n := c.chats.group(of.ID).InjectContext; n != nil {
				return *n
			}
			return c.cfg.InjectContext
		},
		Resolve: func(out relay.Outbound) []relay.Mention { return c.app.resolve(out.Content, out.MsgType, out.Mentions) },
		MayEdit: func(context.Context, *relay.Message) bool { return true },
		Foreign: func(agent relay.AgentName) error {
			if e := c.presence.secretOf(agent); e != nil {
				return e
			}
			return nil
		},
		Bots: c.queues[outboundQueue], People: c.queues[inboundQueue], Side: c.queues[marksQueue],
		Transcripts: c.chats.transcript, Channels: channels, Watch: c, Logger: c.log,
		Judge: func() (policy.Limits, policy.Judge) { return c.limits(), c.judge }})
	if err == nil {
		c.onClose(c.core.Close)
	}
	return err
}

// limits are the judge's.
func (c *Cored) limits() policy.Limits {
	l := c.cfg.Limits
	if c.llm == nil {
		l.Timeout = rulesWithin
	}
	return l
}

// Addr is where the local API listens.
func (c *Cored) Addr() net.Addr { return c.api.listener.Addr() }

// Run works until ctx is done and then stops in order.
func (c *Cored) Run(ctx context.Context) error {
	c.log.Info("listening", "addr", c.api.listener.Addr().String(), keyAgent, c.cfg.Agent, "backend", c.cfg.Backend,
		"version", c.version)
	var serving, reading sync.WaitGroup
	var failed error
	serving.Go(func() {
		if err := c.api.server.Serve(c.api.listener); !errors.Is(err, http.ErrServerClosed) {
			failed = fmt.Errorf("%w: local API: %w", errListener, err)
		}
	})
	reading.Go(func() { c.chats.groups.Run(ctx) })
	reading.Go(func() { c.watchGroups(ctx) })
	reading.Go(func() { c.keep(ctx, "presence", c.presence.run) })
	running, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCore()
	var working sync.WaitGroup
	var ended error
	working.Go(func() { ended = c.core.Run(running, deliveryGrace, finishPublish) })
	<-ctx.Done()
	c.log.Info("stopping")
	c.events.Close()
	if c.doors.stream != nil {
		c.doors.stream.Stop()
	}
	c.api.stop()
	reading.Wait()
	stopCore()
	working.Wait()
	serving.Wait()
	err := errors.Join(ended, c.close())
	if err != nil {
		c.log.Error("close", keyErr, err)
	}
	c.log.Info("stopped")
	return failed
}

// watchGroups has the core know when the groups file has changed, and who is online.
func (c *Cored) watchGroups(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.core.Configured(ctx)
	}
}

// groupConfig is what this sidecar is set to in a chat.
func (c *Cored) groupConfig(of loop.Chat) *group.Config {
	g, cfg, file := c.chats.group(of.ID), &c.cfg, map[string]bool{}
	base := group.Settings{Answer: group.Mode(inFile(file, "answer", present(g.AnswerMode), cmp.Or(cfg.Steer.AnswerMode, "all"))),
		DefaultBot: relay.AgentName(inFile(file, "default_bot", present(g.DefaultBot), "")),
		Limit:      inFile(file, "limit", g.MaxBotReplyDepth, cfg.Limits.MaxDepth),
		Threshold:  inFile(file, "threshold", g.BotReplyLLMThreshold, cfg.Limits.Threshold),
		Judge:      inFile(file, "judge", g.BotReplyLLMCheck, cfg.Limits.Check),
		Budget:     inFile(file, "budget", g.GroupBudget, cfg.Steer.Budget)}
	return &group.Config{Agent: cfg.Agent, Name: c.app.self().Name, MentionAll: cfg.MentionAll, AnyChat: !c.chats.enforced(),
		Base: base, File: file, Locked: g.Locked, MaxDepth: inFile(file, "", g.SteerMaxDepth, cfg.Steer.MaxDepth),
		SteerBy: cmp.Or(g.SteerBy, cfg.Steer.By), Commands: cfg.Steer.Commands,
		Notice: cmp.Or(g.StopNotice, cfg.Steer.StopNotice) != "off", Count: cfg.Limits.Count,
		GroupPolicy: cfg.groupPolicyFor(g), OnErrorAllow: cfg.Limits.OnErrorAllow, JudgeTimeout: c.limits().Timeout,
		Window: cmp.Or(cfg.Steer.ContinueWindow, time.Hour), MaxAge: cfg.MaxAge, ShareMessages: cfg.UserMessages}
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

// doorChannel is a door as a channel of the core.
type doorChannel struct{ delivery.Channel }

func (d doorChannel) Conn() uint64 {
	switch door := d.Channel.(type) {
	case streamDoor:
		return door.Connection()
	case *webhookDoor:
		return 1
	}
	panic("no such door")
}

func (d doorChannel) Pauses() (first, most time.Duration) {
	p := d.Channel.Pauses()
	return p.First, p.Most
}

func (d doorChannel) Write(ctx context.Context, in *core.Input, again bool, written func()) error {
	m := &delivery.Message{Inbound: in.Inbound, Again: again, Ref: delivery.Ref{ID: in.ID, Key: in.Key, Channel: in.Channel,
		Chat: in.ChatID}}
	var err error
	if door, ok := d.Channel.(streamDoor); ok {
		err = streamError(door.OfferOn(ctx, in.Conn, m.ID, m.Inbound, func(<-chan struct{}) { written() }))
	} else {
		err = d.Channel.Write(ctx, m, func(<-chan struct{}) { written() })
	}
	for _, x := range []struct {
		is error
		as deliver.Result
	}{{delivery.ErrRefused, deliver.Refused}, {delivery.ErrAccepted, deliver.Accepted},
		{delivery.ErrNotWritten, deliver.NotWritten}, {delivery.ErrEnded, deliver.Broken}} {
		if errors.Is(err, x.is) {
			return &core.ResultError{Result: x.as, Err: err}
		}
	}
	return err
}

// served is what the local API serves.
func (c *Cored) served() httpapi.Options {
	return httpapi.Options{Send: c.core.Say, Hear: c.hear, Decide: c.Decide, Status: func() any { return c.Status() },
		Ready:       c.Ready,
		Visible:     func(channel string, chat relay.ChatID) bool { return c.core.In(core.ChatOf(channel, chat)) },
		Transcripts: c.chats.transcript, Groups: coredGroups{c}, Stream: c.doors.stream, Deliveries: coredDeliveries{c},
		Events: c.events, Outcomes: coredOutcomes{c}, Depths: func(list []transcript.Entry) []int {
			tail := make([]policy.Entry, len(list))
			for i, e := range list {
				tail[i] = core.PolicyEntry(e)
			}
			return policy.Depths(tail, c.cfg.Limits.Count)
		}}
}

func (c *Cored) hear(ctx context.Context, h relay.Heard, steers bool) (relay.Sent, error) {
	sent, err := c.core.Hear(ctx, h, steers)
	if errors.Is(err, core.ErrSteers) {
		return sent, relay.Errorf(web.CodeAdminToken,
			"commands reported here need ADMIN_TOKEN, the token for people; API_TOKEN is the bot's")
	}
	return sent, err
}

// Decide answers POST /v1/decide: what the policy says of a message.
func (c *Cored) Decide(ctx context.Context, q relay.Question) (policy.Decision, error) {
	of := core.ChatOf(q.Channel, q.ChatID)
	m := &relay.Message{Channel: of.Channel, ChatID: of.ID, MessageID: q.MessageID, RelayMsgID: q.MessageID, Role: q.Role,
		SenderAgentName: q.SenderAgentName, SenderName: cmp.Or(q.SenderName, q.Sender), Content: q.Content,
		MsgType: cmp.Or(q.MsgType, "text"), Mentions: q.Mentions, ParentID: q.ParentID, RootID: q.RootID, ThreadID: q.ThreadID,
		TS: q.TS, UserTS: q.UserTS, Metadata: relay.Metadata{}}
	if entries, err := c.chats.transcript.Tail(of.Channel, string(of.ID), contextTail); err == nil {
		for _, e := range entries { // which knows more of it than the caller
			if q.MessageID != "" && e.MessageID == string(q.MessageID) && q.Role != relay.RoleUser {
				m.TS, m.UserTS, m.ParentID, m.RootID, m.ThreadID = relay.Millis(e.TS), relay.Millis(e.UserTS),
					relay.MessageID(e.ParentID), relay.MessageID(e.RootID), e.ThreadID
			}
		}
	}
	m.TS = cmp.Or(m.TS, relay.MillisOf(time.Now()))
	m.RelayMsgID = cmp.Or(m.RelayMsgID, "decide")
	e := group.Event{Kind: group.Arrived, At: time.Now(), Msg: m, Names: group.NamesOf(c.app.directory(), m)}
	if q.Role == relay.RoleUser {
		e.Kind, e.User = group.Heard, cmp.Or(q.SenderType, "user") == "user"
	}
	d, why, err := c.core.Decide(ctx, e)
	if err != nil {
		return policy.Decision{}, err
	}
	if q.Role == relay.RoleUser && why == relay.Pass {
		mentioned := c.app.addressed(q.Content, q.MsgType, q.Mentions)
		question, err := c.core.Question(of, policy.Entry{Role: policy.RoleUser, Sender: cmp.Or(q.Sender, q.SenderName),
			Content: q.Content, TS: int64(m.TS)}, mentioned)
		if err != nil {
			return policy.Decision{}, err
		}
		return policy.DecideUser(ctx, c.cfg.groupPolicyFor(c.chats.group(of.ID)), mentioned, c.limits(), question, c.judge), nil
	}
	if why != relay.Pass && d.Tier == "" {
		return policy.Decision{Tier: policy.TierSettings, Reason: string(why), Detail: steer.ReasonText(why, false),
			Depth: d.Depth}, nil
	}
	return d, nil
}

// Status tells how the sidecar is.
func (c *Cored) Status() Status {
	self, l := c.app.self(), c.cfg.Limits
	st := Status{Version: c.version, Started: relay.Timestamp(c.started), Backend: c.cfg.Backend,
		Identity: Identity{c.cfg.Agent, self.Name, self.OpenID, self.AppID}, Door: DoorStatus{Name: c.doors.current()},
		Queues: map[string]QueueStatus{}, Missing: c.chats.peers.missing(), Judge: "off",
		Members:  MembersStatus{c.cfg.MembershipCheck, c.chats.enforced()},
		LastHour: c.events.LastHour(), Errors: c.problems.list(),
		Limits: Limits{l.MaxDepth, l.Threshold, l.Check, c.cfg.depthCount(), c.cfg.GroupPolicy,
			relay.Millis(c.cfg.MaxAge.Milliseconds())},
		Settings: c.settings, Token: c.cfg.APIToken != "", Agents: []AgentStatus{}}
	c.core.View(func(s *loop.Core) {
		undelivered, _ := s.Bot().Counts()
		st.Waiting.Messages = undelivered.Items
		if undelivered.Items > 0 {
			st.Waiting.Oldest = relay.MillisOf(time.Now()) - undelivered.Oldest
		}
	})
	c.presence.online()
	if err := c.Ready(); err != nil {
		st.NotReady = err.Error()
	}
	st.Ready = st.NotReady == ""
	if c.doors.stream != nil {
		st.Door.Connected = new(c.doors.stream.Connected())
	}
	for _, name := range []string{outboundQueue, inboundQueue} {
		q := QueueStatus{Status: c.queues[name].Status(), Counted: counted(c.queues[name])}
		q.Outbox.Pending = int64(c.core.Lane(name))
		st.Queues[name] = q
	}
	switch {
	case !l.Check:
	case c.llm != nil:
		st.Judge = c.llm.State()
	default:
		st.Judge = "rules"
	}
	if err := c.chats.groups.Err(); err != nil {
		st.Groups = err.Error()
	}
	return st
}

// Ready returns nil when the backend is connected and being read, and the folders can be written.
func (c *Cored) Ready() error {
	var errs []error
	for _, name := range []string{outboundQueue, inboundQueue, marksQueue} {
		switch st := c.queues[name].Status(); {
		case !st.Connected:
			errs = append(errs, fmt.Errorf("%s queue: the %s backend does not answer: %s", name, c.cfg.Backend,
				cmp.Or(st.Error, "not yet connected")))
		case !st.Reading:
			errs = append(errs, fmt.Errorf("%s queue is not being read", name))
		}
	}
	return errors.Join(append(errs, c.probe.check())...)
}

// coredGroups is the groups as the API shows and changes them.
type coredGroups struct{ *Cored }

var errNoGroup = relay.Errorf("not_found", "the bot is not in this chat, or has no message of it")

func (c coredGroups) Groups() (out []steer.Group) {
	var chats []loop.Chat
	c.core.View(func(s *loop.Core) { chats = s.Chats() })
	for _, of := range chats {
		if g, err := c.Group(of.Channel, of.ID); err == nil && c.core.In(of) {
			out = append(out, g)
		}
	}
	return out
}

func (c coredGroups) Group(channel string, chat relay.ChatID) (g steer.Group, err error) {
	of := core.ChatOf(channel, chat)
	err = errNoGroup
	c.core.View(func(s *loop.Core) {
		if state := s.Group(of); state != nil {
			var data []byte
			if data, err = relay.Marshal(state.View(time.Now())); err == nil {
				err = json.Unmarshal(data, &g)
			}
		}
	})
	g.Channel, g.ChatID, g.Name = of.Channel, of.ID, c.chats.group(chat).Name
	return g, err
}

func (c coredGroups) change(channel string, chat relay.ChatID, verb group.Verb, body []byte) (steer.Group, error) {
	if err := c.core.Change(context.Background(), core.ChatOf(channel, chat), verb, body); err != nil {
		return steer.Group{}, err
	}
	return c.Group(channel, chat)
}

func (c coredGroups) Patch(channel string, chat relay.ChatID, body []byte) (steer.Group, error) {
	return c.change(channel, chat, "", body)
}

func (c coredGroups) Forget(channel string, chat relay.ChatID) (steer.Group, error) {
	return c.change(channel, chat, group.VerbForget, nil)
}

func (c coredGroups) Stop(channel string, chat relay.ChatID) (steer.Group, error) {
	return c.change(channel, chat, group.VerbStop, nil)
}

func (c coredGroups) Continue(channel string, chat relay.ChatID, _ []relay.AgentName) (steer.Group, error) {
	return c.change(channel, chat, group.VerbContinue, nil)
}

// coredOutcomes is what became of messages, from the chats' lines.
type coredOutcomes struct{ *Cored }

func (c coredOutcomes) Recent(_ context.Context, channel string, chat relay.ChatID, limit int) ([]outcome.Outcome, bool,
	error) {
	return c.core.Outcomes(core.ChatOf(channel, chat), limit), true, nil
}

func (coredOutcomes) Watch(func(outcome.Outcome)) (stop func()) { return func() {} }

// coredDeliveries is what the bot was given.
type coredDeliveries struct{ *Cored }

func (c coredDeliveries) InProgress() (out []httpapi.Delivery) {
	c.core.View(func(s *loop.Core) {
		for _, p := range s.Bot().InProgress() {
			of := loop.ChatOf(p.Chat)
			out = append(out, httpapi.Delivery{RelayMsgID: p.ID, Channel: of.Channel, ChatID: of.ID, Door: p.Channel,
				Since: relay.Timestamp(p.Since.Time())})
		}
	})
	return out
}

func (c coredDeliveries) Settle(ctx context.Context, id relay.MessageID, state, reason string) error {
	err := c.core.Settle(ctx, id, deliver.Result(state), reason)
	if c.doors.stream != nil && err == nil {
		switch deliver.Result(state) {
		case deliver.Delivered:
			c.doors.stream.Acknowledge(id)
		case deliver.Refused:
			c.doors.stream.Withdraw(id)
		}
	}
	if conflict, ok := errors.AsType[*deliver.ConflictError](err); ok {
		return &relay.Error{Code: relay.CodeSettled, Message: conflict.Error()}
	}
	if errors.Is(err, deliver.ErrUnknown) {
		return relay.Errorf(relay.CodeUnknownMessage,
			"this bot was not given a message %.200q; GET /v1/deliveries lists what is in progress", id)
	}
	return err
}

// These are what the core tells.

var _ core.Watch = (*Cored)(nil)

// Problem notes the error of a part.
func (c *Cored) Problem(part string, err error) { c.problems.set(part, err) }

// Retried counts what is tried again.
func (c *Cored) Retried(part string) { c.metrics.retried.WithLabelValues(part).Inc() }

// Read counts a line of a lane.
func (c *Cored) Read(lane string) { c.metrics.read(lane, time.Now()) }

// Malformed sets a line aside.
func (c *Cored) Malformed(line []byte, err error) {
	c.quarantine(line)
	c.log.Warn("a line of the relay cannot be read", keyErr, err)
}

// Arrived looks at a peer's message, before the stages.
func (c *Cored) Arrived(lane string, d *relay.Delivery, m *relay.Message) {
	if m.SenderAgentName == c.cfg.Agent {
		return
	}
	now := time.Now()
	p := &arrival{Delivery: *d, msg: *m, arrived: now, sent: c.chats.peers.sentAt(m, now)}
	p.final = min2(p.sent, now)
	c.chats.peers.saw(lane, m)
	c.metrics.arrived(lane, p)
}

func min2(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Said tells that the bot has said something.
func (c *Cored) Said(m *relay.Message) {
	c.metrics.sent.WithLabelValues("true").Inc()
	c.log.Info("sent", keyChat, m.ChatID, keyMsg, m.ID())
}

// Recorded shows watchers a message.
func (c *Cored) Recorded(m *relay.Message, e transcript.Entry, added bool) {
	c.metrics.recorded(e.Role, added)
	c.events.Publish(httpapi.Event{Type: httpapi.EventMessage, Channel: m.Channel, ChatID: m.ChatID,
		RelayMsgID: cmp.Or(editOf(m), m.ID()), Role: e.Role, Sender: e.Sender, SenderName: m.SenderName, Content: m.Content,
		ThreadID: m.ThreadID, ParentID: m.ParentID, RootID: m.RootID, TS: relay.Millis(e.TS),
		Own: m.SenderAgentName == c.cfg.Agent && m.Role != relay.RoleUser, Edited: e.EditOf != ""})
}

// Decided tells what the policy has decided.
func (c *Cored) Decided(m *relay.Message, d policy.Decision) {
	c.metrics.decided(d)
	c.events.Publish(httpapi.Event{Type: httpapi.EventDecision, Channel: m.Channel, ChatID: m.ChatID, RelayMsgID: m.ID(),
		Sender: string(m.SenderAgentName), Depth: d.Depth, Decision: d})
	c.log.Info("decision", keyAgent, c.cfg.Agent, keyChat, m.ChatID, keyMsg, m.ID(), keySender, m.SenderAgentName, "allow",
		d.Allow, "tier", d.Tier, keyReason, d.Reason, "detail", d.Detail, "depth", d.Depth, "judge_ms", d.JudgeMS)
}

// Stopped tells why a message ended.
func (c *Cored) Stopped(m *relay.Message, why relay.Reason, d *policy.Decision) {
	c.metrics.stopped.WithLabelValues(string(why)).Inc()
	e := httpapi.Event{Type: httpapi.EventStop, Channel: m.Channel, ChatID: m.ChatID, RelayMsgID: cmp.Or(m.RelayMsgID, m.ID()),
		Sender: string(m.SenderAgentName), Reason: why}
	level := slog.LevelInfo
	if d != nil {
		c.Decided(m, *d)
		e.Depth = d.Depth
	}
	switch {
	case d != nil, why == relay.OwnMessage, why == relay.Duplicate:
		level = slog.LevelDebug
	case why == relay.Malformed, why == relay.BadSignature:
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "stopped", keyReason, why, keyChat, m.ChatID, keyMsg, m.ID(), keySender,
		m.SenderAgentName)
	if why != relay.OwnMessage {
		c.events.Publish(e)
	}
}

// Shared is told each record of this sidecar.
func (c *Cored) Shared(loop.Chat, *group.Record) {}

// Ended tells what became of a delivery.
func (c *Cored) Ended(f *deliver.Effect) {
	of := loop.ChatOf(f.Chat)
	if f.Result == deliver.Delivered {
		c.away.Store(false)
		c.metrics.delivered(f.Channel, f.Sent.Time())
		c.events.Publish(httpapi.Event{Type: httpapi.EventDelivery, Channel: of.Channel, ChatID: of.ID, RelayMsgID: f.ID,
			Sender: string(f.From), Door: f.Channel})
		c.log.Info("delivered", keyChat, of.ID, keyMsg, f.ID, keySender, f.From, keyDoor, f.Channel)
		return
	}
	if c.doors.stream != nil {
		c.doors.stream.Withdraw(f.ID)
	}
	why := relay.Undeliverable
	switch f.Result {
	case deliver.Expired:
		why = relay.Expired
	case deliver.Withdrawn:
		why = f.Reason
	default:
		c.problems.set(stageInject, errors.New(f.Detail))
	}
	c.Stopped(&relay.Message{Channel: of.Channel, ChatID: of.ID, RelayMsgID: f.ID, SenderAgentName: f.From}, why, nil)
}

// Problems tells why a message is written again.
func (c *Cored) Problems(f *deliver.Effect) {
	c.problems.set(stageInject, errors.New(f.Detail))
	c.metrics.retried.WithLabelValues(stageInject).Inc()
	if !c.away.Swap(true) { // once an outage
		c.log.Warn("the bot does not accept messages; they wait", keyMsg, f.ID, keyErr, f.Detail)
	}
}

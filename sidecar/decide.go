package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/groups"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// How far back a chat is read for a decision: first the near tail, then eight
// times as much again and again while the count has no end within it. A count that is
// over the limit is exact up to enoughTail, and one that is not up to farTail; beyond,
// the depth is at least what is counted. The message that is answered is looked for up to enoughTail: one
// that nobody here knows may be a person's.
const (
	nearTail   = 8
	enoughTail = 512
	farTail    = 4096
)

// judgeLines is how many lines of the conversation the judge reads; they are
// looked for among the last judgeTail of the chat.
const (
	judgeLines = 12
	judgeTail  = 64
)

// decider is the stages of the policy: who is addressed, how deep a conversation is, and
// what the judge says.
type decider struct {
	*base
	chats   *chats
	records *records
	app     *app
	watch   *watch
	deliver *deliverer
	receive *receiver
	steer   *steering
	judge   policy.Judge
	llm     *judge.LLM // nil where the rules judge, or nobody
}

func newDecider(b *base, c *chats, rs *records, a *app, w *watch, dl *deliverer, r *receiver) (*decider, error) {
	d := &decider{base: b, chats: c, records: rs, app: a, watch: w, deliver: dl, receive: r}
	return d, d.openJudge()
}

// depth counts m's depth in the chat as it was at m's time, from the end of the
// transcript. What came later is left out by the transcript rather than here: for a
// sidecar that is behind it would be all that is read, and nothing be counted.
func (c *chats) depth(w where, m policy.Entry, limits policy.Limits) (depth int, err error) {
	on, _ := c.wentOn(w.channel, w.chat, m.ThreadID)
	if at := int64(on.TS); at > 0 && at < m.TS && !c.spokeSince(w, &m, on.TS) {
		m.UserTS = max(m.UserTS, at)
	}
	for n := nearTail; n <= farTail; n *= 8 {
		entries, err := c.transcript.Outline(w.channel, string(w.chat), n, m.TS)
		if err != nil {
			return 0, err
		}
		tail := make([]policy.Entry, len(entries))
		for i, e := range entries {
			tail[i] = policyEntry(e)
			tail[i].Recalled = e.Recalled || c.recalls.has(w.channel, w.chat, relay.MessageID(e.MessageID))
		}
		var ended bool
		depth, ended = policy.CountBack(tail, m, limits.Count)
		ended = ended && (n >= enoughTail || m.ParentID == "" || holds(entries, m.ParentID))
		if len(entries) < n || ended || depth >= limits.MaxDepth && n >= enoughTail {
			break
		}
	}
	return depth, nil
}

// spokeSince reports whether a person spoke in m's conversation after a time, at which its bots went
// on: then that is where the count begins.
func (c *chats) spokeSince(w where, m *policy.Entry, since relay.Millis) bool {
	spoke, err := c.lastUser(w.channel, w.chat, m.ThreadID, relay.Millis(m.TS))
	return err == nil && spoke > since
}

// inTime orders the end of a transcript by ts. The file has the order of
// arrival, and what people say arrives by another queue than what bots say.
func inTime(entries []transcript.Entry) {
	slices.SortStableFunc(entries, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
}

func holds(entries []transcript.Entry, id string) bool {
	return slices.ContainsFunc(entries, func(e transcript.Entry) bool { return e.MessageID == id })
}

// rulesWithin is the time limit of the rules. They only compute, so on a machine that is busy they
// are slow and never away, and the limit of a model must not stop what they would pass.
const rulesWithin = time.Hour

// limits are the numbers of the stop policy in a group.
func (d *decider) limits(w where) policy.Limits {
	l := d.records.limits(w.channel, w.chat)
	if d.llm == nil {
		l.Timeout = rulesWithin
	}
	return l
}

// decideBot says whether m, a bot's message, goes to this bot. What the judge
// reads is only gathered where it is asked.
func (d *decider) decideBot(ctx context.Context, w where, m policy.Entry) (policy.Decision, error) {
	limits := d.limits(w)
	depth, err := d.chats.depth(w, m, limits)
	if err != nil {
		return policy.Decision{}, err
	}
	var q policy.Question
	if limits.Check && depth > limits.Threshold && depth < limits.MaxDepth {
		if q, err = d.question(w, m); err != nil {
			return policy.Decision{}, err
		}
	}
	return policy.Decide(ctx, limits, depth, q, d.judge), nil
}

// where is the place of a message that is decided on.
type where struct {
	channel   string
	chat      relay.ChatID
	group     groups.Group
	mentioned bool
}

// question is what the judge is asked about m, with the lines before it in its
// conversation.
func (d *decider) question(w where, m policy.Entry) (policy.Question, error) {
	entries, err := d.chats.transcript.TailTo(w.channel, string(w.chat), judgeTail, m.TS)
	if err != nil {
		return policy.Question{}, err
	}
	inTime(entries)
	var before []policy.Entry
	for _, e := range entries {
		if e.MessageID != m.MessageID && e.ThreadID == m.ThreadID && !e.Recalled &&
			!d.chats.recalls.has(w.channel, w.chat, relay.MessageID(e.MessageID)) {
			before = append(before, policyEntry(e))
		}
	}
	return policy.Question{Transcript: before[max(0, len(before)-judgeLines):], Message: m,
		AgentName: string(d.cfg.Agent),
		AgentRole: d.cfg.Role, BotName: d.app.self().Name, Mentioned: w.mentioned}, nil
}

// Decide answers POST /v1/decide: what the policy says of a message. Nothing is
// written or injected.
func (d *decider) Decide(ctx context.Context, q relay.Question) (policy.Decision, error) {
	w := where{orDefault(q.Channel), q.ChatID, d.chats.group(q.ChatID), d.app.addressed(q.Content, q.MsgType, q.Mentions)}
	m, err := d.asked(w, q)
	if err != nil {
		return policy.Decision{}, err
	}
	if q.Role == relay.RoleUser {
		m.Role, m.Sender = policy.RoleUser, cmp.Or(q.Sender, q.SenderName)
	}
	why, err := d.steer.wouldStop(w, q, m)
	if err != nil {
		return policy.Decision{}, err
	}
	if why != relay.Pass {
		return d.steeredAway(w, q, m, why)
	}
	if q.Role == relay.RoleUser {
		question, err := d.question(w, m)
		if err != nil {
			return policy.Decision{}, err
		}
		return policy.DecideUser(ctx, d.cfg.groupPolicyFor(w.group), w.mentioned, d.limits(w), question, d.judge), nil
	}
	return d.decideBot(ctx, w, m)
}

// steeredAway is the decision on a message that the group's settings keep from this bot.
func (d *decider) steeredAway(w where, q relay.Question, m policy.Entry, why relay.Reason) (policy.Decision, error) {
	decision := policy.Decision{Tier: policy.TierSettings, Reason: string(why), Detail: steer.ReasonText(why, false)}
	if q.Role == relay.RoleUser {
		return decision, nil
	}
	depth, err := d.chats.depth(w, m, d.records.limits(w.channel, w.chat))
	decision.Depth = depth
	return decision, err
}

// asked is the message that q is about: as the transcript has it, which knows
// more of it than the caller, else as it would stand there if it came now.
func (d *decider) asked(w where, q relay.Question) (policy.Entry, error) {
	m := policy.Entry{Role: policy.RoleAssistant, Sender: string(q.SenderAgentName), SenderName: q.SenderName,
		MessageID: string(q.MessageID), ParentID: string(q.ParentID), RootID: string(q.RootID), ThreadID: q.ThreadID, PartOf: partOf(q.Metadata),
		Content: q.Content, TS: int64(q.TS), UserTS: int64(q.UserTS)}
	entries, err := d.chats.transcript.Tail(w.channel, string(w.chat), contextTail)
	if err != nil {
		return m, err
	}
	newest := time.Now().UnixMilli()
	for _, e := range entries {
		if m.MessageID != "" && e.MessageID == m.MessageID && q.Role != relay.RoleUser {
			return policyEntry(e), nil
		}
		newest = max(newest, e.TS) // a clock there may be ahead of ours
	}
	if m.TS == 0 {
		m.TS = newest
	}
	return m, nil
}

func policyEntry(e transcript.Entry) policy.Entry {
	return policy.Entry{Role: e.Role, Sender: e.Sender, SenderName: e.SenderName,
		MessageID: cmp.Or(e.EditOf, e.MessageID),
		ParentID:  e.ParentID, RootID: e.RootID, ThreadID: e.ThreadID, PartOf: e.PartOf, Content: e.Content,
		TS: e.TS, UserTS: e.UserTS, FinalTS: e.FinalTS, Recalled: e.Recalled}
}

func entryOf(m *relay.Message, sent time.Time) transcript.Entry {
	role, sender := relay.RoleAssistant, cmp.Or(string(m.SenderAgentName), string(m.SenderBotOpenID))
	if m.Role == relay.RoleUser {
		role, sender = m.Role, cmp.Or(m.SenderName, string(m.SenderID), "user")
	}
	var final int64
	if at := m.Final(); at > m.TS {
		final = min(int64(at), time.Now().UnixMilli()) // what follows a time to come would be a piece of it
	}
	return transcript.Entry{Role: role, Files: m.Metadata.Files(), Content: m.Content, Sender: sender,
		MessageID: string(m.ID()), TS: sent.UnixMilli(), FinalTS: final,
		SenderName: m.SenderName, ThreadID: m.ThreadID, ParentID: string(m.ParentID), RootID: string(m.RootID),
		UserTS: int64(m.UserTS), MsgType: m.MsgType, PartOf: partOf(m.Metadata), EditOf: string(editOf(m))}
}

// metaPartOf names, in the metadata of each further message of one send, the first one.
const metaPartOf = "part_of"

func partOf(meta relay.Metadata) string {
	id := meta.Text(metaPartOf)
	if relay.CheckID(id) != nil {
		return ""
	}
	return id
}

func orDefault(channel string) string { return cmp.Or(channel, relay.DefaultChannel) }

// noteMentions finds out whether a person addresses this bot; it gets the
// message either way.
func (d *decider) noteMentions(ctx context.Context, p *arrival) (relay.Reason, error) {
	d.app.selfAsked(ctx)
	p.mentioned = d.app.addressed(p.msg.Content, p.msg.MsgType, p.msg.Mentions)
	return relay.Pass, nil
}

// decideEdit lets an edit through to a bot that was given the message: the policy has
// decided on that, and the depth is the same. A message that still waits for the bot
// has the new text. For other bots it is only recorded.
func (d *decider) decideEdit(w where, p *arrival) (relay.Reason, error) {
	of := string(editOf(&p.msg))
	if e, ok := d.chats.edits.Get(of); ok && e.applied.Load() {
		return relay.Duplicate, nil // the bot is given the message with this text
	}
	d.steer.held.edit(of, &p.msg)
	given := d.deliver.given.has(givenBy(p.msg.SenderAgentName, of)) || d.deliver.given.has(givenBy("", of))
	if !given && !d.receive.inFlight.has(of) {
		return relay.Duplicate, nil
	}
	depth, err := d.chats.depth(w, policyEntry(entryOf(&p.msg, p.sent)), d.records.limits(w.channel, w.chat))
	if err != nil {
		return relay.Pass, err
	}
	p.decision = policy.Decision{Allow: true, Depth: depth, Tier: policy.TierThreshold,
		Reason: "an edit of a message that this bot was given"}
	return relay.Pass, nil
}

// stopOld stops what was older than RELAY_MAX_AGE when it came, and what no
// delivery channel was open for that long. Time spent behind earlier messages of
// the chat does not count.
func (d *decider) stopOld(_ context.Context, p *arrival) (relay.Reason, error) {
	if p.History || !p.behind && (p.arrived.Sub(p.final) > d.cfg.MaxAge || d.deliver.deliveries.Expired(p.final)) {
		return relay.Expired, nil
	}
	return relay.Pass, nil
}

// readMentions finds out whether the message addresses this bot. What the
// sender's metadata says of that is not believed.
func (d *decider) readMentions(ctx context.Context, p *arrival) (relay.Reason, error) {
	d.app.selfAsked(ctx)
	p.mentioned = d.app.addressed(p.msg.Content, p.msg.MsgType, p.msg.Mentions)
	if !p.mentioned && editOf(&p.msg) == "" && d.cfg.groupPolicyFor(p.group) == "mention" {
		return relay.NotMentioned, nil
	}
	return relay.Pass, nil
}

func (d *decider) askPolicy(ctx context.Context, p *arrival) (relay.Reason, error) {
	w := where{p.msg.Channel, p.msg.ChatID, p.group, p.mentioned}
	if editOf(&p.msg) != "" {
		return d.decideEdit(w, p)
	}
	var err error
	if p.decision, err = d.decideBot(ctx, w, policyEntry(entryOf(&p.msg, p.sent))); err != nil {
		return relay.Pass, err
	}
	if ctx.Err() != nil {
		return relay.Pass, ctx.Err()
	}
	d.metrics.decided(p.decision)
	d.watch.noteDecided(p)
	d.watch.events.Publish(httpapi.Event{Type: httpapi.EventDecision, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
		RelayMsgID: p.msg.RelayMsgID, Sender: string(p.msg.SenderAgentName), Depth: p.decision.Depth, Decision: p.decision})
	d.log.Info("decision", keyAgent, d.cfg.Agent, keyChat, p.msg.ChatID, keyMsg, p.key, keySender,
		p.msg.SenderAgentName,
		"allow", p.decision.Allow, "tier", p.decision.Tier, keyReason, p.decision.Reason, "detail", p.decision.Detail,
		"depth", p.decision.Depth, "judge_ms", p.decision.JudgeMS, "mentioned", p.mentioned)
	if p.decision.Allow {
		return relay.Pass, nil
	}
	why := relay.Reason(p.decision.Reason)
	if releasable(why) {
		d.steer.stopSeen(p, why)
	}
	return why, nil
}

// depthsShown counts each of some entries of a chat, 0 for a person's, as a
// decision counts it that knows of the chat what they tell. No group counts
// otherwise than the others.
func (d *decider) depthsShown(entries []transcript.Entry) []int {
	tail := make([]policy.Entry, len(entries))
	for i, e := range entries {
		tail[i] = policyEntry(e)
	}
	return policy.Depths(tail, d.cfg.Limits.Count)
}

func (d *decider) openJudge() error {
	if d.cfg.Judge.APIKey == "" { // also where it is off: a group may switch it on
		if d.judge = (countedJudge{judge.Rules{}, d.metrics}); d.cfg.Limits.Check {
			d.log.Info("no OPENAI_API_KEY: the built-in rules judge between threshold and hard limit")
		}
		return nil
	}
	llm, err := judge.New(judge.Options{APIKey: string(d.cfg.Judge.APIKey), BaseURL: d.cfg.Judge.BaseURL,
		Model: d.cfg.Judge.Model, Timeout: d.cfg.Limits.Timeout, Logger: d.log})
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	d.judge, d.llm = countedJudge{llm, d.metrics}, llm
	return nil
}

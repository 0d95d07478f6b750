package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/internal/groups"
	"feishu-relay/mention"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Keys of log attributes.
const (
	keyChat   = "chat"
	keyMsg    = "msg_id" // not "msg": that is the log line's own text
	keySender = "sender" // the other bot, as it is called on the relay
	keyAgent  = "agent"  // this one
	keyStage  = "stage"
	keyReason = "reason"
	keyDoor   = "door"
	keyErr    = "err"
)

// stageSignature verifies signatures.
const stageSignature = "signature"

// stagePolicy is the stage that logs its verdict itself, a pass and a stop alike.
const stagePolicy = "policy"

// passage is one message on its way, and what the stages know of it.
type passage struct {
	relay.Delivery
	msg     relay.Message
	key     string // of dedup
	arrived time.Time
	staged  time.Time // when the stage that it is in began
	sent    time.Time // ts, as far as it is believed
	final   time.Time // when its text was final; its age counts from here
	group   groups.Group

	inChat    bool // it is in its chat's own order now, where a stage may take its time
	unwritten bool // it is counted among those of its chat that the transcript lacks
	mentioned bool
	decision  policy.Decision
	claim     claim
	cause     error            // why it was stopped, where the reason does not say all
	outcome   *outcome.Outcome // as far as it was told; nil: nothing yet
	handed    bool             // its delivery has begun, and ends it
	kept      bool             // its delivery has put it on disk: the queue may forget it
	behind    bool             // it waited, before a restart, behind a message that the bot still has
}

// claim is what a message holds of its key in dedup.
type claim int

const (
	claimNone claim = iota
	claimHeld
	claimEnded
)

// way is the stages behind the backend. Those of arrive are gone through in the
// order of the queue, so that the transcript is up to date at once; those of
// decide in the order of the chat, side by side with other chats, since a judge
// may think and a bot may be away.
type way struct {
	queue  string
	arrive relay.Pipeline[*passage]
	decide relay.Pipeline[*passage]
}

// botsWay is the way of another bot's message.
func (s *Sidecar) botsWay() way {
	return way{
		queue: outboundQueue,
		arrive: relay.Pipeline[*passage]{
			{Name: stageSignature, Apply: s.checkSignature},
			{Name: "role", Apply: s.stopRole(isPerson)},
			{Name: ownStage, Apply: s.stopOwn},
			{Name: "member", Apply: s.stopOtherChats},
			{Name: "dedup", Apply: s.stopRepeats},
			{Name: "transcript", Apply: s.record},
		},
		decide: relay.Pipeline[*passage]{
			{Name: "age", Apply: s.stopOld},
			{Name: "mention", Apply: s.readMentions},
			{Name: stagePolicy, Apply: s.askPolicy},
			{Name: "inject", Apply: s.inject},
		},
	}
}

// usersWay is the way of a person's message that another bot heard: it is for
// the transcript alone.
func (s *Sidecar) usersWay() way {
	return way{queue: inboundQueue, arrive: relay.Pipeline[*passage]{
		{Name: stageSignature, Apply: s.checkSignature},
		{Name: "role", Apply: s.stopRole(isBot)},
		{Name: ownStage, Apply: s.stopOwn},
		{Name: "member", Apply: s.stopOtherChats},
		{Name: "transcript", Apply: s.recordUser},
	}}
}

// receive takes a line from a backend along its way.
func (s *Sidecar) receive(ctx context.Context, w way, d relay.Delivery) {
	p := newPassage(d)
	s.guard(p, func() { s.handle(ctx, w, p) })
}

func newPassage(d relay.Delivery) *passage {
	d.Settle = sync.OnceFunc(d.Settle)
	return &passage{Delivery: d, arrived: time.Now()}
}

func (s *Sidecar) handle(ctx context.Context, w way, p *passage) {
	s.metrics.read(w.queue, p.arrived)
	var err error
	if p.msg, err = relay.Decode(p.Line); err != nil {
		s.quarantine(p.Line)
		p.cause = err
		s.stopped(p, "decode", relay.Malformed)
		p.Settle()
		return
	}
	if w.queue == nativeQueue {
		s.named(&p.msg)
	} else {
		delete(p.msg.Metadata, metaNative) // ours, and not another's to say
	}
	p.key = string(p.msg.ID())
	p.sent = s.peers.sentAt(&p.msg, p.arrived)
	p.final = s.finalAt(p)
	p.group = s.groups.Current().Groups[string(p.msg.ChatID)]
	stage, why, err := s.apply(ctx, w.arrive, p)
	own := why == relay.OwnMessage || err != nil && stage == ownStage
	if why != relay.BadSignature && !own {
		s.peers.saw(w.queue, &p.msg)
		s.metrics.arrived(w.queue, p)
		if s.native != nil && w.queue == outboundQueue {
			s.native.copies.came(p.key, p.msg.SenderAgentName)
		}
	}
	rest := w.decide
	switch {
	case err != nil:
		s.retrying(stage, p, err)
		rest = slices.Concat(from(w.arrive, stage), w.decide)
		p.unwritten = true
		s.unwritten.add(p.chat())
	case why != relay.Pass, len(rest) == 0:
		s.end(p, stage, why)
		return
	}
	p.inChat, p.behind = true, s.deliveries.Waited(p.msg.Channel, p.msg.ChatID, p.final)
	s.chats.do(ctx, p.chat(), func(ctx context.Context) {
		s.guard(p, func() {
			stage, why, err := s.walk(ctx, rest, p)
			if err != nil { // we are stopping; the line is read again after the restart
				s.endClaim(p, false)
				return
			}
			if !p.handed {
				s.end(p, stage, why)
			}
		})
	})
}

func (p *passage) chat() string { return chatKey(p.msg.Channel, p.msg.ChatID) }

// end settles p, which came to the end of its way or was stopped.
func (s *Sidecar) end(p *passage, stage string, why relay.Reason) {
	s.written(p)
	held := p.claim != claimNone
	s.endClaim(p, true)
	if why != relay.Pass {
		s.stopped(p, stage, why)
	}
	if why == relay.Duplicate && !held && s.inFlight.follow(p.key, p.Settle) || p.kept {
		return
	}
	p.Settle()
	if held {
		s.inFlight.end(p.key)
	}
}

func (s *Sidecar) checkSignature(_ context.Context, p *passage) (relay.Reason, error) {
	if s.cfg.RelaySecret == "" {
		return relay.Pass, nil
	}
	if p.cause = relay.Verify(p.Line, string(s.cfg.RelaySecret)); p.cause == nil {
		return relay.Pass, nil
	}
	s.problems.set(stageSignature, fmt.Errorf("message from %.100q: %w; set the same RELAY_SECRET at all sidecars, "+
		"or find out who else writes to the relay", p.msg.SenderAgentName, p.cause))
	return relay.BadSignature, nil
}

// stopRole keeps a message off a queue that it does not belong on: a bot's that
// passed for a person's would end the count of depth, and bots could talk for
// ever; a person's is not to be decided on as a bot's.
func (s *Sidecar) stopRole(is func(role string) bool) func(context.Context, *passage) (relay.Reason, error) {
	return func(_ context.Context, p *passage) (relay.Reason, error) {
		if is(p.msg.Role) {
			return relay.Malformed, nil
		}
		return relay.Pass, nil
	}
}

func isPerson(role string) bool { return role == relay.RoleUser }
func isBot(role string) bool    { return role != relay.RoleUser }

// ownStage is the name of [Sidecar.stopOwn], which fails only for own messages.
const ownStage = "own"

// stopOwn stops what this sidecar sent itself, once it is sure that it stands in
// the transcript: the disk may have been full when it was sent.
func (s *Sidecar) stopOwn(_ context.Context, p *passage) (relay.Reason, error) {
	m, self := &p.msg, s.self()
	if m.SenderAgentName != s.cfg.Agent &&
		(self.OpenID == "" || m.SenderBotOpenID != self.OpenID) &&
		(self.AppID == "" || m.SenderAppID != self.AppID) {
		return relay.Pass, nil
	}
	if !ofGroup(m.Metadata) || !s.members.in(m.Channel, m.ChatID) {
		return relay.OwnMessage, nil // a foreign program's, which sends in this bot's name
	}
	entry := botEntry(m, p.sent)
	if m.Role == relay.RoleUser {
		entry = userEntry(m, p.sent)
	}
	if _, why, err := s.write(p, entry); why != relay.Pass || err != nil {
		return why, err
	}
	return relay.OwnMessage, nil
}

// stopOtherChats stops what was said where the bot is not. Feishu, where it has
// to be asked, is asked in the chat's own time.
func (s *Sidecar) stopOtherChats(ctx context.Context, p *passage) (relay.Reason, error) {
	if !ofGroup(p.msg.Metadata) {
		return relay.NotAMember, nil
	}
	in := s.members.in(p.msg.Channel, p.msg.ChatID)
	if !in && !s.members.settled(p.msg.Channel, p.msg.ChatID) {
		if !p.inChat {
			return relay.Pass, errUndecided
		}
		var err error
		if in, err = s.askMembership(ctx, p.msg.ChatID); err != nil {
			return relay.Pass, err
		}
	}
	if !in {
		return relay.NotAMember, nil
	}
	return relay.Pass, nil
}

func (s *Sidecar) stopRepeats(_ context.Context, p *passage) (relay.Reason, error) {
	if s.deliveries.Has(p.key) || s.dedup.Claim(p.key) != dedup.New {
		return relay.Duplicate, nil
	}
	p.claim = claimHeld
	s.inFlight.begin(p.key)
	s.trace("claimed")
	return relay.Pass, nil
}

// endClaim ends the claim of stopRepeats.
func (s *Sidecar) endClaim(p *passage, handled bool) {
	if p.claim != claimHeld {
		return
	}
	p.claim = claimEnded
	if err := s.dedup.Settle(p.key, handled); err != nil {
		s.problems.set("dedup", err)
	}
}

// unwrittenError is the error of a stage that could not write the transcript. The
// message is kept until it can, however long that takes.
type unwrittenError struct{ error }

func (u *unwrittenError) Unwrap() error { return u.error }

// write writes p's entry into the transcript. In the order of the queue it waits
// neither for a process that is paused with the transcript's lock nor for p's
// elders in the chat: both are for the chat's own order.
func (s *Sidecar) write(p *passage, e transcript.Entry) (added bool, why relay.Reason, err error) {
	add := s.transcript.Append
	if !p.inChat {
		add = s.transcript.TryAppend
		if s.unwritten.any(p.chat()) {
			return false, relay.Pass, &unwrittenError{transcript.ErrBusy}
		}
	}
	added, err = add(p.msg.Channel, string(p.msg.ChatID), e)
	switch {
	case errors.Is(err, transcript.ErrEntry):
		s.quarantine(p.Line)
		return false, relay.Malformed, nil
	case err != nil:
		return false, relay.Pass, &unwrittenError{err}
	}
	s.written(p)
	return added, relay.Pass, nil
}

// written counts p no more among the messages that the transcript lacks.
func (s *Sidecar) written(p *passage) {
	if p.unwritten {
		p.unwritten = false
		s.unwritten.remove(p.chat())
	}
}

func (s *Sidecar) record(_ context.Context, p *passage) (relay.Reason, error) {
	entry := botEntry(&p.msg, p.sent)
	if entry.EditOf != "" { // of a message that may be missing here, as what came before the first start
		first := entry
		first.MessageID, first.EditOf = entry.EditOf, ""
		if _, why, err := s.write(p, first); why != relay.Pass || err != nil {
			return why, err
		}
	}
	added, why, err := s.write(p, entry)
	if why != relay.Pass || err != nil {
		return why, err
	}
	s.met(&p.msg)
	s.spoke(&p.msg, p.sent)
	s.shown(&p.msg, p.sent, relay.RoleAssistant, false)
	s.metrics.recorded(relay.RoleAssistant, added)
	s.trace("noted")
	return relay.Pass, nil
}

func (s *Sidecar) recordUser(_ context.Context, p *passage) (relay.Reason, error) {
	added, why, err := s.write(p, userEntry(&p.msg, p.sent))
	if why != relay.Pass || err != nil {
		return why, err
	}
	s.spoke(&p.msg, p.sent)
	s.shown(&p.msg, p.sent, relay.RoleUser, false)
	s.metrics.recorded(relay.RoleUser, added)
	return relay.Pass, nil
}

// stopOld stops what was older than RELAY_MAX_AGE when it came, and what no
// delivery channel was open for that long. Time spent behind earlier messages of
// the chat does not count.
func (s *Sidecar) stopOld(_ context.Context, p *passage) (relay.Reason, error) {
	if p.History || !p.behind && (p.arrived.Sub(p.final) > s.cfg.MaxAge || s.deliveries.Expired(p.final)) {
		return relay.Expired, nil
	}
	return relay.Pass, nil
}

// finalAt is when p's text was final, believed as far as a ts.
func (s *Sidecar) finalAt(p *passage) time.Time {
	at := p.msg.Final()
	if p.msg.Role == relay.RoleUser || at == p.msg.TS {
		return p.sent
	}
	return s.peers.sentAt(&relay.Message{TS: at, SenderAgentName: p.msg.SenderAgentName}, time.Now())
}

// readMentions finds out whether the message addresses this bot. What the
// sender's metadata says of that is not believed.
func (s *Sidecar) readMentions(ctx context.Context, p *passage) (relay.Reason, error) {
	s.selfAsked(ctx)
	p.mentioned = s.addressed(p.msg.Content, p.msg.MsgType, p.msg.Mentions)
	if !p.mentioned && editOf(&p.msg) == "" && s.cfg.groupPolicyFor(p.group) == "mention" {
		return relay.NotMentioned, nil
	}
	return relay.Pass, nil
}

// addressed reports whether a text, or what its sender resolved in it, names
// this bot.
func (s *Sidecar) addressed(content, msgType string, mentions []relay.Mention) bool {
	refs := make([]mention.Ref, len(mentions))
	for i, m := range mentions {
		refs[i] = mention.Ref{Key: m.Key, Name: m.Name, OpenID: string(m.OpenID), AgentName: string(m.AgentName)}
	}
	found := s.directory().Find(mention.Text{Content: content, MsgType: msgType, Refs: refs})
	if found.All && s.cfg.MentionAll {
		return true
	}
	return slices.Contains(found.Agents, string(s.cfg.Agent))
}

func (s *Sidecar) askPolicy(ctx context.Context, p *passage) (relay.Reason, error) {
	w := where{p.msg.Channel, p.msg.ChatID, p.group, p.mentioned}
	if editOf(&p.msg) != "" {
		return s.decideEdit(w, p)
	}
	var err error
	if p.decision, err = s.decideBot(ctx, w, policyEntry(botEntry(&p.msg, p.sent))); err != nil {
		return relay.Pass, err
	}
	if ctx.Err() != nil {
		return relay.Pass, ctx.Err()
	}
	s.metrics.decided(p.decision)
	s.noteDecided(p)
	s.events.Publish(httpapi.Event{Type: httpapi.EventDecision, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
		RelayMsgID: p.msg.RelayMsgID, Sender: string(p.msg.SenderAgentName), Depth: p.decision.Depth, Decision: p.decision})
	s.log.Info("decision", keyAgent, s.cfg.Agent, keyChat, p.msg.ChatID, keyMsg, p.key, keySender, p.msg.SenderAgentName,
		"allow", p.decision.Allow, "tier", p.decision.Tier, keyReason, p.decision.Reason, "detail", p.decision.Detail,
		"depth", p.decision.Depth, "judge_ms", p.decision.JudgeMS, "mentioned", p.mentioned)
	if !p.decision.Allow {
		return relay.Reason(p.decision.Reason), nil
	}
	return relay.Pass, nil
}

// ofGroup reports whether metadata says, or does not deny, that a message is a
// group's.
func ofGroup(meta relay.Metadata) bool {
	raw, ok := meta["chat_type"]
	if !ok {
		return true
	}
	if string(raw) == `"group"` {
		return true // as every sidecar writes it
	}
	var chatType string
	return json.Unmarshal(raw, &chatType) == nil && isGroup(chatType)
}

func isGroup(chatType string) bool {
	return chatType == "" || chatType == "group" || chatType == "topic"
}

func chatKey(channel string, chat relay.ChatID) string { return channel + "/" + string(chat) }

// topicKey is chatKey of a chat's topic; "" is the chat itself.
func topicKey(channel string, chat relay.ChatID, thread string) string {
	return chatKey(channel, chat) + "/" + thread
}

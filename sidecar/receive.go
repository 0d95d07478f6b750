package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/wait"
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

// stagePolicy is the stage that logs its verdict itself, a pass and a stop alike.
const stagePolicy = "policy"

// arrival is a message from a queue, and what the stages know of it.
type arrival struct {
	relay.Delivery
	msg     relay.Message
	key     string // of dedup
	arrived time.Time
	staged  time.Time // when the stage that it is in began
	sent    time.Time // ts, as far as it is believed
	final   time.Time // when its text was final; its age counts from here
	group   groups.Group

	inChatKey string      // chatKey, once it was asked for
	inChat    bool        // it is in its chat's own order now, where a stage may take its time
	unwritten *chatCounts // it is counted among those of its chat that the transcript lacks; nil: it is not
	mentioned bool
	bots      []relay.AgentName // of which exactly one gets it
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

// path is the stages behind a queue. Those of arrive are gone through in the
// order of the queue, so that the transcript is up to date at once; those of
// decide in the order of the chat, side by side with other chats, since a judge
// may think and a bot may be away.
type path struct {
	queue  string
	arrive relay.Pipeline[*arrival]
	decide relay.Pipeline[*arrival]
}

// receiver takes lines from the queues through the stages.
type receiver struct {
	*base
	chats       *chats
	app         *app
	watch       *watch
	deliver     *deliverer
	bots, users path
	workers     *workers
	dedup       *dedup.Window // other bots' messages
	inFlight    inFlight
	unwritten   chatCounts // messages that wait for their transcript
	copies      *copies    // of what Feishu delivers itself, too
}

func openReceiver(b *base, c *chats, a *app, w *watch, d *deliverer) (_ *receiver, err error) {
	r := &receiver{base: b, chats: c, app: a, watch: w, deliver: d, workers: newWorkers(), copies: newCopies(),
		inFlight: inFlight{settle: map[string][]func(){}}, unwritten: chatCounts{counts: map[string]int{}}}
	r.dedup, err = b.window(".jsonl", b.cfg.DedupSize)
	return r, err
}

// take takes a line of a queue through the stages.
func (r *receiver) take(ctx context.Context, along path, d relay.Delivery) {
	p := newArrival(d)
	r.guard(p, func() {
		if r.decode(along.queue, p) {
			r.handle(ctx, along, p)
		}
	})
}

func newArrival(d relay.Delivery) *arrival {
	return &arrival{Delivery: d, arrived: time.Now()}
}

// decode reads p's line; false: it was none, and is done with.
func (r *receiver) decode(queue string, p *arrival) bool {
	r.metrics.read(queue, p.arrived)
	var err error
	if p.msg, err = relay.Decode(p.Line); err != nil {
		r.quarantine(p.Line)
		p.cause = err
		r.watch.stopped(p, "decode", relay.Malformed)
		p.Settle()
	}
	return err == nil
}

// handle takes p, which is decoded, through the stages.
func (r *receiver) handle(ctx context.Context, along path, p *arrival) {
	if along.queue == nativeQueue {
		r.app.named(&p.msg)
	} else {
		delete(p.msg.Metadata, metaNative) // ours, and not another's to say
	}
	p.key = string(p.msg.ID())
	p.sent = r.chats.peers.sentAt(&p.msg, p.arrived)
	p.final = r.finalAt(p)
	p.group = r.chats.group(p.msg.ChatID)
	stage, why, err := r.apply(ctx, along.arrive, p)
	own := why == relay.OwnMessage || err != nil && stage == ownStage
	if why != relay.BadSignature && !own {
		r.chats.peers.saw(along.queue, &p.msg)
		r.metrics.arrived(along.queue, p)
		if along.queue == outboundQueue {
			r.copies.came(p.key, p.msg.SenderAgentName)
		}
	}
	rest := along.decide
	switch {
	case err != nil:
		r.retrying(stage, p, err)
		rest = slices.Concat(from(along.arrive, stage), along.decide)
		p.unwritten = &r.unwritten
		r.unwritten.add(p.chat())
	case why != relay.Pass, len(rest) == 0:
		r.end(p, stage, why)
		return
	}
	p.inChat, p.behind = true, r.deliver.deliveries.Waited(p.msg.Channel, p.msg.ChatID, p.final)
	r.workers.do(ctx, p.chat(), func(ctx context.Context) {
		r.guard(p, func() {
			stage, why, err := r.walk(ctx, rest, p)
			if err != nil { // we are stopping; the line is read again after the restart
				r.endClaim(p, false)
				return
			}
			if !p.handed {
				r.end(p, stage, why)
			}
		})
	})
}

// written counts p no more among the messages that the transcript lacks.
func (p *arrival) written() {
	if p.unwritten != nil {
		p.unwritten.remove(p.chat())
		p.unwritten = nil
	}
}

// line is p's line, or one that says the same.
func (p *arrival) line() []byte {
	if p.Line != nil {
		return p.Line
	}
	line, _ := p.msg.Encode() // it was decoded
	return line
}

func (p *arrival) chat() string {
	if p.inChatKey == "" {
		p.inChatKey = chatKey(p.msg.Channel, p.msg.ChatID)
	}
	return p.inChatKey
}

// end settles p, which passed all stages or was stopped.
func (r *receiver) end(p *arrival, stage string, why relay.Reason) {
	p.written()
	held := p.claim != claimNone
	r.watch.noteStopped(p, why)
	r.watch.settled(p)
	r.endClaim(p, true)
	if why != relay.Pass {
		r.watch.stopped(p, stage, why)
	}
	if why == relay.Duplicate && !held && r.inFlight.follow(p.key, p.Settle) || p.kept {
		return
	}
	r.settle(p)
}

func isPerson(role string) bool { return role == relay.RoleUser }
func isBot(role string) bool    { return role != relay.RoleUser }

// ownStage is the name of [recorder.stopOwn], which fails only for own messages.
const ownStage = "own"

func (r *receiver) stopRepeats(_ context.Context, p *arrival) (relay.Reason, error) {
	if r.deliver.deliveries.Has(p.key) || r.dedup.Claim(p.key) != dedup.New {
		return relay.Duplicate, nil
	}
	p.claim = claimHeld
	r.inFlight.begin(p.key)
	r.trace("claimed")
	return relay.Pass, nil
}

// handled notes on disk that p needs no handling by anybody else; an error is reported.
func (r *receiver) handled(p *arrival) error {
	r.watch.settled(p)
	r.endClaim(p, true)
	err := r.dedup.Flush()
	if err != nil {
		r.problems.set("dedup", err)
	}
	return err
}

// settle lets the queue forget p, and the repeats of p.
func (r *receiver) settle(p *arrival) {
	p.Settle()
	if p.claim != claimNone {
		r.inFlight.end(p.key)
	}
}

// endClaim ends the claim of stopRepeats.
func (r *receiver) endClaim(p *arrival, handled bool) {
	if p.claim != claimHeld {
		return
	}
	p.claim = claimEnded
	if err := r.dedup.Settle(p.key, handled); err != nil {
		r.problems.set("dedup", err)
	}
}

// finalAt is when p's text was final, believed as far as a ts.
func (r *receiver) finalAt(p *arrival) time.Time {
	at := p.msg.Final()
	if p.msg.Role == relay.RoleUser || at == p.msg.TS {
		return p.sent
	}
	return r.chats.peers.sentAt(&relay.Message{TS: at, SenderAgentName: p.msg.SenderAgentName}, time.Now())
}

// ofGroup reports whether metadata says, or does not deny, that a message is a
// group's.
func ofGroup(meta relay.Metadata) bool {
	raw, ok := meta["chat_type"]
	var chatType string
	return !ok || json.Unmarshal(raw, &chatType) == nil && isGroup(chatType)
}

func isGroup(chatType string) bool {
	return chatType == "" || chatType == "group" || chatType == "topic"
}

func chatKey(channel string, chat relay.ChatID) string { return channel + "/" + string(chat) }

// topicKey is chatKey of a chat's topic; "" is the chat itself.
func topicKey(channel string, chat relay.ChatID, thread string) string {
	return chatKey(channel, chat) + "/" + thread
}

// here reports whether a message was handled already, or is being handled.
func (r *receiver) here(key string) bool {
	return r.dedup.Seen(key) || r.inFlight.has(key) || r.deliver.deliveries.Has(key)
}

// walk runs the stages until they come to a verdict: a stage that cannot do its
// work now (a full disk, a bot that is away) is tried again with growing pauses,
// for at most RELAY_MAX_AGE since the message arrived, and without end until it is
// in the transcript. It fails only when ctx is done.
func (r *receiver) walk(ctx context.Context, stages relay.Pipeline[*arrival], p *arrival) (stage string,
	why relay.Reason, err error) {
	for pauses := wait.NewBackoff(retryFirst, retryMax); ; {
		stage, why, err = r.apply(ctx, stages, p)
		if err == nil || ctx.Err() != nil {
			return stage, why, err
		}
		r.retrying(stage, p, err)
		if _, lost := errors.AsType[*unwrittenError](err); !lost && time.Since(p.arrived) > r.cfg.MaxAge {
			r.log.Error("given up after RELAY_MAX_AGE", keyStage, stage, keyMsg, p.key, keyErr, err)
			return stage, relay.Expired, nil
		}
		if err := pauses.Sleep(ctx); err != nil {
			return stage, relay.Pass, err
		}
		stages = from(stages, stage) // what was done needs no second time
	}
}

func (r *receiver) retrying(stage string, p *arrival, err error) {
	if errors.Is(err, errUndecided) || errors.Is(err, transcript.ErrBusy) && !p.inChat { // no fault
		r.log.Debug("waiting in the order of the chat", keyStage, stage, keyChat, p.msg.ChatID, keyMsg, p.key, keyErr,
			err)
		return
	}
	r.problems.set(stage, err)
	r.metrics.retried.WithLabelValues(stage).Inc()
	r.log.Warn("waiting to try again", keyStage, stage, keyChat, p.msg.ChatID, keyMsg, p.key, keyErr, err)
}

// apply runs the stages once.
func (r *receiver) apply(ctx context.Context, stages relay.Pipeline[*arrival], p *arrival) (stage string,
	why relay.Reason, err error) {
	p.staged = time.Now()
	return stages.Run(ctx, p)
}

// guard runs handle, which handles p or a part of it. If handle panics, the line is
// quarantined and settled: read again after a restart, it would end every sidecar again.
func (r *receiver) guard(p *arrival, handle func()) {
	defer func() {
		if recover() == nil {
			return
		}
		stack := string(debug.Stack())
		defer func() { // the panic may be in what ends p
			if recover() != nil {
				p.Settle()
			}
		}()
		r.quarantine(p.line())
		r.log.Error("a message made its handling panic and is quarantined", keyMsg, p.key, "stack", stack)
		r.end(p, "panic", relay.Malformed)
	}()
	handle()
}

// Pauses between tries of a stage that could not do its work.
const (
	retryFirst = 100 * time.Millisecond // doubled up to
	retryMax   = 10 * time.Second
)

// from is the stages beginning with the named one.
func from(stages relay.Pipeline[*arrival], name string) relay.Pipeline[*arrival] {
	i := slices.IndexFunc(stages, func(st relay.Stage[*arrival]) bool { return st.Name == name })
	return stages[max(i, 0):]
}

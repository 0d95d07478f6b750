package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/internal/delivery"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// deliveryGrace is how long an answer is waited for when the sidecar stops;
// without it the bot would be given the message again.
const deliveryGrace = finishDelivery * 4 / 5

// deliverer brings messages to the bot.
type deliverer struct {
	*base
	chats      *chats
	app        *app
	watch      *watch
	receive    *receiver
	doors      doors
	deliveries *delivery.Deliveries
	given      *givenLines
	passed     *lru.Cache[string, struct{}] // messages that the bot has from Feishu, though they are stored here
	delivering sync.WaitGroup               // deliveries that a chat does not wait for
	botAway    atomic.Bool                  // the last delivery of all failed
	state      botState
	review     delivery.Review    // says what waits and is not to reach the bot
	lateMail   func(delivery.Ref) // takes mail that was answered after its time-out; nil with MAILBOX=off
}

func openDeliverer(b *base, c *chats, a *app, w *watch) (*deliverer, error) {
	d := &deliverer{base: b, chats: c, app: a, watch: w}
	d.passed, _ = lru.New[string, struct{}](maxCopies) // fails only for a size below 1
	// Each message takes three entries, and as many more as it brings lines of context.
	given, err := b.window(".given.jsonl", b.cfg.DedupSize*(3+min(b.cfg.InjectContext, 5)))
	if err != nil {
		return nil, err
	}
	d.given = &givenLines{given}
	if b.cfg.InjectURL != "" {
		d.doors.webhook = newWebhook(b.cfg.InjectURL, b.cfg.InjectSecret)
		return d, nil
	}
	d.doors.stream, err = httpapi.NewStream(httpapi.StreamOptions{Root: b.bad.root, Name: b.name() + ".stream.jsonl",
		MaxAge: b.cfg.MaxAge, Logger: b.log, Receipt: d.acknowledged})
	if err != nil {
		return nil, err
	}
	b.onClose(d.doors.stream.Close)
	return d, nil
}

// open reads what an earlier process was delivering. channels take the place of those to
// the bot where there are any.
func (d *deliverer) open(channels []delivery.Channel) error {
	root, err := d.folder("deliveries", d.name())
	if err != nil {
		return err
	}
	if channels == nil {
		channels = d.doors.channels()
	}
	d.deliveries, err = delivery.New(delivery.Options{Root: root, MaxAge: d.cfg.MaxAge, Timeout: d.cfg.DeliveryTimeout,
		Grace: deliveryGrace, Logger: d.log, Resumed: d.resumed, Late: d.answeredLate, Failed: d.deliveryFailed, Review: d.review},
		channels...)
	return err
}

// acknowledged notes what the bot says on the stream.
func (d *deliverer) acknowledged(id relay.MessageID) {
	d.watch.noteAcknowledged(id)
	d.deliveries.Acknowledge(id)
	d.watch.events.Publish(httpapi.Event{Type: httpapi.EventReceipt, RelayMsgID: id, Door: doorStream})
}

// inject begins the delivery of the message to the bot and returns when the next
// message of the chat may follow. The delivery goes on and ends the message.
func (d *deliverer) inject(ctx context.Context, p *arrival) (relay.Reason, error) {
	if d.passed.Contains(p.key) {
		return relay.Duplicate, nil // the bot has it from Feishu
	}
	in, given := d.inbound(p)
	d.trace("inject")
	m := delivery.Message{Inbound: in, Given: given, Ref: delivery.Ref{ID: p.msg.RelayMsgID, Key: p.key,
		Channel: p.msg.Channel, Chat: p.msg.ChatID, Sender: p.msg.SenderAgentName, Sent: p.final}}
	if p.msg.Role == relay.RoleUser {
		m.Sent = p.arrived // Feishu delivers again for hours, and a person's message is never stopped for its age
	}
	m.Waited = p.behind
	next := make(chan struct{})
	hooks := d.hooks(p, &m)
	hooks.Next = sync.OnceFunc(func() { close(next) })
	hooks.Kept = func() { d.kept(p) }
	p.handed = true
	d.delivering.Go(func() {
		defer hooks.Next()
		d.receive.guard(p, func() {
			if _, err := d.deliveries.Deliver(ctx, m, hooks); err != nil { // we are stopping; a restart goes on
				d.receive.endClaim(p, false)
			}
		})
	})
	<-next
	return relay.Pass, nil
}

// kept lets go of a message that its delivery has put on disk.
func (d *deliverer) kept(p *arrival) {
	if d.receive.handled(p) != nil {
		return // the queue keeps it, too
	}
	p.kept = true
	d.receive.settle(p)
}

// resumed goes on with a message that an earlier process was delivering.
func (d *deliverer) resumed(m *delivery.Message) delivery.Hooks {
	p := &arrival{Delivery: relay.Delivery{Settle: func() {}}, arrived: m.Sent, key: m.Key, sent: m.Sent, final: m.Sent,
		handed: true, kept: true}
	if m.Source != nil {
		p.msg = *m.Source
	}
	if data, err := json.Marshal(m.Metadata["decision"]); err == nil {
		_ = json.Unmarshal(data, &p.decision) // without it only the depth in an event is missing
	}
	if d.receive.dedup.Claim(p.key) == dedup.New { // it died before it was noted
		p.claim = claimHeld
		d.receive.endClaim(p, true)
	}
	return d.hooks(p, m)
}

func (d *deliverer) hooks(p *arrival, m *delivery.Message) delivery.Hooks {
	given := func() {
		d.given.add(m.Given...) // what it goes on to hear does not show it again
		if d.doors.stream != nil && d.chats.wasRecalled(&p.msg) {
			d.doors.stream.Recall(p.msg.ID()) // while it was written
		}
	}
	return delivery.Hooks{Written: given, Ended: func(r delivery.Result) {
		if d.doors.stream != nil && (r.State != delivery.Delivered || r.Channel != doorStream) {
			d.doors.stream.Withdraw(m.ID)
		}
		if r.State == delivery.Delivered {
			given()
			if p.decision.Tier == policy.TierReleased {
				d.given.add(releasedAs(p.key)) // a restart does not release it again
			}
			d.received(p, m, r)
			return
		}
		if why, ok := errors.AsType[*delivery.WithdrawnError](r.Err); ok {
			d.receive.end(p, stageSteer, relay.Reason(why.Reason))
			return
		}
		p.cause = r.Err
		if r.State == delivery.Expired {
			d.receive.end(p, stageInject, relay.Expired)
			return
		}
		d.problems.set(stageInject, r.Err)
		d.receive.end(p, stageInject, relay.Undeliverable)
	}}
}

// stageSteer is the stage of what a group's settings keep from the bot.
const stageSteer = "steer"

// stageInject is the stage that delivers.
const stageInject = "inject"

// received notes that the bot has the message.
func (d *deliverer) received(p *arrival, m *delivery.Message, r delivery.Result) {
	d.trace("delivered")
	d.watch.noteDelivered(p, r.Channel)
	_ = d.receive.handled(p) // it is reported
	d.trace("settling")
	d.botAway.Store(false)
	d.tellDelivered(p, r)
	d.log.Info("delivered", keyChat, p.msg.ChatID, keyMsg, p.key, keySender, p.msg.SenderAgentName, keyDoor, r.Channel)
	d.receive.end(p, stageInject, relay.Pass)
}

// answeredLate notes that the bot answered a message after its time-out.
func (d *deliverer) answeredLate(m delivery.Ref, r delivery.Result) {
	d.log.Info("the bot answered after the time-out", keyChat, m.Chat, keyMsg, m.Key, keySender, m.Sender,
		keyDoor, r.Channel)
	if m.Mail {
		go d.lateMail(m)
		return
	}
	p := &arrival{key: m.Key, final: m.Sent, msg: relay.Message{RelayMsgID: m.ID, Channel: m.Channel,
		ChatID: m.Chat, SenderAgentName: m.Sender}}
	d.watch.noteDelivered(p, r.Channel)
	d.watch.settled(p)
	d.tellDelivered(p, r)
}

// tellDelivered tells metrics and watchers that the bot has the message.
func (d *deliverer) tellDelivered(p *arrival, r delivery.Result) {
	d.metrics.delivered(r.Channel, p.final)
	d.watch.events.Publish(httpapi.Event{Type: httpapi.EventDelivery, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
		RelayMsgID: p.msg.RelayMsgID, Sender: string(p.msg.SenderAgentName), Door: r.Channel})
}

// deliveryFailed notes why a message is written again.
func (d *deliverer) deliveryFailed(m delivery.Ref, err error) {
	d.problems.set(stageInject, err)
	d.metrics.retried.WithLabelValues(stageInject).Inc()
	if !d.botAway.Swap(true) { // once an outage
		d.log.Warn("the bot does not accept messages; they wait", keyChat, m.Chat, keyMsg, m.Key, keyErr, err)
	}
}

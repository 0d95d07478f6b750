package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
)

// How long a bot's message that Feishu delivered itself waits for the relay's
// copy of it, which has the final text where the native event may hold a
// placeholder or a card's first draft (docs/feishu.md 3.4).
const (
	waitHeard     = time.Minute      // from a bot whose sidecar is there
	waitStreaming = 10 * time.Minute // its card is still being written; Feishu ends that after as long
	waitText      = 3 * time.Second  // texts and posts of other bots
	waitCard      = time.Minute      // their cards
)

// metaNative marks a spooled message, metaUnion and metaType are the union_id and the type of its sender; they stay in
// the sidecar.
const (
	metaNative = "feishu_relay_native"
	metaUnion  = "feishu_relay_union"
	metaType   = "feishu_relay_sender_type"
)

// What a spooled message is.
const (
	nativeText      = "text"
	nativeCard      = "card"
	nativeStreaming = "streaming"
	nativePerson    = "person" // a person's; the connector's
	nativeOne       = "one"    // a person's that is for one of several bots; the gateway's
	nativeHeard     = "heard"  // a person's that the bot has, or that is kept from it; the gateway's
)

func nativeKind(m feishu.Message, streaming bool) string {
	switch {
	case streaming:
		return nativeStreaming
	case m.Type == "interactive":
		return nativeCard
	}
	return nativeText
}

// native is what Feishu's events brought: acknowledged to Feishu, on disk here in a queue,
// and not dealt with yet.
type native struct {
	*base
	chats   *chats
	app     *app
	send    *sender
	receive *receiver
	steer   *steering
	queue   *filerelay.Queue
	bots    path
	people  path
	ones    path
	heard   relay.Pipeline[*arrival]
	wait    *workers // per chat and sender, so that a card that is awaited holds up nobody else
}

// nativeQueue is the queue's name in its folder, in logs and in metrics.
const nativeQueue = "native"

// openNative returns nil where nothing listens to Feishu.
func openNative(b *base, c *chats, a *app, s *sender, r *receiver, st *steering) (*native, error) {
	if b.cfg.Gateway.Addr == "" && !b.cfg.Connector {
		return nil, nil
	}
	root, err := b.folder(nativeQueue, b.name())
	if err != nil {
		return nil, err
	}
	queue, err := filerelay.New(filerelay.Options{Dir: root.Name(), Queue: nativeQueue, Agent: string(b.cfg.Agent),
		Logger: b.log})
	if err != nil {
		return nil, err
	}
	b.onClose(queue.Close)
	return &native{base: b, chats: c, app: a, send: s, receive: r, steer: st, queue: queue, wait: newWorkers()}, nil
}

// receiveNative takes a stored line through the stages, a bot's once the relay's copy
// has come first or has been waited for.
func (n *native) receiveNative(ctx context.Context, d relay.Delivery) {
	d.History = false // nobody else writes here
	p := newArrival(d)
	n.receive.guard(p, func() {
		if n.receive.decode(nativeQueue, p) {
			n.awaitCopy(ctx, p)
		}
	})
}

func (n *native) awaitCopy(ctx context.Context, p *arrival) {
	m := &p.msg
	if m.Metadata.Text(metaNative) == nativeHeard {
		n.wait.do(ctx, nativeHeard+" "+chatKey(m.Channel, m.ChatID), func(ctx context.Context) {
			n.receive.guard(p, func() {
				if _, _, err := n.receive.walk(ctx, n.heard, p); err == nil {
					p.Settle()
				}
			})
		})
		return
	}
	if m.Role == relay.RoleUser {
		along := n.people
		if m.Metadata.Text(metaNative) == nativeOne {
			along = n.ones
		}
		n.receive.handle(ctx, along, p)
		return
	}
	came, forget := n.receive.copies.expect(string(m.ID()))
	key := chatKey(m.Channel, m.ChatID) + "/" + string(m.SenderBotOpenID)
	n.wait.do(ctx, key, func(ctx context.Context) {
		defer forget()
		n.receive.guard(p, func() { n.afterCopy(ctx, p, came) })
	})
}

// afterCopy takes p, a bot's native message, through the stages once came is closed or the
// copy has been waited for.
func (n *native) afterCopy(ctx context.Context, p *arrival, came <-chan struct{}) {
	m := &p.msg
	if !n.receive.here(string(m.ID())) {
		sender := n.sidecarOf(m)
		if wait.Change(ctx, p.arrived.Add(n.waitForCopy(m, sender != "")), came) != nil {
			return
		}
		if _, came := n.receive.copies.sender(string(m.ID())); !came {
			n.receive.copies.silent.Add(sender, p.arrived)
		}
	}
	if content.Placeholder(m.Content) {
		n.readAgain(ctx, m)
	}
	if agent, ok := n.receive.copies.sender(string(m.ID())); ok {
		n.app.matched(m, agent)
	}
	p.arrived = time.Now() // its age does not count the wait
	n.receive.handle(ctx, n.bots, p)
}

// readAgain asks Feishu for the text that has replaced a placeholder. Feishu does not
// return the text of a streamed card.
func (n *native) readAgain(ctx context.Context, m *relay.Message) {
	if m.Metadata.Text(metaNative) != nativeText || !n.app.api.Ready() || n.receive.here(string(m.ID())) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, feishuAsked)
	defer cancel()
	now, _, err := n.app.api.Message(ctx, m.MessageID)
	if err != nil {
		n.problems.set("native message", err)
		return
	}
	m.Content = now.Text()
}

// stopUnfinished stops a placeholder of a bot whose finished text did not come over the
// relay. If it came, the placeholder is a repeat.
func (n *native) stopUnfinished(_ context.Context, p *arrival) (relay.Reason, error) {
	if content.Placeholder(p.msg.Content) && !n.receive.here(p.key) {
		return relay.Expired, nil
	}
	return relay.Pass, nil
}

// sidecarOf is the agent whose sidecar is expected to relay m; "": none, as where it is offline, or has relayed nothing
// and given no sign of life since a message whose copy did not come.
func (n *native) sidecarOf(m *relay.Message) relay.AgentName {
	bot, _ := n.app.book.Bot(m.SenderBotOpenID)
	online, known := n.steer.presence.online()[bot.Agent]
	since, silent := n.receive.copies.silent.Get(bot.Agent)
	if known && !online || silent && !n.steer.presence.beatSince(bot.Agent, since) {
		return ""
	}
	return bot.Agent
}

func (n *native) waitForCopy(m *relay.Message, heard bool) time.Duration {
	kind, wait := m.Metadata.Text(metaNative), waitText
	switch {
	case heard && kind == nativeStreaming:
		wait = waitStreaming
	case heard:
		wait = waitHeard
	case kind != nativeText:
		wait = waitCard
	}
	return min(wait, n.cfg.MaxAge/2) // beyond MaxAge it would be too old for the bot
}

// maxCopies is how many relayed messages are remembered with their senders, so
// that a native event that comes later tells who its sender is.
const maxCopies = 1000

// copies tells who waits for the relay's copy of a message that it came, and
// whose it was.
type copies struct {
	senders *lru.Cache[string, relay.AgentName]    // by message
	silent  *lru.Cache[relay.AgentName, time.Time] // by agent: when a message came whose copy did not

	mu      sync.Mutex
	waiting map[string]chan struct{} // guarded by mu; at most as many as the spool holds unsettled
}

func newCopies() *copies {
	senders, _ := lru.New[string, relay.AgentName](maxCopies) // fails only for a size below 1
	silent, _ := lru.New[relay.AgentName, time.Time](maxCopies)
	return &copies{senders: senders, silent: silent, waiting: map[string]chan struct{}{}}
}

func (c *copies) sender(key string) (relay.AgentName, bool) { return c.senders.Get(key) }

// expect waits for the message key; came is closed once it is there.
func (c *copies) expect(key string) (came <-chan struct{}, forget func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch, ok := c.waiting[key]
	if !ok {
		ch = make(chan struct{})
		c.waiting[key] = ch
	}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[key] == ch {
			delete(c.waiting, key)
		}
	}
}

// came tells that the relay's copy of key has been dealt with on arrival.
func (c *copies) came(key string, agent relay.AgentName) {
	c.senders.Add(key, agent)
	c.silent.Remove(agent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.waiting[key]; ok {
		close(ch)
		delete(c.waiting, key)
	}
}

// connectorEvent stores what Feishu tells the connector, before Feishu gets its
// acknowledgement.
func (n *native) connectorEvent(data []byte) (v feishu.Verdict, instead []byte) {
	e, err := feishu.ParseEvent(data)
	if err != nil {
		n.log.Warn("an event cannot be read", keyErr, err)
		return feishu.Pass, nil
	}
	h := host{chats: n.chats, send: n.send}
	switch e.Type {
	case feishu.EventBotAdded:
		n.app.book.SawChat(e.ChatID, feishu.ChatGroup)
		h.Joined(e.ChatID, e.CreateTime)
	case feishu.EventBotDeleted, feishu.EventDisbanded:
		n.app.book.LeftChat(e.ChatID)
		h.Left(e.ChatID, e.CreateTime)
	case feishu.EventRecalled:
		if e.Recall != nil {
			n.steer.wasRecalled(e.ChatID, e.Recall.ID, e.Recall.At)
		}
	}
	m := e.Message
	if m == nil || m.Sender.OpenID != "" && m.Sender.OpenID == n.app.self().OpenID {
		return feishu.Pass, nil
	}
	kind := nativePerson
	if m.Sender.IsBot() {
		kind = nativeKind(*m, e.Streaming)
	}
	n.app.book.SawChat(m.ChatID, m.ChatType)
	if m.ChatType == feishu.ChatGroup {
		n.chats.saw(relay.DefaultChannel, m.ChatID, m.CreateTime)
	} else if kind != nativePerson {
		return feishu.Pass, nil
	}
	if kind == nativePerson && m.ChatType == feishu.ChatGroup {
		m.Sender.Name = n.app.person(context.Background(), m)
	}
	if err := n.spool(context.Background(), *m, kind); err != nil {
		n.problems.set("spool", err)
		return feishu.Refuse, nil
	}
	if m.ChatType == feishu.ChatGroup {
		n.app.nameChat(m.ChatID)
	}
	return feishu.Keep, nil
}

// stored is an event's message as the spool keeps it.
func (n *native) stored(m feishu.Message, doc content.Doc, kind string) (relay.Message, error) {
	r := relay.Message{RelayMsgID: m.ID, Channel: relay.DefaultChannel, ChatID: m.ChatID, Content: doc.Text(),
		SenderBotOpenID: m.Sender.OpenID, SenderAppID: m.Sender.AppID, SenderName: m.Sender.Name, MessageID: m.ID, TS: m.CreateTime,
		MsgType: m.Type, ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID, Mentions: n.app.mentionsOf(m.Mentions),
		Metadata: relay.Metadata{"chat_type": quote(cmp.Or(m.ChatType, feishu.ChatGroup)), metaNative: quote(kind)}}
	if kind == nativePerson {
		r.Role, r.SenderID, r.SenderBotOpenID = relay.RoleUser, m.Sender.OpenID, ""
		r.Metadata[metaUnion], r.Metadata[metaType] = quote(m.Sender.UnionID), quote(m.Sender.Type)
	}
	return r, setFiles(r.Metadata, doc.Keys(), doc.Files())
}

// spool keeps an event's message on disk until the pipeline has dealt with it:
// Feishu forgets it with our acknowledgement.
func (n *native) spool(ctx context.Context, m feishu.Message, kind string) error {
	doc := n.app.read(ctx, &m)
	if content.IsText(m.Type) && doc.Text() == "" {
		n.log.Debug("an empty message is left out", keyMsg, m.ID)
		return nil
	}
	r, err := n.stored(m, doc, kind)
	if err != nil {
		return err
	}
	return n.put(ctx, &r)
}

// put stores a message in the queue on disk.
func (n *native) put(ctx context.Context, m *relay.Message) error {
	line, err := m.Encode()
	if err == nil {
		_, err = n.queue.Publish(ctx, [][]byte{line}, "")
	}
	if err != nil {
		return fmt.Errorf("store an event: %w", err)
	}
	return nil
}

// metaEvent and metaBots are, in the metadata of a spooled message that is for one of several
// bots, the event that brought it and the bots; they stay in the sidecar.
const (
	metaEvent = "feishu_relay_event"
	metaBots  = "feishu_relay_bots"
)

// metaWhy is, in the metadata of a spooled message of the kind nativeHeard, why the bot does not get it: "" where that
// is not known yet, whyGiven where it does; it stays in the sidecar.
const (
	metaWhy  = "feishu_relay_why"
	whyGiven = "given"
)

// keepEvent keeps a person's message that is for one of several bots until it is known which.
func (n *native) keepEvent(ctx context.Context, m *relay.Message, bots []relay.AgentName, event []byte) error {
	list, err := json.Marshal(bots)
	if err != nil {
		return err
	}
	return n.keep(ctx, m, nativeOne, event, metaBots, list)
}

// keep keeps a person's message with its event, of a kind that needs some more metadata.
func (n *native) keep(ctx context.Context, m *relay.Message, kind string, event []byte, key string, more []byte) error {
	kept := *m
	kept.Metadata = maps.Clone(m.Metadata)
	kept.Metadata[metaNative], kept.Metadata[metaEvent], kept.Metadata[key] = quote(kind), slices.Clone(event), more
	return n.put(ctx, &kept)
}

// recordHeard records a person's message that heard kept.
func (n *native) recordHeard(ctx context.Context, p *arrival) (relay.Reason, error) {
	e, err := feishu.ParseEvent(p.msg.Metadata[metaEvent])
	if err != nil || e.Message == nil {
		return relay.Malformed, nil
	}
	m, why := e.Message, p.msg.Metadata.Text(metaWhy)
	m.Sender.Name = cmp.Or(n.app.person(ctx, m), string(m.Sender.OpenID))
	n.app.read(ctx, m)
	h, err := n.send.heardFrom(m)
	if why == whyGiven {
		n.receive.watch.gave(h, doorGateway)
	}
	if err != nil || h.Content == "" {
		return relay.Pass, err
	}
	if _, err = n.send.recordPerson(h); err == nil && why != whyGiven && why != "" {
		n.receive.watch.withheld(h, relay.Reason(why))
	}
	n.app.nameChat(h.ChatID)
	return relay.Pass, err
}

// oneOutage is how long it may be unknown which bot a person's message is for.
const oneOutage = 10 * time.Second

// giveOne gives the bot a person's message, as the event that Feishu sent, if it is for this one.
func (n *native) giveOne(ctx context.Context, p *arrival) (relay.Reason, error) {
	n.steer.awaitMarks(ctx)
	if n.chats.wasRecalled(&p.msg) {
		return relay.Recalled, nil
	}
	var bots []relay.AgentName
	if err := json.Unmarshal(p.msg.Metadata[metaBots], &bots); err != nil {
		return relay.Malformed, nil
	}
	if n.steer.records.state(p.msg.Channel, p.msg.ChatID).Muted[n.cfg.Agent].Holds(time.Now()) {
		return relay.Muted, nil
	}
	mine, until, err := n.steer.claimOne(ctx, &p.msg, bots)
	if err != nil && ctx.Err() == nil && time.Since(p.arrived) > oneOutage {
		mine, until, err = true, time.Now().Add(oneLease), nil // rather several answers than none
	}
	if err != nil {
		return relay.Pass, err
	}
	switch {
	case !mine:
		return relay.NotForMe, nil
	case until.IsZero():
		return relay.Pass, nil // the bot has it
	case n.receive.deliver.passed.Contains(p.key): // Feishu's event reached it all the same
		n.gave(&p.msg)
		return relay.Pass, nil
	}
	event, given := n.withContext(p)
	err = handOver(ctx, until, n.cfg.DeliveryTimeout, func(ctx context.Context, written func()) error {
		return n.receive.deliver.doors.gateway.gateway.Inject(ctx, feishu.Injection{Event: event,
			Written: func(<-chan struct{}) { written() }})
	})
	if err != nil {
		return relay.Pass, err // the next one takes it, or this one again
	}
	n.trace("given")
	n.gave(&p.msg)
	n.send.given.add(given...)
	return relay.Pass, nil
}

// handOver gives the bot an event by inject and returns when the event is written whole, or an error if it is not until
// then: from then on another bot may get it. The bot may think about it for longer; its answer is waited for in the
// background, for limit at most, so that a bot that never answers holds nothing for ever.
func handOver(ctx context.Context, until time.Time, limit time.Duration,
	inject func(ctx context.Context, written func()) error) error {
	giving, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	written := make(chan struct{})
	ended := make(chan error, 1)
	injecting, stop := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(limit, 15*time.Minute))
	go func() {
		defer stop()
		ended <- inject(injecting, sync.OnceFunc(func() { close(written) }))
	}()
	select {
	case <-written:
		return nil
	case err := <-ended:
		return err
	case <-giving.Done():
		stop()
		err := <-ended
		select {
		case <-written:
			return nil
		default:
			return err
		}
	}
}

// gave reports to the other sidecars, and to the viewers of all, that this bot has a person's message.
func (n *native) gave(m *relay.Message) {
	n.steer.delivered(m)
	n.receive.watch.gave(m, doorGateway)
}

// withContext is the event of a person's message as the bot gets it, and the messages that it has then.
func (n *native) withContext(p *arrival) (event []byte, given []string) {
	m := &p.msg
	event, given = m.Metadata[metaEvent], []string{p.key}
	lines := n.receive.deliver.contextLines(m.ChatID)
	if lines == 0 || !content.IsText(m.MsgType) {
		return event, given
	}
	before, ids := n.receive.deliver.context(m, m.TS.Time(), lines)
	if before == "" {
		return event, given
	}
	with, err := feishu.WithBefore(event, before)
	if err != nil { // it goes on as it came
		n.problems.set("context", err)
		return event, given
	}
	return with, append(given, ids...)
}

// hearPerson records a person's message in a group, for this bot and for those
// that could not hear it.
func (n *native) hearPerson(ctx context.Context, p *arrival) (relay.Reason, error) {
	m := &p.msg
	if !ofGroup(m.Metadata) {
		n.chats.noteTalk(talk{Channel: m.Channel, ChatID: m.ChatID, ChatType: feishu.ChatP2P, MessageID: m.MessageID,
			At: m.TS})
		return relay.Pass, nil
	}
	heard, group := n.send.person(relay.Heard{ChatID: m.ChatID, Content: m.Content, Sender: string(m.SenderID),
		MsgType: m.MsgType, Mentions: m.Mentions, SenderID: m.SenderID, Metadata: m.Metadata, SenderName: m.SenderName,
		MessageID: m.MessageID, TS: m.TS, ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID})
	answer, bots, err := n.send.hear(ctx, heard, group, sentBy{m.Metadata.Text(metaUnion), m.Metadata.Text(metaType)})
	if bots != nil {
		p.bots, answer.Reason = bots, relay.Pass
	}
	return answer.Reason, err
}

// stopForOther stops a person's message that another one of several bots gets.
func (n *native) stopForOther(ctx context.Context, p *arrival) (relay.Reason, error) {
	if p.bots == nil {
		return relay.Pass, nil
	}
	return n.send.oneOf(ctx, &p.msg, p.bots), nil
}

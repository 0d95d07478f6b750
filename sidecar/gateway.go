package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/core"
	"feishu-relay/dedup"
	"feishu-relay/deliver"
	"feishu-relay/feishu"
	"feishu-relay/feishu/entry"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/feishu/webhook"
	"feishu-relay/group"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/weborigin"
	"feishu-relay/relay"
)

// maxShown is how many injected messages are remembered for look-ups that the bot
// makes of them, and maxShownBytes the most bytes of their contents, but for one.
const (
	maxShown      = 1000
	maxShownBytes = 4 << 20
)

// maxAnswered is how many events are remembered that the bot has answered: one each 1.4 s for 8 h. Feishu repeats an
// event for some 6 h (docs/feishu.md 2.4).
const maxAnswered = 20_000

// front is the gateway that the bot's Feishu SDK calls, and its listeners.
type front struct {
	gateway *gateway.Gateway
	entry   *entry.Entry
	listen  net.Listener
	webhook *server // nil where it shares the gateway's address
}

// openFront listens for the bot.
func (s *Sidecar) openFront() error {
	if s.cfg.Gateway.Addr == "" {
		return nil
	}
	root, err := s.folder("gateway", s.name())
	if err != nil {
		return err
	}
	if err := s.openPeerMail(); err != nil {
		return err
	}
	f, door := &front{}, s.channels.gateway
	opts := gateway.Options{Book: s.app.book, API: s.app.api, Host: host{s}, Sending: s.app.selfSoon, Logger: s.log,
		Counter: s.metrics.gatewayEvent}
	if s.peers != nil {
		opts.Peers = s.peers.chats
	}
	if opts.Answered, err = dedup.Open(root, "answered.jsonl", max(s.cfg.DedupSize, maxAnswered)); err != nil {
		return fmt.Errorf("the answered events: %w", err)
	}
	s.onClose(opts.Answered.Close)
	s.onClose(f.close)
	if err := f.open(&s.cfg, opts, s.api.failures); err != nil {
		return &setting{err}
	}
	s.front, door.gateway, door.answered = f, f.gateway, opts.Answered
	return nil
}

// open listens, and makes the gateway as the environment says.
func (f *front) open(cfg *Config, o gateway.Options, failures *attempts.Failures) (err error) {
	if f.listen, err = bind("GATEWAY_ADDR", cfg.Gateway.Addr); err != nil {
		return err
	}
	c, loopback := &cfg.Gateway, IsLoopback(cfg.Gateway.Addr)
	o.Address, o.Loopback = entry.Address, loopback
	o.Upstream, o.PublicURL, o.RewriteMentions = cfg.BaseURL, c.PublicURL, c.Mentions
	o.Settle, o.EditSettle, o.StreamLife = c.Settle, c.EditSettle, c.StreamLife
	if cfg.BotWebhookURL != "" {
		o.Webhook = &webhook.Options{BotURL: cfg.BotWebhookURL, EncryptKey: string(cfg.EncryptKey),
			VerificationToken: string(cfg.VerificationToken), Timeout: cfg.DeliveryTimeout}
	}
	if f.gateway, err = gateway.New(o); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	if cfg.WebhookAddr != "" && o.Webhook != nil {
		if f.webhook, err = listenOn("WEBHOOK_ADDR", cfg.WebhookAddr, f.gateway.WebhookHandler(), o.Logger); err != nil {
			return err
		}
	}
	names := []string{cfg.BaseURL.Hostname()}
	if c.PublicURL != nil {
		names = append(names, c.PublicURL.Hostname())
	}
	base := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(cfg.BaseURL.Host), ":443"), ":80")
	open := func(host string) bool { return host == base || feishu.IsOpenHost(host) }
	f.entry, err = entry.New(entry.Options{Open: open, Mode: cmp.Or(c.TLS, "off"), CertFile: c.CertFile, KeyFile: c.KeyFile,
		DataDir: cfg.DataDir, Names: names, Token: string(cfg.APIToken), Loopback: loopback, Allow: c.Allow,
		Handler: f.gateway.Handler(), Failures: failures, Logger: o.Logger, Counter: o.Counter})
	if err != nil {
		return fmt.Errorf("GATEWAY_TLS: %w", err)
	}
	return nil
}

// close closes what stop left open.
func (f *front) close() error {
	if f.gateway != nil {
		ctx, cancel := context.WithTimeout(context.Background(), finishGateway)
		defer cancel()
		_ = f.gateway.Close(ctx)
	}
	if f.webhook != nil {
		f.webhook.close()
	}
	if f.listen != nil {
		_ = f.listen.Close() // most often closed before, by its server
	}
	return nil
}

// serve runs until stop; fail is told about a listener that ended by itself.
func (f *front) serve(fail func(error)) {
	if f.webhook != nil {
		go f.webhook.serve("webhook", fail)
	}
	if err := f.entry.Serve(f.listen); err != nil {
		fail(fmt.Errorf("%w: gateway: %w", errListener, err))
	}
}

// stop lets requests under way end and closes the long connections: the bot connects again as soon as somebody listens.
// Without a gateway f is nil.
func (f *front) stop() {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishGateway)
	defer cancel()
	var ending sync.WaitGroup
	ending.Go(func() { _ = f.gateway.Close(ctx) }) // the connections, too: Shutdown waits for no hijacked one
	if f.webhook != nil {
		ending.Go(func() { _ = f.webhook.Shutdown(ctx) }) // a bot that thinks about an event takes all the time there is
	}
	_ = f.entry.Shutdown(ctx) // what is left is closed with the listener
	ending.Wait()
}

// IsLoopback reports whether an address (host:port) to listen on is reached from this host only.
func IsLoopback(addr string) bool { return weborigin.Loopback(addr) }

// gatewayDoor gives the bot messages as events of Feishu.
type gatewayDoor struct {
	*Sidecar
	gateway *gateway.Gateway // set before the core runs
	// answered are Feishu's events that the bot has answered.
	answered *dedup.Window
	shown    *lru.Cache[relay.MessageID, feishu.Message]
	bytes    atomic.Int64                        // of the contents of shown
	mails    *lru.Cache[string, relay.MessageID] // of messages that Feishu does not have: what they are shown as

	mu   sync.Mutex
	conn uint64 // counts the times at which the bot came; guarded by mu, as here is
	here bool
}

func newGatewayDoor(s *Sidecar) *gatewayDoor {
	door := &gatewayDoor{Sidecar: s}
	door.shown, _ = lru.NewWithEvict(maxShown, func(_ relay.MessageID, m feishu.Message) { // fails only for a size below 1
		door.bytes.Add(-int64(len(m.Content)))
	})
	door.mails, _ = lru.New[string, relay.MessageID](maxShown)
	return door
}

// remember keeps a message that the bot is given, for its look-ups.
func (d *gatewayDoor) remember(m feishu.Message) {
	d.shown.Remove(m.ID)
	d.bytes.Add(int64(len(m.Content)))
	for d.shown.Add(m.ID, m); d.bytes.Load() > maxShownBytes && d.shown.Len() > 1; {
		d.shown.RemoveOldest()
	}
}

var _ core.Channel = (*gatewayDoor)(nil)

// Name implements [core.Channel], as the following do.
func (*gatewayDoor) Name() string { return doorGateway }

// Conn is another number after each time without the bot.
func (d *gatewayDoor) Conn() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	here := d.gateway.Connected()
	if here && !d.here {
		d.conn++
	}
	if d.here = here; !here {
		return 0
	}
	return d.conn
}

func (d *gatewayDoor) Changed() <-chan struct{} { return d.gateway.Changed() }
func (d *gatewayDoor) Present() bool            { return d.gateway.Present() }
func (*gatewayDoor) Serial() bool               { return false } // as Feishu's own events

// Pauses are as Feishu's own (docs/feishu.md 2.4).
func (*gatewayDoor) Pauses() (first, most time.Duration) { return 15 * time.Second, 5 * time.Minute }

// Write writes a message to the bot as an event and returns when the bot has acknowledged it.
func (d *gatewayDoor) Write(ctx context.Context, in *core.Input, again bool, written func()) error {
	if !d.chatLives(ctx, in.ChatID) {
		return &core.ResultError{Result: deliver.Refused,
			Err: errors.New("the group is dissolved, or the bot is not in it")}
	}
	return d.give(ctx, d.messageEvent(ctx, in), in, again, written)
}

// give writes an event. It has to wait while the bot's own open_id is not known: frameworks find out by it whether they
// are meant.
func (d *gatewayDoor) give(ctx context.Context, event feishu.Injected, in *core.Input, again bool,
	written func()) error {
	self := d.app.selfAsked(ctx)
	if self.OpenID == "" || self.AppID == "" {
		return &core.ResultError{Result: deliver.NotWritten, Err: errors.New("the bot's own open_id is not known yet")}
	}
	body, err := d.complete(event, self, in.Key)
	if err != nil {
		return &core.ResultError{Result: deliver.Refused, Err: err}
	}
	return injectionError(d.gateway.Inject(ctx, feishu.Injection{Event: body, Again: again,
		Written: written, Late: func() { d.core.Acknowledge(in.ID) }}))
}

// newEvent is how old a message may be whose event keeps its time. Frameworks drop
// what is older than their own start, so one that waited is as new as its writing.
const newEvent = time.Second

func (d *gatewayDoor) messageEvent(ctx context.Context, in *core.Input) feishu.Injected {
	m := in.Source
	created := in.Final
	if time.Since(created.Time()) > newEvent {
		created = relay.MillisOf(time.Now())
	}
	return feishu.Injected{Sender: d.app.peer(ctx, m), MentionsSelf: in.Mentioned || d.cfg.MentionAlways,
		Mentions: d.othersIn(m), Message: in.ShownAs, ChatID: m.ChatID, ThreadID: m.ThreadID, RootID: m.RootID,
		ParentID: m.ParentID, Text: in.Content, CreateTime: created}
}

// idOf is the message id under which the bot is shown m. Of a bot without an app
// in Feishu m has none there, and a reply to it would fail: it goes to the
// message of Feishu's that m edits or answers, else to the first of m's topic, else to the
// person's newest.
func (d *gatewayDoor) idOf(m *relay.Message) relay.MessageID {
	if isFeishus(m.ID()) {
		return m.ID()
	}
	for _, about := range []relay.MessageID{group.EditOf(m), m.ParentID, m.RootID,
		d.app.talkIn(m.Channel, m.ChatID).MessageID} {
		if isFeishus(about) {
			return d.standIn(string(m.ID()), string(m.ID()), about)
		}
	}
	return d.standIn(string(m.ID()), string(m.ID()), "")
}

func isFeishus(id relay.MessageID) bool { return strings.HasPrefix(string(id), "om_") }

// standIn is the id under which what key names is shown, the same each time,
// whoever spoke in between.
func (d *gatewayDoor) standIn(key, id string, about relay.MessageID) relay.MessageID {
	shown, again := d.mails.Get(key)
	if !again {
		shown = feishu.MailID(id, about)
		d.mails.Add(key, shown)
	}
	return shown
}

// mailEvent shows the bot a result in the conversation that it belongs in, as if
// the other agent had said it there. Feishu does not know the message: a reply to
// it goes to the person's message that the conversation is about.
func (d *gatewayDoor) mailEvent(in relay.Inbound, from relay.AgentName, of relay.MessageID) feishu.Injected {
	peer := feishu.Bot{Agent: from, Name: string(from)}
	if known, ok := d.app.book.Agent(from, "", ""); ok {
		peer = known
	}
	talk := d.app.talkIn(in.Channel, in.ChatID)
	id := d.standIn(string(from)+"/"+string(of), string(of), talk.MessageID)
	return feishu.Injected{Sender: peer, MentionsSelf: talk.ChatType != feishu.ChatP2P, Message: id,
		ChatID: in.ChatID, ChatType: talk.ChatType, Text: in.Plain}
}

// complete fills in what every event has and returns it as JSON. Its event_id is
// the same each time the message of this key is written.
func (d *gatewayDoor) complete(event feishu.Injected, self feishu.Self, key string) ([]byte, error) {
	peer := event.Sender
	event.EventID = "relay-" + short(self.AppID+"\n"+key)
	event.AppID, event.TenantKey, event.Token = self.AppID, self.Tenant, string(d.cfg.VerificationToken)
	event.SenderType = cmp.Or(d.cfg.InjectSenderType, feishu.SenderBot)
	event.Self = feishu.Bot{OpenID: self.OpenID, AppID: self.AppID, Name: cmp.Or(self.Name, string(d.cfg.Agent))}
	if event.SenderType == feishu.SenderUser && !peerchat.IsID(event.ChatID) {
		event.Prefix = "[" + runes.OneLine(cmp.Or(peer.Name, "bot")) + "] "
	}
	body, err := event.JSON()
	if err != nil {
		return nil, err
	}
	if sent, err := feishu.ParseEvent(body); err == nil && sent.Message != nil {
		shown := *sent.Message
		shown.Sender.AppID, shown.Sender.Name = peer.AppID, peer.Name
		d.remember(shown)
		d.app.book.LearnName(string(shown.Sender.OpenID), feishu.Who{Name: peer.Name, Agent: peer.Agent})
	}
	return body, nil
}

// othersIn is whom a message mentions besides this bot, as this bot's app sees
// them; who is not known here stays a name in the text.
func (d *gatewayDoor) othersIn(m *relay.Message) []feishu.Mention {
	var out []feishu.Mention
	for _, other := range m.Mentions {
		if other.AgentName == "" || other.AgentName == d.cfg.Agent {
			continue
		}
		if bot, ok := d.app.book.Agent(other.AgentName, "", other.Name); ok && bot.OpenID != "" {
			out = append(out, feishu.Mention{Key: other.Key, OpenID: bot.OpenID, Name: cmp.Or(other.Name, bot.Name),
				Type: feishu.SenderBot})
		}
	}
	return out
}

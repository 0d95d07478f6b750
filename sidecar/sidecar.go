// Package sidecar puts the parts together: one Sidecar runs beside one bot.
//
// # The path of a message
//
// What the bot says comes to the sender: recorded, written to the outbox, published. What
// the others say comes from the queues to the receiver, which takes it through the stages
// that paths.go lists: those of the recorder, the decider and the deliverer. Nothing else
// moves messages. What all of them know of chats and of Feishu is in chats and app; what
// people see is in watch.
//
// # Goroutines
//
// [Sidecar.Run] owns them all: the HTTP server; for each of the two queues
// (bots' messages, users' messages) a publisher and a reader; one goroutine for each chat
// that has work; the watch on the groups file; with a gateway or a connector, that and the
// reader of what Feishu's events brought. Only a failed listener ends the
// process; any other part that ends early is started again after a pause.
//
// # Stopping
//
// In the order of the flow: requests are let finish, readers stop, the delivery
// under way ends, the gateway closes (the bot connects again to the next one),
// the outbox has a last try, positions are stored, files are closed. All of it takes at most [stopWithin].
package sidecar

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/delivery"
	"feishu-relay/mailapi"
	"feishu-relay/mcptools"
	"feishu-relay/relay"
)

// Times of a stop. Their sum is the bound on the whole.
const (
	finishRequests  = 3 * time.Second
	finishDelivery  = 4500 * time.Millisecond
	finishGateway   = time.Second // the bot's calls; it tries again what is cut
	finishPublish   = 2 * time.Second
	stopWithin      = finishRequests + finishDelivery + finishGateway + finishPublish
	restartPause    = time.Second // before a part that ended early is started again, doubled up to
	restartPauseMax = 30 * time.Second
)

// Sidecar is one bot's relay: its parts, which New wires. None of its own methods handles
// a message.
type Sidecar struct {
	*base
	started time.Time
	probe   folderProbe

	chats   *chats     // what is known of chats and peers
	records *records   // what the sidecars of each group agree on
	app     *app       // the bot's app in Feishu, and who others are
	lanes   *lanes     // the queues, and the outboxes before them
	watch   *watch     // what people see
	send    *sender    // from the bot to the queue and the transcript
	receive *receiver  // from the queues through the stages
	record  *recorder  // the stages up to the transcript
	decide  *decider   // the stages of the policy
	deliver *deliverer // to the bot
	steer   *steering  // what people in the group see and change
	native  *native    // what Feishu's events brought; nil without a gateway or connector
	front   *front     // nil without a gateway
	speak   *speaker   // nil without a connector
	mail    *mail      // nil with MAILBOX=off
	api     *localAPI
}

// Options is what a caller may add to the configuration.
type Options struct {
	Version string
	Logger  *slog.Logger // nil: discard
	// Settings are those of cfg for GET /v1/status, by variable and without secrets; nil: it has none.
	Settings map[string]string
	// Trace is called at the steps of a message's way that a crash between
	// them matters for; tests end the process there. Of a send: accepted,
	// recorded, answering, published; of a user's message: shared, heard; of
	// another bot's: claimed, noted, inject, delivered, settling; of what people
	// steer: marked, sending, shown, released, given.
	Trace func(step string)

	channels []delivery.Channel // of a benchmark, in place of those to a bot; nil: not used
}

// New opens everything on disk and binds the listeners. It starts nothing.
func New(cfg Config, opts Options) (_ *Sidecar, err error) {
	b := newBase(cfg, opts)
	s := &Sidecar{base: b, started: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	for _, w := range b.cfg.Warnings() {
		b.log.Warn("a setting may have unexpected effects", "setting", w.Setting, "detail", w.Detail, "fix", w.Fix)
	}
	if err := b.openFolders(); err != nil {
		return nil, onDisk(err)
	}
	if s.chats, err = openChats(b); err != nil {
		return nil, onDisk(err)
	}
	if s.app, err = openApp(b, s.chats); err != nil {
		return nil, onDisk(err)
	}
	if s.lanes, err = openLanes(b); err != nil {
		return nil, onDisk(err)
	}
	if s.records, err = openRecords(b, s.chats); err != nil {
		return nil, onDisk(err)
	}
	s.watch = openWatch(b, s.chats, s.records, s.app, s.lanes)
	if s.deliver, err = openDeliverer(b, s.chats, s.app, s.watch); err != nil {
		return nil, onDisk(err)
	}
	if s.send, err = openSender(b, s.chats, s.app, s.watch, s.lanes, s.deliver.given); err != nil {
		return nil, onDisk(err)
	}
	if s.receive, err = openReceiver(b, s.chats, s.app, s.watch, s.deliver); err != nil {
		return nil, onDisk(err)
	}
	s.deliver.receive = s.receive // they need each other: what was delivered is settled
	s.record = &recorder{base: b, chats: s.chats, app: s.app, watch: s.watch, waiting: &s.receive.unwritten}
	if s.decide, err = newDecider(b, s.chats, s.records, s.app, s.watch, s.deliver, s.receive); err != nil {
		return nil, err
	}
	presence, err := openPresence(b, s.deliver.bot)
	if err != nil {
		return nil, onDisk(err)
	}
	s.record.secretOf = presence.secretOf
	s.steer, err = openSteering(b, s.chats, s.records, s.app, s.lanes, s.watch, s.receive, s.deliver, presence)
	if err != nil {
		return nil, onDisk(err)
	}
	s.send.steer, s.send.deliver, s.decide.steer = s.steer, s.deliver, s.steer
	s.steer.stages = relay.Pipeline[*arrival]{{Name: "mention", Apply: s.decide.noteMentions},
		{Name: stageInject, Apply: s.deliver.inject}}
	if s.native, err = openNative(b, s.chats, s.app, s.send, s.receive, s.steer); err != nil {
		return nil, onDisk(err)
	}
	if s.mail, err = openMail(b, s.chats, s.app, s.lanes, s.watch, s.deliver, presence); err != nil {
		return nil, onDisk(err)
	}
	if s.api, err = openAPI(b); err != nil {
		return nil, onDisk(err)
	}
	if s.front, err = openFront(b, host{app: s.app, chats: s.chats, send: s.send, native: s.native,
		deliver: s.deliver}, s.mail, s.api.failures); err != nil {
		return nil, err
	}
	s.deliver.review, s.record.review = s.steer.fate, s.steer.review
	if err := s.deliver.open(opts.channels); err != nil {
		return nil, onDisk(err)
	}
	if s.speak, err = newSpeaker(b, s.chats, s.app, s.send, s.native); err != nil {
		return nil, err
	}
	s.receive.bots, s.receive.users = s.metrics.measured(s.botsPath()), s.metrics.measured(s.usersPath())
	if s.native != nil {
		s.send.native, s.native.ones = s.native, s.metrics.measured(s.onesPath())
		s.native.bots, s.native.people = s.metrics.measured(s.nativesPath()), s.metrics.measured(s.peoplesPath())
	}
	if err := s.api.listen(s.served()); err != nil {
		return nil, err
	}
	s.probe.dirs = []setFolder{{"RELAY_DIR", cfg.RelayDir}, {"TRANSCRIPT_DIR", cfg.TranscriptDir},
		{"RELAY_DIR", s.lanes.bots.folder}, {"RELAY_DIR", s.lanes.users.folder}}
	if s.mail != nil {
		s.probe.dirs = append(s.probe.dirs, setFolder{"MAILBOX_DIR", cfg.Mailbox.Dir})
	}
	s.measure()
	return s, nil
}

// Addr is where the local API listens.
func (s *Sidecar) Addr() net.Addr { return s.api.listener.Addr() }

// Gateway is where the bot's SDK is pointed at; nil without a gateway.
func (s *Sidecar) Gateway() net.Addr {
	if s.front == nil {
		return nil
	}
	return s.front.listen.Addr()
}

// served is what the local API serves.
func (s *Sidecar) served() httpapi.Options {
	o := httpapi.Options{Send: s.send.Send, Hear: s.send.Hear, Decide: s.decide.Decide,
		Status: func() any { return s.Status() }, Ready: s.Ready, Visible: s.chats.in, Transcripts: s.chats.transcript,
		Group: s.watch.groupShown, Depths: s.decide.depthsShown, Stream: s.deliver.doors.stream,
		Deliveries: settlements{s.deliver, s.mail}, Events: s.watch.events, Outcomes: s.watch.outcomes}
	o.Groups, o.Notices = s.steer, s.chats.shown.TailTo
	o.File = (&files{s.base, s.chats, s.app}).open
	mail := mailapi.Options{Lines: &s.api.lines, Logger: s.log}
	tools := mcptools.Options{Transcripts: s.chats.transcript, WhoAmI: s.app.whoAmI, Version: s.version, Logger: s.log,
		Visible: func(channel, chat string) bool { return s.chats.in(channel, relay.ChatID(chat)) }}
	tools.File = mcptools.OpenFile(o.File)
	if s.mail != nil { // a nil *Agent in an interface would not be nil
		mail.Mailbox, tools.Mailbox = s.mail.agent, s.mail.agent
	}
	mail.MCP = mcptools.Handler(mcptools.New(tools))
	o.Mail = mailapi.New(mail)
	if s.mail != nil && s.mail.doors.peers != nil {
		s.mail.doors.peers.showMail(&o)
	}
	if s.front != nil {
		o.CA = s.front.entry.CA()
	}
	if s.speak != nil {
		o.Say = s.speak.say
	}
	return o
}

// Package sidecar combines the other packages: one Sidecar runs beside one bot.
//
// # The path of a message
//
// The sender handles what the bot says: it records a message, writes it to the outbox and
// publishes it. The receiver reads other bots' messages from the queues and passes them through
// the stages that paths.go lists: those of the recorder, the decider and the deliverer. Nothing
// else moves messages. State about chats and about Feishu that several parts need is in chats
// and app. Events and outcomes for viewers are in watch.
//
// # Goroutines
//
// [Sidecar.Run] owns them all: the HTTP server; a publisher and a reader for each of the two
// queues (bots' messages, users' messages); one goroutine for each chat with work; the watcher
// of the groups file; and with a gateway or a connector, that and the reader of the stored
// events of Feishu. Only a failed listener ends the process. Any other part that ends early is
// restarted after a pause.
//
// # Stopping
//
// Parts stop in the order of the message flow: requests finish, readers stop, the current
// delivery ends, the gateway closes (the bot then reconnects to the next process), the outbox
// publishes for the last time, positions are stored, files are closed. All of it takes at most
// [stopWithin].
package sidecar

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
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

// Sidecar is one bot's relay. New creates and connects its parts. Its own methods handle no
// messages.
type Sidecar struct {
	*base
	started time.Time
	probe   folderProbe

	chats   *chats     // memberships, conversations and peers
	records *records   // the settings of each group, which its sidecars agree on
	app     *app       // the bot's app in Feishu, and the ids of others
	lanes   *lanes     // the queues with their outboxes
	watch   *watch     // events and outcomes for viewers
	send    *sender    // from the bot to the queue and the transcript
	receive *receiver  // from the queues through the stages
	record  *recorder  // the stages up to the transcript
	decide  *decider   // the stages of the policy
	deliver *deliverer // to the bot
	steer   *steering  // people's commands, and notices in groups
	native  *native    // messages from Feishu's events; nil without a gateway or connector
	front   *front     // nil without a gateway
	speak   *speaker   // nil without a connector
	mail    *mail      // nil with MAILBOX=off
	api     *localAPI
}

// Options are additions to the configuration.
type Options struct {
	Version string
	Logger  *slog.Logger // nil: discard
	// Settings are those of cfg for GET /v1/status, by variable and without secrets; nil: it has none.
	Settings map[string]string
	// SelfTest answers GET /v1/selftest. It is given the status.
	SelfTest func(http.ResponseWriter, *http.Request, Status)
	// Trace is called between the steps of a message where a crash matters; tests end the
	// process there. Of a send: accepted,
	// recorded, answering, published; of a user's message: shared, heard; of
	// another bot's: claimed, noted, inject, delivered, settling; of what people
	// steer: marked, sending, shown, released, given.
	Trace func(step string)

	channels []delivery.Channel // of a benchmark, in place of those to a bot; nil: not used
}

// New opens all files and binds the listeners. It starts no goroutine.
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
		return nil, err
	}
	if s.chats, err = openChats(b); err != nil {
		return nil, err
	}
	if s.app, err = openApp(b, s.chats); err != nil {
		return nil, err
	}
	if s.lanes, err = openLanes(b); err != nil {
		return nil, err
	}
	if s.records, err = openRecords(b, s.chats); err != nil {
		return nil, err
	}
	s.watch = openWatch(b, s.chats, s.records, s.app, s.lanes)
	if s.deliver, err = openDeliverer(b, s.chats, s.app, s.watch); err != nil {
		return nil, err
	}
	if s.send, err = openSender(b, s.chats, s.app, s.watch, s.lanes, s.deliver.given); err != nil {
		return nil, err
	}
	if s.receive, err = openReceiver(b, s.chats, s.app, s.watch, s.deliver); err != nil {
		return nil, err
	}
	s.deliver.receive = s.receive // they need each other: what was delivered is settled
	s.record = &recorder{base: b, chats: s.chats, app: s.app, watch: s.watch, waiting: &s.receive.unwritten}
	if s.decide, err = newDecider(b, s.chats, s.records, s.app, s.watch, s.deliver, s.receive); err != nil {
		return nil, &setting{err}
	}
	presence, err := openPresence(b, s.deliver.bot, func() string { return s.app.self().Name })
	if err != nil {
		return nil, err
	}
	s.record.secretOf = presence.secretOf
	s.steer, err = openSteering(b, s.chats, s.records, s.app, s.lanes, s.watch, s.receive, s.deliver, presence)
	if err != nil {
		return nil, err
	}
	s.app.left = func(chat relay.ChatID) {
		s.chats.left(relay.DefaultChannel, chat, relay.MillisOf(time.Now()))
		s.steer.left(relay.DefaultChannel, chat)
	}
	s.send.steer, s.send.deliver, s.decide.steer = s.steer, s.deliver, s.steer
	s.steer.stages = relay.Pipeline[*arrival]{{Name: "mention", Apply: s.decide.noteMentions},
		{Name: stageInject, Apply: s.deliver.inject}}
	if s.native, err = openNative(b, s.chats, s.app, s.send, s.receive, s.steer); err != nil {
		return nil, err
	}
	if s.mail, err = openMail(b, s.chats, s.app, s.lanes, s.watch, s.deliver, presence); err != nil {
		return nil, err
	}
	if s.api, err = openAPI(b); err != nil {
		return nil, err
	}
	if s.front, err = openFront(b, host{app: s.app, chats: s.chats, send: s.send, native: s.native,
		deliver: s.deliver}, s.mail, s.api.failures); err != nil {
		return nil, err
	}
	s.deliver.review, s.record.review = s.steer.fate, s.steer.review
	if err := s.deliver.open(opts.channels); err != nil {
		return nil, err
	}
	s.speak = newSpeaker(b, s.chats, s.app, s.send, s.native)
	s.receive.bots, s.receive.users = s.metrics.measured(s.botsPath()), s.metrics.measured(s.usersPath())
	if s.native != nil {
		s.send.native, s.native.ones, s.record.missed = s.native, s.metrics.measured(s.onesPath()), s.native.missed
		s.native.heard = relay.Pipeline[*arrival]{{Name: "transcript", Apply: s.native.recordHeard}}
		s.native.bots, s.native.people = s.metrics.measured(s.nativesPath()), s.metrics.measured(s.peoplesPath())
	}
	if err := s.api.listen(s.served()); err != nil {
		return nil, err
	}
	relayDir := cfg.setBy("RELAY_DIR", cfg.RelayDir)
	s.probe.dirs = []setFolder{{relayDir, cfg.RelayDir}, {cfg.setBy("TRANSCRIPT_DIR", cfg.TranscriptDir), cfg.TranscriptDir},
		{relayDir, s.lanes.bots.folder}, {relayDir, s.lanes.users.folder}}
	if s.mail != nil {
		s.probe.dirs = append(s.probe.dirs, setFolder{cfg.setBy("MAILBOX_DIR", cfg.Mailbox.Dir), cfg.Mailbox.Dir})
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
	o.SelfTest = func(w http.ResponseWriter, r *http.Request) { s.selfTest(w, r, s.Status()) }
	o.Groups, o.Notices = s.steer, s.chats.shown.TailTo
	o.File = (&files{s.base, s.chats, s.app}).open
	mail := mailapi.Options{Lines: &s.api.lines, Logger: s.log}
	tools := mcptools.Options{Transcripts: s.chats.transcript, WhoAmI: s.app.whoAmI, Version: s.version, Logger: s.log,
		Visible: func(channel, chat string) bool { return s.chats.in(channel, relay.ChatID(chat)) },
		File:    mcptools.OpenFile(o.File)}
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

// Package sidecar combines the other packages: one Sidecar runs beside one bot.
//
// # The path of a message
//
// What the bot says and hears comes over the local API (package httpapi), the gateway (its host is in host.go) or the
// connector, and goes to package core, which decides and does everything about messages. The sidecar is what the core
// asks and tells: who the bot and the others are (app.go), what holds in a chat (chats.go), how the bot gets a message
// (channels.go, gateway.go, webhook.go), what is done in Feishu (infeishu.go), and what people see of it (watch.go).
//
// # Stopping
//
// Requests finish, readers stop, the bot answers what it was given, the gateway closes (the bot then connects to the
// next process), the lanes publish for the last time, files are closed. All of it takes at most [stopWithin].
package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/book"
	"feishu-relay/core"
	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailapi"
	"feishu-relay/mcptools"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
)

// Times of a stop. Their sum is the bound on the whole.
const (
	finishRequests = 3 * time.Second
	finishDelivery = 4500 * time.Millisecond
	finishGateway  = time.Second // the bot's calls; it tries again what is cut
	finishPublish  = 2 * time.Second
	stopWithin     = finishRequests + finishDelivery + finishGateway + finishPublish
)

// Sidecar is one bot's relay. New creates and connects its parts.
type Sidecar struct {
	*base
	started  time.Time
	probe    folderProbe
	chats    *chats
	app      *app // the bot's app in Feishu, and the ids of others
	core     *core.Core
	lanes    map[string]relay.Backend // by name
	channels channels                 // to the bot
	presence *presence
	events   *httpapi.Events
	judge    policy.Judge
	llm      *judge.LLM // nil where the rules judge
	front    *front     // nil without a gateway
	speak    *speaker   // nil without a connector
	mail     *mail      // nil with MAILBOX=off
	peers    *peerMail  // nil where mail does not come by the gateway as private chats
	api      *localAPI

	away   atomic.Bool // the last delivery of all failed
	bot    botState
	copies *copies
	passed *lru.Cache[relay.MessageID, struct{}] // what the bot has from Feishu, though it was to wait
}

// Options are additions to the configuration.
type Options struct {
	Version string
	Logger  *slog.Logger // nil: discard
	// Settings are those of cfg for GET /v1/status, by variable and without secrets; nil: it has none.
	Settings map[string]string
	// SelfTest answers GET /v1/selftest. It is given the status.
	SelfTest func(http.ResponseWriter, *http.Request, Status)
	// Trace is called between the steps of a message where a crash matters; tests end the process there. Of a send:
	// accepted, answering, recorded, published; of a person's message: heard, given; of another bot's: arrived, taken,
	// recorded, inject, delivered; of what people steer: marked, sending, shown.
	Trace func(step string)

	channels []core.Channel // of a benchmark, in place of those to a bot; nil: not used
}

// Until its predecessor of the same name has ended, which may take lockWithin, a sidecar tries every lockPause.
const (
	lockWithin = 2 * time.Second
	lockPause  = 50 * time.Millisecond
)

// New opens all files and binds the listeners. It starts no goroutine.
func New(cfg Config, opts Options) (*Sidecar, error) {
	for began := time.Now(); ; time.Sleep(lockPause) {
		s, err := open(cfg, opts)
		if !errors.Is(err, book.ErrInUse) {
			return s, err
		}
		if time.Since(began) >= lockWithin {
			return nil, &setting{fmt.Errorf("another sidecar with AGENT_NAME=%s runs on %s; "+
				"give each bot an AGENT_NAME of its own: %w", cfg.Agent, cfg.RelayDir, err)}
		}
	}
}

func open(cfg Config, opts Options) (*Sidecar, error) {
	s := &Sidecar{base: newBase(cfg, opts), started: time.Now(), events: &httpapi.Events{}, copies: newCopies(),
		api: &localAPI{failures: attempts.New()}}
	s.passed, _ = lru.New[relay.MessageID, struct{}](maxCopies) // fails only for a size below 1
	for _, open := range []func() error{s.openFolders, s.openChats, s.openApp, s.openPresence, s.openLanes, s.openJudge,
		func() error { return s.openCore(opts.channels) }, s.openMail, s.openFront, s.openSpeaker, s.listen} {
		if err := open(); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	relayDir := cfg.setBy("RELAY_DIR", cfg.RelayDir)
	s.probe.dirs = []setFolder{{relayDir, cfg.RelayDir}, {cfg.setBy("TRANSCRIPT_DIR", cfg.TranscriptDir), cfg.TranscriptDir},
		{relayDir, s.bookDir()}}
	if s.mail != nil {
		s.probe.dirs = append(s.probe.dirs, setFolder{cfg.setBy("MAILBOX_DIR", cfg.Mailbox.Dir), cfg.Mailbox.Dir})
	}
	s.metrics.register.MustRegister(states{s})
	return s, nil
}

// bookDir is the folder of the core's state.
func (b *base) bookDir() string {
	return filepath.Join(b.cfg.RelayDir, "agents", safefile.Name(string(b.cfg.Agent)))
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
	o := httpapi.Options{Send: s.Send, Hear: s.hear, Decide: s.Decide, Status: func() any { return s.Status() },
		Ready: s.Ready, Visible: s.in, Transcripts: s.chats.transcript, Group: s.groupShown, Depths: s.depths,
		Stream: s.channels.stream, Deliveries: deliveries{s}, Events: s.events, Outcomes: s.outcomes, Groups: apiGroups{s},
		Notices: s.notices, File: s.openFile,
		SelfTest: func(w http.ResponseWriter, r *http.Request) { s.selfTest(w, r, s.Status()) }}
	mail := mailapi.Options{Lines: &s.api.lines, Logger: s.log}
	tools := mcptools.Options{Transcripts: s.chats.transcript, WhoAmI: s.app.whoAmI, Version: s.version, Logger: s.log,
		Visible: func(channel, chat string) bool { return s.in(channel, relay.ChatID(chat)) },
		File:    mcptools.OpenFile(o.File)}
	if s.mail != nil { // a nil *Agent in an interface would not be nil
		mail.Mailbox, tools.Mailbox = s.mail.agent, s.mail.agent
	}
	mail.MCP = mcptools.Handler(mcptools.New(tools))
	o.Mail = mailapi.New(mail)
	if s.front != nil {
		o.CA = s.front.entry.CA()
	}
	if s.speak != nil {
		o.Say = s.speak.say
	}
	return o
}

// in reports whether messages of a chat may reach the bot and its transcript.
func (s *Sidecar) in(channel string, chat relay.ChatID) bool {
	return s.core.In(core.ChatOf(channel, chat))
}

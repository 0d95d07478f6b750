// Package sidecar puts the parts together: one Sidecar runs beside one bot.
//
// # The way of a message
//
// What the bot says comes in through [Sidecar.Send]: recorded, written to the
// outbox, published. What the others say comes from the backend and goes along
// the stages that [Sidecar.botsWay] lists. Nothing else moves messages.
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
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	xrate "golang.org/x/time/rate"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/connector"
	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/delivery"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox/agent"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
	"feishu-relay/relay/outbox"
	"feishu-relay/transcript"
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

// The two queues.
const (
	outboundQueue = "outbound" // bots' messages
	inboundQueue  = "inbound"  // users' messages, for transcripts only
)

// lane is one queue in both directions.
type lane struct {
	name   string
	queue  relay.Backend
	box    *outbox.Box
	folder string // of the box
	way    way

	publishing publishing
}

// Sidecar is one bot's relay.
type Sidecar struct {
	cfg     Config
	version string
	log     *slog.Logger
	trace   func(step string)

	listener net.Listener
	server   *http.Server
	conns    connections
	failures *attempts.Failures // wrong tokens, of the API and of tunnels
	closers  []func() error     // last opened first

	bots, users  lane
	transcript   *transcript.Store
	groups       *groups.Watcher
	dedup        *dedup.Window // other bots' messages
	sentIDs      *dedup.Window // own messages
	showing      *dedup.Window // messages that watchers were shown
	given        *givenLines
	signedOut    *dedup.Window             // sessions of browsers
	userTimes    *lru.Cache[string, int64] // of a chat's topic: when a person spoke last, as far as was seen
	hearing      *lru.Cache[string, int64] // the same, of messages that passed to the bot and may not be recorded yet
	members      *members
	peers        *peers
	judge        policy.Judge
	llm          *judge.LLM // nil where the rules judge, or nobody
	doors        doors
	deliveries   *delivery.Deliveries
	delivering   sync.WaitGroup // deliveries that a chat does not wait for
	botAway      atomic.Bool    // the last delivery of all failed
	mail         *agent.Agent   // nil with MAILBOX=off
	mailDoors    *mailDoors
	lines        httpapi.Lines // of a bot at /v1/mailbox/ws
	talks        *talks
	book         *feishu.Book // of this bot's Feishu app
	api          *feishu.API
	botsAsked    asked
	membersAsked asked
	asking       *xrate.Limiter // of questions about memberships
	selfDue      asked          // for the bot's own identity
	personsAsked asked
	front        *front               // nil without a gateway
	connector    *connector.Connector // nil without one
	native       *nativeSpool         // nil with neither
	events       *httpapi.Events
	outcomes     *outcome.Log
	delivered    *lru.Cache[relay.MessageID, outcome.Outcome] // on the stream, where the bot may acknowledge it
	metrics      *metrics
	problems     *problems
	folders      folderProbe
	chats        *chats
	unwritten    chatCounts // messages that wait for their transcript
	inFlight     inFlight
	names        atomic.Pointer[namesOf]
	sending      chatLocks
	recording    sync.WaitGroup // own messages on their way to the transcript and to watchers
	bad          quarantined
	started      time.Time
}

// Options is what a caller may add to the configuration.
type Options struct {
	Version string
	Logger  *slog.Logger // nil: discard
	// Trace is called at the steps of a message's way that a crash between
	// them matters for; tests end the process there. Of a send: accepted,
	// recorded, answering, published; of a user's message: shared, heard; of
	// another bot's: claimed, noted, inject, delivered, settling.
	Trace func(step string)
}

// New opens everything on disk and binds the listener. It starts nothing.
func New(cfg Config, opts Options) (_ *Sidecar, err error) {
	s := &Sidecar{cfg: cfg, version: opts.Version, log: opts.Logger, trace: opts.Trace, started: time.Now(),
		events: &httpapi.Events{}, metrics: newMetrics(cfg.Agent, opts.Version), problems: newProblems(), chats: newChats(),
		showing: dedup.Memory(dedup.DefaultSize), failures: attempts.New(), asking: xrate.NewLimiter(askRate, askBurst)}
	s.userTimes, _ = lru.New[string, int64](maxChats) // fails only for a size below 1
	s.hearing, _ = lru.New[string, int64](maxChats)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = newLimitedLog(s.log.Handler())
	for _, w := range cfg.Warnings() {
		s.log.Warn("a setting may surprise", "setting", w.Setting, "detail", w.Detail, "fix", w.Fix)
	}
	if s.trace == nil {
		s.trace = func(string) {}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := opening(s.openFiles()); err != nil {
		return nil, err
	}
	if err := opening(s.openFeishu()); err != nil {
		return nil, err
	}
	if err := opening(s.openLanes()); err != nil {
		return nil, err
	}
	if err := opening(s.openOutcomes()); err != nil {
		return nil, err
	}
	if err := s.openJudge(); err != nil {
		return nil, err
	}
	if err := s.openDoor(); err != nil {
		return nil, err
	}
	if err := opening(s.openSpool()); err != nil {
		return nil, err
	}
	if err := opening(s.openMailbox()); err != nil {
		return nil, err
	}
	if err := s.openGateway(); err != nil {
		return nil, err
	}
	if err := opening(s.openDeliveries()); err != nil {
		return nil, err
	}
	if err := s.openConnector(); err != nil {
		return nil, err
	}
	if err := s.openAPI(); err != nil {
		return nil, err
	}
	s.folders.dirs = []string{cfg.RelayDir, cfg.TranscriptDir, s.bots.folder, s.users.folder}
	if s.mail != nil {
		s.folders.dirs = append(s.folders.dirs, cfg.Mailbox.Dir)
	}
	s.measure()
	return s, nil
}

// Addr is where the local API listens.
func (s *Sidecar) Addr() net.Addr { return s.listener.Addr() }

func (s *Sidecar) onClose(f func() error) { s.closers = append(s.closers, f) }

func (s *Sidecar) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// folder opens a folder below RELAY_DIR for the time of the sidecar.
func (s *Sidecar) folder(path ...string) (*os.Root, error) {
	root, err := safefile.OpenDir(s.cfg.RelayDir)
	for _, name := range path {
		if err != nil {
			return nil, err
		}
		above := root
		root, err = safefile.OpenSub(above, name)
		err = errors.Join(err, above.Close())
	}
	if err != nil {
		return nil, err
	}
	s.onClose(root.Close)
	return root, nil
}

func (s *Sidecar) openFiles() error {
	if err := s.lockAgent(); err != nil {
		return err
	}
	name := safefile.Name(string(s.cfg.Agent))
	var err error
	if s.transcript, err = transcript.Open(s.cfg.TranscriptDir, &transcript.Options{Logger: s.log, Index: newConversations}); err != nil {
		return err
	}
	s.onClose(s.transcript.Close)

	s.groups = groups.New(s.cfg.GroupsFile, s.log)
	if err := s.groups.Load(); err != nil {
		return &setting{fmt.Errorf("GROUPS_FILE: %w", err)}
	}

	processed, err := s.folder("processed")
	if err != nil {
		return err
	}
	for _, w := range []struct {
		to   **dedup.Window
		name string
	}{{&s.dedup, name + ".jsonl"}, {&s.sentIDs, name + ".sent.jsonl"}} {
		if *w.to, err = dedup.Open(processed, w.name, s.cfg.DedupSize); err != nil {
			return err
		}
		s.onClose((*w.to).Close)
	}
	// Each message takes three entries, and as many more as it brings lines of context.
	given, err := dedup.Open(processed, name+".given.jsonl", s.cfg.DedupSize*(3+min(s.cfg.InjectContext, 5)))
	if err != nil {
		return err
	}
	s.given = &givenLines{given}
	s.onClose(given.Close)
	if s.signedOut, err = dedup.Open(processed, name+".sessions.jsonl", httpapi.MaxEnded); err != nil {
		return err
	}
	s.onClose(s.signedOut.Close)
	s.bad = quarantined{root: processed, name: name + ".malformed.jsonl"}

	chats, err := s.folder("chats")
	if err != nil {
		return err
	}
	s.members, err = openMembers(chats, name+".json", &s.cfg, s.groups.Current, func(err error) { s.problems.set("members", err) })
	if err != nil {
		return err
	}
	if s.talks, err = openTalks(chats, name+".talks.json", func(err error) { s.problems.set("talks", err) }); err != nil {
		return err
	}
	if !s.members.enforced() && s.cfg.MembershipCheck != "off" {
		s.log.Warn("every chat on the relay reaches this bot: no groups are known. " +
			"Name them with their members under \"groups\" in GROUPS_FILE, or set MEMBERSHIP_CHECK=off to say that this is meant")
	}
	s.peers = newPeers(s.log, func(n uint64) { s.metrics.missing.Add(float64(n)) },
		func(bot relay.AgentName, ahead time.Duration) {
			s.problems.set("clock", fmt.Errorf("the clock of %s is %s ahead", bot, ahead.Round(time.Second)))
		})
	return nil
}

// lockAgent keeps a second sidecar of the same name off the same folder: they
// would share one position and one outbox, and each lose what the other takes.
func (s *Sidecar) lockAgent() error {
	root, err := s.folder("offsets")
	if err != nil {
		return err
	}
	if fs := safefile.NetworkFS(root.Name()); fs != "" {
		s.log.Warn("the relay folder is on a network file system, where appends, locks and change events are not reliable; use Redis instead",
			"folder", s.cfg.RelayDir, "filesystem", fs)
	}
	return s.lock(root, safefile.Name(string(s.cfg.Agent))+".lock", s.cfg.RelayDir)
}

// lock keeps a second process off a folder of the agent's; where is what the
// operator knows it by.
func (s *Sidecar) lock(root *os.Root, name, where string) error {
	f, err := safefile.Open(root, name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("lock the agent's state: %w", err)
	}
	s.onClose(f.Close)
	for range 20 { // a predecessor may be at its last breath
		ok, err := safefile.TryLock(f)
		if err != nil {
			return fmt.Errorf("lock the agent's state: %w", err)
		}
		if ok {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return &setting{fmt.Errorf("another sidecar with AGENT_NAME=%s runs on %s; give each bot an AGENT_NAME of its own", s.cfg.Agent, where)}
}

func (s *Sidecar) openJudge() error {
	switch {
	case !s.cfg.Limits.Check:
	case s.cfg.Judge.APIKey == "":
		s.judge = countedJudge{judge.Rules{}, s.metrics}
		s.log.Info("no OPENAI_API_KEY: the built-in rules judge between threshold and hard limit")
	default:
		llm, err := judge.New(judge.Options{APIKey: string(s.cfg.Judge.APIKey), BaseURL: s.cfg.Judge.BaseURL,
			Model: s.cfg.Judge.Model, Timeout: s.cfg.Limits.Timeout, Logger: s.log})
		if err != nil {
			return fmt.Errorf("judge: %w", err)
		}
		s.judge, s.llm = countedJudge{llm, s.metrics}, llm
	}
	return nil
}

func (s *Sidecar) openDoor() error {
	if s.cfg.InjectURL != "" {
		s.doors.webhook = newWebhook(s.cfg.InjectURL, s.cfg.InjectSecret)
		return nil
	}
	processed, err := s.folder("processed")
	if err != nil {
		return err
	}
	s.doors.stream, err = httpapi.NewStream(httpapi.StreamOptions{Root: processed,
		Name: safefile.Name(string(s.cfg.Agent)) + ".stream.jsonl", MaxAge: s.cfg.MaxAge, Logger: s.log,
		Receipt: func(id relay.MessageID) {
			s.noteAcknowledged(id)
			s.deliveries.Acknowledge(id)
			s.events.Publish(httpapi.Event{Type: httpapi.EventReceipt, RelayMsgID: id, Door: doorStream})
		}})
	if err != nil {
		return err
	}
	s.onClose(s.doors.stream.Close)
	return nil
}

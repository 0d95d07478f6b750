package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/mailbox"
)

// tryLimit bounds a probe, longLimit one that waits for a service which may take its
// time, and all probes together. A probe that does not end by itself, such as a look
// into a folder on a dead network drive, is left behind and reported as a failure.
const (
	tryLimit  = 5 * time.Second
	longLimit = 12 * time.Second
)

// status says how a probe went.
type status string

const (
	statusOK      status = "ok"
	statusWarn    status = "warn"    // works, and may not do what is expected
	statusFail    status = "fail"    // does not work
	statusUnknown status = "unknown" // cannot be seen from here, or not yet
)

// finding is one result of a probe. Name is the probe's, filled in by the runner.
// Mend says how to fix it, or where to look at what is unknown; it is empty where nothing is to be fixed.
type finding struct {
	Name         string
	Status       status
	Detail, Mend text
}

// judged is warning or failure.
type judged = func(mend text, en, zh string, args ...any) []finding

func well(en, zh string, args ...any) []finding {
	return []finding{{Status: statusOK, Detail: say(en, zh, args...)}}
}

func unseen(look text, en, zh string, args ...any) []finding {
	return []finding{{Status: statusUnknown, Detail: say(en, zh, args...), Mend: look}}
}

func warning(mend text, en, zh string, args ...any) []finding {
	return []finding{{Status: statusWarn, Detail: say(en, zh, args...), Mend: mend}}
}

func failure(mend text, en, zh string, args ...any) []finding {
	return []finding{{Status: statusFail, Detail: say(en, zh, args...), Mend: mend}}
}

// nameAll gives findings the name of their probe.
func nameAll(name string, found []finding) []finding {
	for i := range found {
		found[i].Name = name
	}
	return found
}

func failed(found []finding) bool {
	return slices.ContainsFunc(found, func(f finding) bool { return f.Status == statusFail })
}

// subject is what probes look at: the configuration, and what several of them need,
// which is found out once. A function that returns findings returns nil for success.
type subject struct {
	*config
	client  redis.UniversalClient              // of REDIS_URL, connected at its first call; nil without one
	sidecar func() (*runningSidecar, error)    // that listens at LISTEN_ADDR
	redis   func() (*redisServer, []finding)   // of REDIS_URL
	feishu  func() (*feishuCaller, []finding)  // with the app's token, if there is an app
	cards   func() ([]mailbox.Card, []finding) // of the mailbox
}

func newSubject(ctx context.Context, c *config) *subject {
	s := &subject{config: c, client: openRedis(ctx, c)}
	s.sidecar = sync.OnceValues(func() (*runningSidecar, error) { return askSidecar(ctx, c) })
	s.redis = sync.OnceValues(func() (*redisServer, []finding) { return reachRedis(ctx, s) })
	s.feishu = sync.OnceValues(func() (*feishuCaller, []finding) { return reachFeishu(ctx, c) })
	s.cards = sync.OnceValues(func() ([]mailbox.Card, []finding) { return readCards(ctx, c) })
	return s
}

// probe tries one thing, if when holds (nil: always). It is left out if one of the
// probes that it needs failed or was left out: it would only repeat what that reports.
// run returns when ctx is done, as far as the system lets it.
type probe struct {
	area  string // the heading above its findings
	name  string
	limit time.Duration
	when  func(*subject) bool
	needs []string
	run   probing
}

type probing = func(context.Context, *subject) []finding

func onFiles(s *subject) bool    { return s.Backend != "redis" }
func onRedis(s *subject) bool    { return s.Backend == "redis" }
func mailOff(s *subject) bool    { return !s.Mailbox.On }
func mailFiles(s *subject) bool  { return s.Mailbox.On && s.Backend != "redis" }
func mailRedis(s *subject) bool  { return s.Mailbox.On && s.Backend == "redis" }
func mailSigned(s *subject) bool { return s.Mailbox.On && s.RelaySecret != "" }
func onFeishu(s *subject) bool   { return s.KnowsFeishu() }
func hasApp(s *subject) bool     { return s.KnowsFeishu() && s.AppID != "" && s.AppSecret != "" }
func adminsSteer(s *subject) bool {
	file := readGroups(s.GroupsFile)
	if file == nil || s.Steer.By == steerAdmins {
		return len(s.Steer.Commands) > 0 && s.Steer.By == steerAdmins
	}
	for _, g := range file.Groups {
		if g.SteerBy == steerAdmins {
			return len(s.Steer.Commands) > 0
		}
	}
	return false
}
func hasGateway(s *subject) bool { return s.Gateway.Addr != "" }
func hasWebhook(s *subject) bool { return s.BotWebhookURL != "" }
func oneToken(s *subject) bool   { return beyondLoopback(s.ListenAddr) && s.AdminToken == "" }

// probes are in the order in which their findings are printed.
func probes(c *config) []probe {
	judging := min(c.Limits.Timeout+time.Second, longLimit)
	relayable, mail := []string{"redis", "redis role", "redis memory"}, []string{"mailbox", "mailbox folder"}
	bot := []string{"Feishu bot"}
	return []probe{
		{"Files", "data folder", tryLimit, nil, nil, checkDataFolder},
		{"Files", "relay folder", tryLimit, nil, nil, checkRelayDir},
		{"Files", "transcript folder", tryLimit, nil, nil, checkTranscriptDir},
		{"Files", "disk space", tryLimit, nil, nil, checkDisks},
		{"Files", "files of others", tryLimit, nil, nil, checkOwners},
		{"Files", "groups file", tryLimit, nil, nil, checkGroups},
		{"Relay", "file queue", tryLimit, onFiles, nil, checkQueueFiles},
		{"Relay", "redis", tryLimit, onRedis, nil, checkRedis},
		{"Relay", "redis role", tryLimit, onRedis, []string{"redis"}, checkRedisRole},
		{"Relay", "redis memory", tryLimit, onRedis, []string{"redis"}, checkRedisMemory},
		{"Relay", "redis rights", tryLimit, onRedis, relayable, checkRedisRights},
		{"Relay", "redis outcomes", tryLimit, onRedis, []string{"redis rights"}, checkOutcomes},
		{"Relay", "redis marks", tryLimit, onRedis, []string{"redis rights"}, checkMarks},
		{"Relay", "redis stream", tryLimit, onRedis, relayable, checkStream},
		{"Relay", "clock", tryLimit, onRedis, []string{"redis"}, checkClock},
		{"Relay", "peer settings", tryLimit, nil, []string{"redis"}, checkPeerSettings},
		{"Relay", "secrets", tryLimit, nil, []string{"redis"}, checkSecrets},
		{"Relay", "signatures", tryLimit, nil, []string{"redis"}, checkLineSignatures},
		{"Relay", "this agent", tryLimit, nil, nil, checkAgent},
		{"Relay", "peers", tryLimit, nil, nil, checkPeers},
		{"Mailbox", "mailbox", tryLimit, mailOff, nil, checkMailboxOff},
		{"Mailbox", "mailbox gateway", tryLimit, mailUnheard, nil, checkMailboxUnheard},
		{"Mailbox", "mailbox", tryLimit, mailRedis, []string{"redis"}, checkMailboxRedis},
		{"Mailbox", "mailbox folder", tryLimit, mailFiles, nil, checkMailboxDir},
		{"Mailbox", "mailbox registry", tryLimit, mailFiles, mail, checkRegistry},
		{"Mailbox", "mailbox signatures", tryLimit, mailSigned, mail, checkSignatures},
		{"Mailbox", "mailbox inboxes", tryLimit, mailRedis, mail, checkInboxRedis},
		{"Mailbox", "mailbox malformed", tryLimit, mailRedis, mail, checkMalformedRedis},
		{"Mailbox", "mailbox inboxes", tryLimit, mailFiles, mail, checkInboxes},
		{"Mailbox", "mailbox malformed", tryLimit, mailFiles, mail, checkMalformed},
		{"Feishu", "Feishu clock", longLimit, onFeishu, nil, checkFeishuClock},
		{"Feishu", "Feishu", longLimit, onFeishu, nil, checkFeishu},
		{"Feishu", "Feishu bot", tryLimit, hasApp, []string{"Feishu"}, checkFeishuBot},
		{"Feishu", "Feishu scopes", tryLimit, hasApp, bot, checkScopes},
		{"Feishu", "Feishu events", tryLimit, hasApp, bot, checkEvents},
		{"Feishu", "Feishu connections", tryLimit, hasApp, bot, checkConnections},
		{"Feishu", "Feishu groups", longLimit, hasApp, bot, checkFeishuGroups},
		{"Feishu", "group managers", longLimit, adminsSteer, nil, checkManagers},
		{"Bot", "gateway", tryLimit, hasGateway, nil, checkGateway},
		{"Bot", "webhook address", tryLimit, hasWebhook, []string{"gateway"}, checkWebhookAddress},
		{"Bot", "gateway certificate", tryLimit, hasGateway, []string{"gateway"}, checkCertificate},
		{"Bot", "bot webhook", tryLimit, hasWebhook, nil, checkWebhook},
		{"Bot", "bot", tryLimit, nil, nil, checkInject},
		{"Judge", "judge", judging, nil, nil, checkJudge},
		{"Sidecar", "local API", tryLimit, nil, nil, checkListen},
		{"Sidecar", "tokens", tryLimit, oneToken, nil, checkTokens},
		{"Sidecar", "sidecar", tryLimit, nil, nil, ofRunning(checkReady)},
		{"Sidecar", "sidecar version", tryLimit, nil, nil, ofRunning(checkVersion)},
		{"Sidecar", "sidecar settings", tryLimit, nil, nil, ofRunning(checkSettings)},
		{"Sidecar", "outbox", tryLimit, nil, nil, ofRunning(checkOutbox)},
		{"Sidecar", "settings of groups", tryLimit, nil, nil, ofRunning(checkEnvironments)},
		{"Sidecar", "sidecar errors", tryLimit, nil, nil, ofRunning(checkErrors)},
		{"Sidecar", "dead letters", tryLimit, nil, nil, ofRunning(checkDeadLetters)},
	}
}

// runCheck probes everything that is configured. It changes nothing that lasts, and
// may be run beside a running sidecar.
func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("check", "check [--json] [--lang LANG] [--env-file FILE]\n\n"+
		"Tries everything that is configured and says how to fix what does not work:\n"+
		"✓ works, ! works, and may not do what you expect, ✗ does not work, ? cannot be seen from here, or not yet;\n"+
		"below it, how to fix it. With --quiet only what is not ✓, and nothing where all is.\n"+
		"Takes 15 seconds at most, changes nothing, and may be run beside the running sidecar. Feishu is\n"+
		"asked who the bot is, the judge one question, and the bot's webhook what Feishu asks to verify\n"+
		"it; nobody is sent a message. Exit status 1: something fails (✗).\n\n"+
		"  feishu-relay check --env-file bot.env --quiet\n", stdout, stderr)
	asJSON := f.Bool("json", false, "print an array of {name, status, detail, mend}; status is ok, warn, unknown or fail")
	quiet := f.Bool("quiet", false, "print only what is not fine")
	lang := f.language()
	var ofFile []finding
	f.report = func(found []finding) { ofFile = found }
	if file := slices.IndexFunc(args, isBotsFile); file >= 0 {
		fmt.Fprintf(stderr, "check takes no file of bots: try them with `feishu-relay up --try %s`\n", args[file])
		return errUsage
	}
	if _, err := f.parse(args, 0); err != nil {
		return err
	}
	chinese := inChinese(*lang)
	out := newFindings(stdout, *asJSON, chinese)
	out.quiet = *quiet
	cfg, err := loadConfig()
	if err != nil {
		out.add("Configuration", mistakes(err)...)
	} else {
		set := well("AGENT_NAME is %s, RELAY_BACKEND is %s",
			"AGENT_NAME 是 %s，RELAY_BACKEND 是 %s", cfg.Agent, cfg.Backend)
		out.add("Configuration", nameAll("configuration", set)...)
		for _, w := range cfg.Warnings() {
			out.add("Configuration", nameAll(w.Setting, warning(alike(w.Fix), "%s", "", w.Detail))...)
		}
	}
	out.add("Configuration", append(ofFile, checkEnvironment(os.Environ())...)...)
	if err != nil {
		return out.end()
	}
	within, end := context.WithTimeout(ctx, longLimit)
	defer end()
	s := newSubject(within, &cfg)
	all := slices.DeleteFunc(probes(&cfg), func(p probe) bool { return p.when != nil && !p.when(s) })
	for i, result := range start(within, all, s) {
		found := out.await(all[i].name, result) // also after an interruption: what was tried is cleaned up
		if ctx.Err() == nil {
			out.add(all[i].area, found...)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return out.end()
}

// start runs the probes side by side, each after those that it needs.
func start(ctx context.Context, all []probe, s *subject) []chan []finding {
	type outcome struct {
		known chan struct{}
		ok    bool // valid when known is closed
	}
	outcomes, results := map[string]*outcome{}, make([]chan []finding, len(all))
	for _, p := range all {
		outcomes[p.name] = &outcome{make(chan struct{}), true}
	}
	for i, p := range all {
		results[i] = make(chan []finding, 1)
		go func() {
			own := outcomes[p.name]
			defer close(own.known)
			for _, name := range p.needs {
				if need := outcomes[name]; need != nil {
					<-need.known
					own.ok = own.ok && need.ok
				}
			}
			var found []finding
			if own.ok {
				found = p.try(ctx, s)
				own.ok = !failed(found)
			}
			results[i] <- found
		}()
	}
	return results
}

// try runs the probe within its limit, and what ctx leaves of it.
func (p probe) try(ctx context.Context, s *subject) []finding {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	found := make(chan []finding, 1)
	go func() { found <- p.run(ctx, s) }()
	end, _ := ctx.Deadline()
	late := time.NewTimer(time.Until(end) + p.limit/10) // most probes report by themselves what was too slow
	defer late.Stop()
	select {
	case f := <-found:
		return nameAll(p.name, f)
	case <-late.C:
		return nameAll(p.name, failure(say("look what its disk or its network is waiting for", "检查磁盘或网络为什么没有响应"),
			"no result within %s", "%s 内没有结果", p.limit))
	}
}

// plainly is the text of err, in words for what took too long.
func plainly(err error) text {
	if errors.Is(err, context.DeadlineExceeded) {
		return say("no answer in time", "没有按时应答")
	}
	if t, ok := errors.AsType[text](err); ok {
		return t
	}
	return alike(err.Error())
}

// mistakes are those of the configuration, each of which begins with the name of its
// variable.
func mistakes(err error) []finding {
	var out []finding
	for line := range strings.SplitSeq(err.Error(), "\n") {
		name, detail, _ := strings.Cut(line, ": ")
		first, _, _ := strings.Cut(name, ",")
		known := slices.IndexFunc(variables(), func(v setting) bool { return v.name == first })
		if known < 0 {
			found := failure(say("`feishu-relay run --help` lists all variables", "`feishu-relay run --help` 列出所有变量"),
				"%s", "", line)
			out = append(out, nameAll("configuration", found)...)
			continue
		}
		mend := say("set %s: %s", "设置 %s：%s", name, variables()[known].desc)
		if first != name { // the detail says which of them to set
			mend = alike(described(name))
		}
		out = append(out, nameAll(name, failure(mend, "%s", "", detail))...)
	}
	rest := unseen(say("correct the configuration and check again", "改正配置，再检查一次"), "not tried yet", "还没有检查")
	return append(out, nameAll("everything else", rest)...)
}

// described explains the variables of a list.
func described(names string) string {
	var out []string
	for name := range strings.SplitSeq(names, ", ") {
		for _, v := range variables() {
			if v.name == name {
				out = append(out, name+": "+v.desc)
			}
		}
	}
	return strings.Join(out, "; ")
}

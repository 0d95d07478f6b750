package selftest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu/entry"
	"feishu-relay/group"
	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/sidecar"
)

const (
	endsSoon   = 30 * 24 * time.Hour // a certificate that does is worth a word
	freshError = time.Hour           // how long an error is reported; it may be fixed since
)

// bot tests how the bot is reached, and where it connects to.
func (r *results) bot(ctx context.Context) {
	if r.cfg.Gateway.Addr != "" {
		r.test("Bot", "gateway")
		if r.address(ctx, "GATEWAY_ADDR", r.cfg.Gateway.Addr) {
			r.test("Bot", "gateway certificate")
			r.certificate()
		}
	}
	if r.cfg.WebhookAddr != "" {
		r.test("Bot", "webhook address")
		r.address(ctx, "WEBHOOK_ADDR", r.cfg.WebhookAddr)
	}
	if r.cfg.BotWebhookURL != "" {
		r.test("Bot", "bot webhook")
		r.connect(ctx, "BOT_WEBHOOK_URL", r.cfg.BotWebhookURL)
	}
	r.test("Bot", "bot")
	if r.cfg.InjectURL != "" {
		r.connect(ctx, "INJECT_URL", r.cfg.InjectURL)
		return
	}
	how := r.say("by stream")
	if r.cfg.Gateway.Addr != "" {
		how = r.say("by gateway")
	}
	switch {
	case r.Running == nil:
		r.unknown("bot unseen", how)
	case r.Running.Door.Connected == nil || !*r.Running.Door.Connected:
		r.unknown("bot away", how)
	default:
		r.ok("bot connected", how, r.Running.Door.Name)
	}
}

// address tries one that the sidecar listens at, or is to listen at.
func (r *results) address(ctx context.Context, setting, addr string) bool {
	if r.Running != nil {
		r.ok("address served", addr)
		return true
	}
	if err := Bound(ctx, addr); err != nil {
		r.fail("address taken", err, setting)
		return false
	}
	r.ok("address free", addr)
	return true
}

// certificate looks at the gateway's certificate, or at the CA that the gateway makes.
func (r *results) certificate() {
	g := r.cfg.Gateway
	switch g.TLS {
	case entry.ModeAuto:
		ca := filepath.Join(r.cfg.DataDir, "ca.pem")
		if info, err := os.Stat(ca); err != nil {
			r.ok("certificate later", ca, r.say("trust", ca))
		} else if info.Mode()&0o004 == 0 {
			r.warn("certificate closed", ca, info.Mode().Perm())
		} else {
			r.ok("certificate made", r.say("trust", ca))
		}
	case entry.ModeFile:
		pair, err := tls.LoadX509KeyPair(g.CertFile, g.KeyFile)
		if err != nil {
			r.fail("certificate unread", err)
			return
		}
		names := []string{"localhost", "127.0.0.1", "open.feishu.cn", "open.larksuite.com"}
		if g.PublicURL != nil {
			names = []string{g.PublicURL.Hostname()}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return pair.Leaf.VerifyHostname(name) != nil })
		switch left, ends := time.Until(pair.Leaf.NotAfter), pair.Leaf.NotAfter.Format(time.DateOnly); {
		case left < 0:
			r.fail("certificate ended", ends, g.CertFile)
		case len(names) == 0:
			r.fail("certificate of no name", g.CertFile)
		case left < endsSoon:
			r.warn("certificate ends", ends, g.CertFile)
		default:
			r.ok("certificate", strings.Join(names, ", "), ends, r.say("trust", g.CertFile))
		}
	}
}

// connect connects to where messages are posted, and posts none.
func (r *results) connect(ctx context.Context, setting, text string) {
	u, err := url.Parse(text)
	if err != nil {
		r.fail("bot no URL", setting)
		return
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		u = proxy
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	at := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)) // the rest of the URL may be secret
	conn, err := (&net.Dialer{Timeout: tryLimit}).DialContext(ctx, "tcp", at)
	if err != nil {
		r.fail("bot unreached", setting, err)
		return
	}
	_ = conn.Close() // nothing was sent
	r.ok("bot reached", setting, at)
}

// judgeFixes are the fixes for what the judge's error says; the first match counts.
var judgeFixes = [][2]string{
	{"OPENAI_API_KEY", "judge key"}, {"OPENAI_MODEL to one", "judge thinks"}, {"OPENAI_BASE_URL and OPENAI_MODEL", "judge URL or model"},
	{"OPENAI_BASE_URL", "judge URL"}, {"quota", "judge quota"}, {"HTTP 400", "judge no chat"}, {"neither YES nor NO", "judge disobeys"},
	{"in time", "judge slow"}, {context.DeadlineExceeded.Error(), "judge slow"}, {"", "judge unreached"},
}

// judge asks one real question, to which a judge should say YES; either answer is right.
func (r *results) judge(ctx context.Context) {
	r.test("Judge", "judge")
	if !r.cfg.Limits.Check {
		r.ok("judge off")
		return
	}
	if r.cfg.Judge.APIKey == "" {
		r.ok("judge rules")
		return
	}
	llm, err := judge.New(judge.Options{APIKey: string(r.cfg.Judge.APIKey), BaseURL: r.cfg.Judge.BaseURL,
		Model: r.cfg.Judge.Model, Timeout: r.cfg.Limits.Timeout})
	if err != nil {
		r.fail("judge unusable", err)
		return
	}
	began := time.Now()
	now := began.UnixMilli()
	allow, err := llm.Judge(ctx, policy.Question{
		Transcript: []policy.Entry{{Role: policy.RoleUser, Sender: "operator", MessageID: "check_1", TS: now - 2000,
			Content: "Please find out together when the next release can be tested."}},
		Message: policy.Entry{Role: policy.RoleAssistant, Sender: "feishu_relay_check", MessageID: "check_2",
			TS: now - 1000, Content: "Which part of it can you test, and by when?"},
		AgentName: string(r.cfg.Agent), AgentRole: r.cfg.Role, BotName: r.cfg.BotName, Mentioned: true,
	})
	model := llm.State().Model
	switch took := time.Since(began).Round(time.Millisecond); {
	case err == nil:
		r.ok("judge", model, map[bool]string{true: "YES", false: "NO"}[allow], took)
	case errors.Is(err, context.DeadlineExceeded) && r.cfg.Limits.Timeout > longLimit:
		r.warn("judge later", model, longLimit, r.cfg.Limits.Timeout)
	default:
		at := slices.IndexFunc(judgeFixes, func(f [2]string) bool { return strings.Contains(err.Error(), f[0]) })
		r.add(Fail, model+": "+strings.TrimPrefix(r.plainly(err), "judge: "), r.say(judgeFixes[at][1]))
	}
}

// sidecar reports what the running sidecar says of itself.
func (r *results) sidecar(context.Context) {
	if r.cfg.AdminToken == "" && r.cfg.ListenAddr != "" && !sidecar.IsLoopback(r.cfg.ListenAddr) {
		r.test("Sidecar", "tokens")
		r.warn("tokens")
	}
	s := r.Running
	if s == nil {
		return
	}
	r.test("Sidecar", "sidecar")
	if s.Ready {
		r.ok("ready", cmp.Or(s.Version, "?"))
	} else {
		r.fail("not ready", s.NotReady)
	}
	r.test("Sidecar", "outbox")
	for _, name := range []string{"outbound", "inbound"} {
		if q := s.Queues[name].Outbox; q.Pending > 0 && q.Error != "" {
			r.warn("outbox", name, r.Words.Count("messages", int(q.Pending)), q.Error)
		}
	}
	r.test("Sidecar", "settings of groups")
	modes, budgets := map[group.Mode]bool{}, map[int]bool{}
	var mode, budget []string
	for _, a := range s.Steering.Agents {
		modes[a.Answer], budgets[a.Budget] = true, true
		mode, budget = append(mode, fmt.Sprint(a.Agent, " ", a.Answer)), append(budget, fmt.Sprint(a.Agent, " ", a.Budget))
	}
	if len(modes) > 1 {
		r.warn("settings of groups", "ANSWER_MODE", r.Words.List(mode), "answer_mode")
	}
	if len(budgets) > 1 {
		r.warn("settings of groups", "GROUP_BUDGET", r.Words.List(budget), "group_budget")
	}
	r.test("Sidecar", "sidecar errors")
	for _, e := range s.Errors {
		at, _ := time.Parse(time.RFC3339, e.At) // the sidecar's own form
		if since := time.Since(at); since < freshError {
			r.warn("sidecar error", e.Part, strings.TrimSpace(e.Error), r.Words.Count("times", e.Count), r.Words.Age(since),
				at.UTC().Format(time.RFC3339))
		}
	}
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/sidecar"
)

// checkInject connects to where messages are posted, and posts none.
func checkInject(ctx context.Context, s *subject) []finding {
	if s.InjectURL == "" {
		return checkBotThere(s)
	}
	u, err := url.Parse(s.InjectURL)
	if err != nil {
		return failure("set INJECT_URL to an http:// or https:// URL", "INJECT_URL is no URL")
	}
	target, via := u, ""
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		target, via = proxy, " by the proxy of the environment"
	}
	addr := hostPort(target)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return failure("start the bot, or set INJECT_URL to where it listens; from a container, "+
			"localhost is the container", "INJECT_URL%s: %v", via, err)
	}
	_ = conn.Close() // nothing was sent
	return well("something listens at INJECT_URL (%s)%s", addr, via)
}

// checkBotThere asks the running sidecar whether a bot that connects by itself is there.
func checkBotThere(s *subject) []finding {
	how, by := "reads /v1/stream", "start the bot, and let it read /v1/stream (or set INJECT_URL)"
	if s.Gateway.Addr != "" {
		how, by = "is given messages by the gateway, or reads /v1/stream", "start the bot: docs/frameworks.md has its settings"
	}
	running, err := s.sidecar()
	switch {
	case err != nil:
		return unseen("start the sidecar and the bot, and check again",
			"%s; whether it is connected cannot be seen, since no sidecar of this agent answers", how)
	case running.Door.Connected == nil || !*running.Door.Connected:
		return unseen(by, "%s; it is not connected now", how)
	}
	return well("%s, and is connected (%s)", how, running.Door.Name)
}

// hostPort leaves out what of a URL may be secret.
func hostPort(u *url.URL) string {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

// judgeMends are the fixes for what the judge's error says; the first match counts.
var judgeMends = []struct{ sign, mend string }{
	{"OPENAI_API_KEY", "set OPENAI_API_KEY to a key of that endpoint, or unset it: then built-in rules judge"},
	{"OPENAI_MODEL to one", "set OPENAI_MODEL to a small model that does not think before it answers"},
	{"OPENAI_BASE_URL and OPENAI_MODEL", "OPENAI_BASE_URL ends in the version, such as https://host/v1; " +
		"OPENAI_MODEL is a model of that endpoint"},
	{"OPENAI_BASE_URL", "OPENAI_BASE_URL ends in the version, such as https://host/v1"},
	{"quota", "look at the account of that key, or take another"},
	{"HTTP 400", "set OPENAI_MODEL to a chat model of that endpoint"},
	{"neither YES nor NO", "set OPENAI_MODEL to a model that follows instructions"},
	{"in time", "set OPENAI_MODEL to a faster model, or raise BOT_REPLY_LLM_TIMEOUT"},
	{"", "check OPENAI_BASE_URL, and whether it is reached from here"},
}

// checkJudge asks one real question, to which a judge should say YES; either answer is
// right.
func checkJudge(ctx context.Context, s *subject) []finding {
	if !s.Limits.Check {
		return well("off (BOT_REPLY_LLM_CHECK is false)")
	}
	if s.Judge.APIKey == "" {
		return well("built-in rules (no OPENAI_API_KEY)")
	}
	llm, err := judge.New(judge.Options{APIKey: string(s.Judge.APIKey), BaseURL: s.Judge.BaseURL,
		Model: s.Judge.Model, Timeout: s.Limits.Timeout})
	if err != nil {
		return failure("correct OPENAI_API_KEY and OPENAI_BASE_URL", "%v", err)
	}
	began := time.Now()
	now := began.UnixMilli()
	allow, err := llm.Judge(ctx, policy.Question{
		Transcript: []policy.Entry{{Role: policy.RoleUser, Sender: "operator", MessageID: "check_1", TS: now - 2000,
			Content: "Please find out together when the next release can be tested."}},
		Message: policy.Entry{Role: policy.RoleAssistant, Sender: "feishu_relay_check", MessageID: "check_2",
			TS: now - 1000, Content: "Which part of it can you test, and by when?"},
		AgentName: string(s.Agent), AgentRole: s.Role, BotName: s.BotName, Mentioned: true,
	})
	if err != nil {
		return judgeFailure(llm.State().Model, err, s.Limits.Timeout)
	}
	answer := map[bool]string{true: "YES", false: "NO"}[allow]
	return well("%s answered %s in %s", llm.State().Model, answer, time.Since(began).Round(time.Millisecond))
}

// judgeFailure is the finding about a judge that failed. One that is given more time
// than the check has may have answered later.
func judgeFailure(model string, err error, allowed time.Duration) []finding {
	if errors.Is(err, context.DeadlineExceeded) && allowed > longLimit {
		return warning("set OPENAI_MODEL to a faster model: meanwhile the bots' messages of that chat wait",
			"%s: no answer within %s; the %s of BOT_REPLY_LLM_TIMEOUT were not waited for", model, longLimit, allowed)
	}
	text, mend := plainly(err), ""
	for i := 0; mend == ""; i++ {
		if strings.Contains(text, judgeMends[i].sign) {
			mend = judgeMends[i].mend
		}
	}
	return failure(mend, "%s: %s", model, strings.TrimPrefix(text, "judge: "))
}

// checkListen tries the address of the local API; where it is taken, it asks who has it.
func checkListen(ctx context.Context, s *subject) []finding {
	another := "set LISTEN_ADDR to a free address, or end the program that uses this one"
	taken := bound(ctx, s.ListenAddr)
	if taken == nil {
		return well("%s is free", s.ListenAddr)
	}
	var health struct{ Status string }
	code, err := askLocal(ctx, s.config, "/healthz", &health)
	if err != nil || code != http.StatusOK || health.Status != "alive" {
		return failure(another, "%v", taken)
	}
	var running runningSidecar
	code, err = askLocal(ctx, s.config, "/v1/status", &running)
	switch agent := running.Identity.Agent; {
	case err == nil && code == http.StatusOK && agent == s.Agent:
		return well("the running sidecar of %s answers at %s", s.Agent, s.ListenAddr)
	case err == nil && code == http.StatusOK:
		return failure(another, "the sidecar of %s listens at %s already",
			cmp.Or(string(agent), "another agent"), s.ListenAddr)
	case code == http.StatusUnauthorized:
		return warning("set API_TOKEN to that of the running sidecar",
			"the sidecar at %s has another API_TOKEN", s.ListenAddr)
	case err == nil:
		err = fmt.Errorf("/v1/status answered %d", code)
	}
	return warning("look at its log", "a sidecar is alive at %s and does not say whose: %v", s.ListenAddr, err)
}

// maxSidecarAnswer is the most bytes read of a sidecar's answer: its dead letters are
// the longest.
const maxSidecarAnswer = 64 << 20

// askLocal asks the sidecar at LISTEN_ADDR.
func askLocal(ctx context.Context, c *config, path string, answer any) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit/2)
	defer cancel()
	url := "http://" + sidecar.Reachable(c.ListenAddr) + path
	resp, data, err := fetch(ctx, direct, http.MethodGet, url, string(c.APIToken), nil, maxSidecarAnswer)
	if err != nil {
		return 0, err
	}
	if len(data) == 0 {
		return resp.StatusCode, errors.New("its answer is empty")
	}
	return resp.StatusCode, json.Unmarshal(data, answer)
}

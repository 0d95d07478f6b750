package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
)

// checkInject connects to where messages are posted, and posts none.
func checkInject(ctx context.Context, c *subject) []finding {
	const name = "bot"
	if c.InjectURL == "" {
		return []finding{well(name, "%s", describeDoor(c.config))}
	}
	u, err := url.Parse(c.InjectURL)
	if err != nil {
		return []finding{failure(name, "set INJECT_URL to an http:// or https:// URL", "INJECT_URL is no URL")}
	}
	target, via := u, ""
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		target, via = proxy, " by the proxy of the environment"
	}
	addr := hostPort(target)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return []finding{failure(name, "start the bot, or set INJECT_URL to where it listens; from a container, localhost is the container",
			"INJECT_URL%s: %v", via, err)}
	}
	_ = conn.Close() // nothing was sent
	return []finding{well(name, "something listens at INJECT_URL (%s)%s", addr, via)}
}

// hostPort leaves out what of a URL may be secret.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// judgeMends are how to mend what the judge's error says; the first match counts.
var judgeMends = []struct{ sign, mend string }{
	{"OPENAI_API_KEY", "set OPENAI_API_KEY to a key of that endpoint, or unset it: then built-in rules judge"},
	{"OPENAI_MODEL to one", "set OPENAI_MODEL to a small model that does not think before it answers"},
	{"OPENAI_BASE_URL and OPENAI_MODEL", "OPENAI_BASE_URL ends in the version, such as https://host/v1; OPENAI_MODEL is a model of that endpoint"},
	{"OPENAI_BASE_URL", "OPENAI_BASE_URL ends in the version, such as https://host/v1"},
	{"quota", "look at the account of that key, or take another"},
	{"HTTP 400", "set OPENAI_MODEL to a chat model of that endpoint"},
	{"neither YES nor NO", "set OPENAI_MODEL to a model that follows instructions"},
	{"in time", "set OPENAI_MODEL to a faster model, or raise BOT_REPLY_LLM_TIMEOUT"},
}

// checkJudge asks one real question. Either answer is right.
func checkJudge(ctx context.Context, c *subject) []finding {
	const name = "judge"
	switch {
	case !c.Limits.Check:
		return []finding{well(name, "off (BOT_REPLY_LLM_CHECK is false)")}
	case c.Judge.APIKey == "":
		return []finding{well(name, "built-in rules (no OPENAI_API_KEY)")}
	}
	llm, err := judge.New(judge.Options{APIKey: string(c.Judge.APIKey), BaseURL: c.Judge.BaseURL, Model: c.Judge.Model, Timeout: c.Limits.Timeout})
	if err != nil {
		return []finding{failure(name, "correct OPENAI_API_KEY and OPENAI_BASE_URL", "%v", err)}
	}
	began := time.Now()
	allow, err := llm.Judge(ctx, judgeQuestion(c.config))
	took := time.Since(began).Round(time.Millisecond)
	if err != nil {
		return []finding{judgeFailure(llm.State().Model, err, c.Limits.Timeout)}
	}
	answer := "NO"
	if allow {
		answer = "YES"
	}
	return []finding{well(name, "%s answered %s in %s", llm.State().Model, answer, took)}
}

// judgeFailure is the finding of a judge that failed. One that is given more time
// than the check has may have answered later.
func judgeFailure(model string, err error, allowed time.Duration) finding {
	const name = "judge"
	if errors.Is(err, context.DeadlineExceeded) && allowed > longLimit {
		return warning(name, "set OPENAI_MODEL to a faster model: meanwhile the bots' messages of that chat wait",
			"%s: no answer within %s; the %s of BOT_REPLY_LLM_TIMEOUT were not waited for", model, longLimit, allowed)
	}
	mend := "check OPENAI_BASE_URL, and whether it is reached from here"
	for _, m := range judgeMends {
		if strings.Contains(plainly(err), m.sign) {
			mend = m.mend
			break
		}
	}
	return failure(name, mend, "%s: %s", model, strings.TrimPrefix(plainly(err), "judge: "))
}

// judgeQuestion is one that a judge should say YES to.
func judgeQuestion(c *config) policy.Question {
	now := time.Now().UnixMilli()
	return policy.Question{
		Transcript: []policy.Entry{{Role: policy.RoleUser, Sender: "operator", MessageID: "check_1", TS: now - 2000,
			Content: "Please find out together when the next release can be tested."}},
		Message: policy.Entry{Role: policy.RoleAssistant, Sender: "feishu_relay_check", MessageID: "check_2", TS: now - 1000,
			Content: "Which part of it can you test, and by when?"},
		AgentName: string(c.Agent), AgentRole: c.Role, BotName: c.BotName, Mentioned: true,
	}
}

// checkListen tries the address of the local API; where it is taken, it asks
// who has it.
func checkListen(ctx context.Context, c *subject) []finding {
	const name = "local API"
	another := "set LISTEN_ADDR to a free address, or end the program that uses this one"
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.ListenAddr)
	if err == nil {
		_ = l.Close()
		return []finding{well(name, "%s is free", c.ListenAddr)}
	}
	addr := reachable(c.ListenAddr)
	var health struct{ Status string }
	if code, gotErr := getJSON(ctx, addr, "/healthz", "", &health); gotErr != nil || code != http.StatusOK || health.Status != "alive" {
		return []finding{failure(name, another, "%v", err)}
	}
	var running struct {
		Identity struct {
			Agent relay.AgentName `json:"agent_name"`
		}
	}
	code, err := getJSON(ctx, addr, "/v1/status", string(c.APIToken), &running)
	switch agent := running.Identity.Agent; {
	case err == nil && code == http.StatusOK && agent == c.Agent:
		return []finding{well(name, "the running sidecar of %s answers at %s", c.Agent, c.ListenAddr)}
	case err == nil && code == http.StatusOK:
		return []finding{failure(name, another, "the sidecar of %s listens at %s already", or(string(agent), "another agent"), c.ListenAddr)}
	case code == http.StatusUnauthorized:
		return []finding{warning(name, "set API_TOKEN to that of the running sidecar", "the sidecar at %s has another API_TOKEN", c.ListenAddr)}
	case err == nil:
		err = fmt.Errorf("/v1/status answered %d", code)
	}
	return []finding{warning(name, "look at its log", "a sidecar is alive at %s and does not say whose: %v", c.ListenAddr, err)}
}

// maxSidecarAnswer is the most bytes read of a sidecar's answer: its dead letters
// are the longest.
const maxSidecarAnswer = 64 << 20

// getJSON asks a sidecar on this host, past any proxy.
func getJSON(ctx context.Context, addr, path, token string, v any) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{Proxy: nil, ResponseHeaderTimeout: tryLimit / 2}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(io.LimitReader(resp.Body, maxSidecarAnswer)).Decode(v)
	if errors.Is(err, io.EOF) {
		err = errors.New("its answer is empty")
	}
	return resp.StatusCode, err
}

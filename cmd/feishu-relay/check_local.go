package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
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
		return failure(say("set INJECT_URL to an http:// or https:// URL", "把 INJECT_URL 设成 http:// 或 https:// 的 URL"),
			"INJECT_URL is no URL", "INJECT_URL 不是 URL")
	}
	target, via := u, text{}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		target, via = proxy, say(" by the proxy of the environment", "（经环境变量里的代理）")
	}
	addr := hostPort(target)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return failure(say("start the bot, or set INJECT_URL to where it listens; from a container, "+
			"localhost is the container",
			"启动机器人，或把 INJECT_URL 设成它监听的地址；在容器里 localhost 是容器自己"),
			"INJECT_URL%s: %v", "", via, err)
	}
	_ = conn.Close() // nothing was sent
	return well("something listens at INJECT_URL (%s)%s", "INJECT_URL（%s）有程序在监听%s", addr, via)
}

// checkBotThere asks the running sidecar whether a bot that connects by itself is there.
func checkBotThere(s *subject) []finding {
	how, by := say("reads /v1/stream", "机器人读 /v1/stream"),
		say("start the bot, and let it read /v1/stream (or set INJECT_URL)", "启动机器人，让它读 /v1/stream（或设 INJECT_URL）")
	if s.Gateway.Addr != "" {
		how = say("is given messages by the gateway, or reads /v1/stream", "由网关送达，或机器人读 /v1/stream")
		by = say("start the bot: docs/frameworks.md has its settings", "启动机器人，设置见 docs/frameworks.zh.md")
	}
	running, err := s.sidecar()
	switch {
	case err != nil:
		return unseen(say("start the sidecar and the bot, and check again", "启动边车和机器人，再检查一次"),
			"%s; whether it is connected cannot be seen, since no sidecar of this agent answers",
			"%s；这个智能体的边车没有应答，看不到是否已连接", how)
	case running.Door.Connected == nil || !*running.Door.Connected:
		return unseen(by, "%s; it is not connected now", "%s；现在没有连接", how)
	}
	return well("%s, and is connected (%s)", "%s，已连接（%s）", how, running.Door.Name)
}

// hostPort leaves out what of a URL may be secret.
func hostPort(u *url.URL) string {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

// judgeMends are the fixes for what the judge's error says; the first match counts.
var judgeMends = []judgeMend{
	{"OPENAI_API_KEY", text{"set OPENAI_API_KEY to a key of that endpoint, or unset it: then built-in rules judge",
		"把 OPENAI_API_KEY 设成那个端点的密钥，或不设：那样用内置规则"}},
	{"OPENAI_MODEL to one", text{"set OPENAI_MODEL to a small model that does not think before it answers",
		"把 OPENAI_MODEL 设成不先思考就回答的小模型"}},
	{"OPENAI_BASE_URL and OPENAI_MODEL", text{"OPENAI_BASE_URL ends in the version, such as https://host/v1; " +
		"OPENAI_MODEL is a model of that endpoint", "OPENAI_BASE_URL 以版本结尾，如 https://host/v1；OPENAI_MODEL 是那个端点的模型"}},
	{"OPENAI_BASE_URL", text{"OPENAI_BASE_URL ends in the version, such as https://host/v1",
		"OPENAI_BASE_URL 以版本结尾，如 https://host/v1"}},
	{"quota", text{"look at the account of that key, or take another", "查看那个密钥的账户，或换一个密钥"}},
	{"HTTP 400", text{"set OPENAI_MODEL to a chat model of that endpoint", "把 OPENAI_MODEL 设成那个端点的对话模型"}},
	{"neither YES nor NO", text{"set OPENAI_MODEL to a model that follows instructions", "把 OPENAI_MODEL 设成听从指令的模型"}},
	{"in time", text{"set OPENAI_MODEL to a faster model, or raise BOT_REPLY_LLM_TIMEOUT",
		"把 OPENAI_MODEL 设成更快的模型，或调大 BOT_REPLY_LLM_TIMEOUT"}},
	{"", text{"check OPENAI_BASE_URL, and whether it is reached from here", "检查 OPENAI_BASE_URL，以及从这里能否连上"}},
}

type judgeMend struct {
	sign string
	mend text
}

// checkJudge asks one real question, to which a judge should say YES; either answer is
// right.
func checkJudge(ctx context.Context, s *subject) []finding {
	if !s.Limits.Check {
		return well("off (BOT_REPLY_LLM_CHECK is false)", "已关（BOT_REPLY_LLM_CHECK 是 false）")
	}
	if s.Judge.APIKey == "" {
		return well("built-in rules (no OPENAI_API_KEY)", "用内置规则（没有设 OPENAI_API_KEY）")
	}
	llm, err := judge.New(judge.Options{APIKey: string(s.Judge.APIKey), BaseURL: s.Judge.BaseURL,
		Model: s.Judge.Model, Timeout: s.Limits.Timeout})
	if err != nil {
		return failure(say("correct OPENAI_API_KEY and OPENAI_BASE_URL", "改正 OPENAI_API_KEY 和 OPENAI_BASE_URL"),
			"%v", "", err)
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
	return well("%s answered %s in %s", "%s 回答 %s，用时 %s",
		llm.State().Model, answer, time.Since(began).Round(time.Millisecond))
}

// judgeFailure is the finding about a judge that failed. One that is given more time
// than the check has may have answered later.
func judgeFailure(model string, err error, allowed time.Duration) []finding {
	if errors.Is(err, context.DeadlineExceeded) && allowed > longLimit {
		return warning(say("set OPENAI_MODEL to a faster model: meanwhile the bots' messages of that chat wait",
			"把 OPENAI_MODEL 换成更快的模型：判断期间，那个会话里机器人的消息都在等"),
			"%s: no answer within %s; the %s of BOT_REPLY_LLM_TIMEOUT were not waited for",
			"%s：%s 内没有应答；没有等满 BOT_REPLY_LLM_TIMEOUT 的 %s", model, longLimit, allowed)
	}
	why := plainly(err)
	why.en, why.zh = strings.TrimPrefix(why.en, "judge: "), strings.TrimPrefix(why.zh, "judge: ")
	at := slices.IndexFunc(judgeMends, func(m judgeMend) bool { return strings.Contains(why.en, m.sign) })
	return failure(judgeMends[at].mend, "%s: %s", "", model, why)
}

// checkListen tries the address of the local API; where it is taken, it asks who has it.
func checkListen(ctx context.Context, s *subject) []finding {
	another := say("set LISTEN_ADDR to a free address, or end the program that uses this one",
		"把 LISTEN_ADDR 设成空闲的地址，或结束占用它的程序")
	taken := bound(ctx, s.ListenAddr)
	if taken == nil {
		return well("%s is free", "%s 空闲", s.ListenAddr)
	}
	var health struct{ Status string }
	code, err := askLocal(ctx, s.config, "/healthz", &health)
	if err != nil || code != http.StatusOK || health.Status != "alive" {
		return failure(another, "%v", "", taken)
	}
	var running runningSidecar
	code, err = askLocal(ctx, s.config, "/v1/status", &running)
	switch agent := running.Identity.Agent; {
	case err == nil && code == http.StatusOK && agent == s.Agent:
		return well("the running sidecar of %s answers at %s", "%s 正在运行的边车在 %s 应答", s.Agent, s.ListenAddr)
	case err == nil && code == http.StatusOK:
		return failure(another, "the sidecar of %s listens at %s already", "%s 的边车已经在监听 %s",
			cmp.Or(alike(string(agent)), say("another agent", "另一个智能体")), s.ListenAddr)
	case code == http.StatusUnauthorized:
		return warning(say("set API_TOKEN to that of the running sidecar", "把 API_TOKEN 设成与运行中的边车相同"),
			"the sidecar at %s has another API_TOKEN", "%s 的边车的 API_TOKEN 不同", s.ListenAddr)
	case err == nil:
		err = say("/v1/status answered %d", "/v1/status 应答 %d", code)
	}
	return warning(say("look at its log", "查看它的日志"),
		"a sidecar is alive at %s and does not say whose: %v",
		"%s 有边车在运行，但看不到是谁的：%v", s.ListenAddr, err)
}

// checkTokens recommends a token for people where the API is reached from other hosts.
func checkTokens(context.Context, *subject) []finding {
	return warning(say("set ADMIN_TOKEN, and give it to people only", "设置 ADMIN_TOKEN，只交给人使用"),
		"whoever has the bot's API_TOKEN can change the settings of groups, stop and continue",
		"拿到机器人的 API_TOKEN，就能改群设置、停止和继续")
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
		return resp.StatusCode, say("its answer is empty", "应答是空的")
	}
	return resp.StatusCode, json.Unmarshal(data, answer)
}

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"feishu-relay/feishu"
)

const (
	challengeLimit  = time.Second // Feishu waits no longer for the answer
	maxChallengeLen = 64 << 10    // bytes of the answer; the rest is left out
)

// checkGateway tries the address that the bot's SDK is pointed at.
func checkGateway(ctx context.Context, s *subject) []finding {
	taken := bound(ctx, s.Gateway.Addr)
	running, err := s.sidecar()
	switch {
	case taken == nil:
		return well("%s is free", "%s 空闲", s.Gateway.Addr)
	case err != nil:
		return failure(say("set GATEWAY_ADDR to a free address, or end the program that uses this one",
			"把 GATEWAY_ADDR 设成空闲的地址，或结束占用它的程序"),
			"%v", "", taken)
	case !running.Gateway.Connected:
		return warning(say("point the bot at it: docs/frameworks.md has the settings; look at the bot's log",
			"让机器人连它：设置见 docs/frameworks.zh.md；查看机器人的日志"),
			"the running sidecar serves %s, and no bot is connected",
			"运行中的边车在 %s 服务，没有机器人连接", s.Gateway.Addr)
	}
	return well("the running sidecar serves %s, and the bot is connected",
		"运行中的边车在 %s 服务，机器人已连接", s.Gateway.Addr)
}

// checkWebhookAddress tries the address that Feishu posts to.
func checkWebhookAddress(ctx context.Context, s *subject) []finding {
	if s.WebhookAddr == "" {
		return nil
	}
	taken := bound(ctx, s.WebhookAddr)
	if _, err := s.sidecar(); taken == nil || err == nil {
		return nil
	}
	return failure(say("set WEBHOOK_ADDR to a free address, or end the program that uses this one",
		"把 WEBHOOK_ADDR 设成空闲的地址，或结束占用它的程序"),
		"%v", "", taken)
}

// bound returns why nobody can listen at addr, or nil.
func bound(ctx context.Context, addr string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// checkWebhook asks the bot's webhook what Feishu asks to verify it, at any time and
// without consequences: to send a word back.
func checkWebhook(ctx context.Context, s *subject) []finding {
	u, err := url.Parse(s.BotWebhookURL)
	if err != nil {
		return failure(say("set BOT_WEBHOOK_URL to an http:// or https:// URL",
			"把 BOT_WEBHOOK_URL 设成 http:// 或 https:// 的 URL"),
			"BOT_WEBHOOK_URL is no URL", "BOT_WEBHOOK_URL 不是 URL")
	}
	where := hostPort(u) // the rest of the URL may be secret
	began := time.Now()
	code, lacks, err := postChallenge(ctx, s.config, rand.Text())
	took := time.Since(began)
	switch {
	case err != nil:
		return failure(webhookMend(err), "%s: %s", "", where, plainly(err))
	case lacks != (text{}) && code == http.StatusNotFound:
		return failure(say("correct the path in BOT_WEBHOOK_URL: it is where Feishu's events are taken, "+
			"such as /webhook/event",
			"改正 BOT_WEBHOOK_URL 的路径：那里接收飞书的事件，例如 /webhook/event"),
			"%s has nothing at that path (HTTP 404)", "%s 的这个路径下什么也没有（HTTP 404）", where)
	case lacks != (text{}) && code == http.StatusMethodNotAllowed:
		return failure(say("correct the path in BOT_WEBHOOK_URL: events are posted to it",
			"改正 BOT_WEBHOOK_URL 的路径：事件是 POST 到那里的"),
			"%s takes no posts at that path (HTTP 405)", "%s 的这个路径不接受 POST（HTTP 405）", where)
	case lacks != (text{}) && code != http.StatusOK:
		return failure(say("give the bot and the sidecar the same Encrypt Key and Verification Token "+
			"(FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN), and look at the bot's log",
			"让机器人和边车用同样的 Encrypt Key 和 Verification Token（FEISHU_ENCRYPT_KEY、FEISHU_VERIFICATION_TOKEN），"+
				"并查看机器人的日志"),
			"%s refuses Feishu's question (HTTP %d)", "%s 拒绝了飞书的验证（HTTP %d）", where, code)
	case lacks != (text{}):
		return failure(say("turn on the bot's webhook mode at that URL, with the Encrypt Key in FEISHU_ENCRYPT_KEY: "+
			`it must answer {"challenge":…}`,
			`在那个 URL 打开机器人的 webhook 模式，Encrypt Key 与 FEISHU_ENCRYPT_KEY 相同：它要应答 {"challenge":…}`),
			"%s does not answer Feishu's question: %s", "%s 没有应答飞书的验证：%s", where, lacks)
	case took > challengeLimit:
		return warning(say("look what keeps the bot busy: it answers events within 3 s, or Feishu sends them again",
			"看看机器人在忙什么：事件要在 3 秒内应答，否则飞书会重发"),
			"%s answers Feishu's question after %s; Feishu waits 1 s",
			"%s 过了 %s 才应答飞书的验证，飞书只等 1 秒", where, took.Round(100*time.Millisecond))
	}
	return well("%s answers Feishu's question in %s", "%s 应答飞书的验证，用时 %s", where, took.Round(time.Millisecond))
}

// postChallenge sends what Feishu sends to verify a URL, encrypted where the app has an
// Encrypt Key, and looks for the word in the answer. lacks is empty if it is there,
// else what the answer was instead, without its text.
func postChallenge(ctx context.Context, c *config, word string) (code int, lacks text, err error) {
	body, err := json.Marshal(map[string]string{
		"challenge": word, "token": string(c.VerificationToken), "type": "url_verification"})
	if err == nil && c.EncryptKey != "" {
		body, err = feishu.Encrypt(string(c.EncryptKey), body)
	}
	if err != nil {
		return 0, text{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit-time.Second)
	defer cancel()
	resp, data, err := fetch(ctx, direct, http.MethodPost, c.BotWebhookURL, "", body, maxChallengeLen)
	if err != nil {
		return 0, text{}, err
	}
	var answer struct{ Challenge *string }
	switch err := json.Unmarshal(data, &answer); {
	case len(data) == 0:
		return resp.StatusCode, say("its answer is empty", "应答是空的"), nil
	case err != nil:
		return resp.StatusCode, say("its answer is no JSON", "应答不是 JSON"), nil
	case answer.Challenge == nil:
		return resp.StatusCode, say("its answer has no challenge", "应答里没有 challenge"), nil
	case *answer.Challenge != word || resp.StatusCode != http.StatusOK:
		return resp.StatusCode, say("its answer has another challenge", "应答里的 challenge 不对"), nil
	}
	return resp.StatusCode, text{}, nil
}

// webhookMend is what to do about a bot that is not reached.
func webhookMend(err error) text {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case isA[*net.DNSError](err):
		return say("correct the host in BOT_WEBHOOK_URL: in a compose file it is the bot's service name",
			"改正 BOT_WEBHOOK_URL 里的主机名：在 compose 文件里是机器人的服务名")
	case errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout():
		return say("look whether the bot hangs, or a firewall drops what is sent to it; Feishu waits 1 s",
			"看看机器人是否卡住，或防火墙丢掉了发给它的数据；飞书只等 1 秒")
	case isA[*tls.CertificateVerificationError](err) || isA[tls.RecordHeaderError](err):
		return say("BOT_WEBHOOK_URL is https://: the bot needs a certificate that this host trusts, "+
			"or http:// within the host",
			"BOT_WEBHOOK_URL 是 https://：机器人要有这台主机信任的证书，或在主机内用 http://")
	}
	return say("start the bot, or set BOT_WEBHOOK_URL to where it listens; from a container, localhost is the container",
		"启动机器人，或把 BOT_WEBHOOK_URL 设成它监听的地址；在容器里 localhost 是容器自己")
}

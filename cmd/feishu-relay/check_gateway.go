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
		return well("%s is free", s.Gateway.Addr)
	case err != nil:
		return failure("set GATEWAY_ADDR to a free address, or end the program that uses this one", "%v", taken)
	case !running.Gateway.Connected:
		return warning("point the bot at it: docs/frameworks.md has the settings; look at the bot's log",
			"the running sidecar serves %s, and no bot is connected", s.Gateway.Addr)
	}
	return well("the running sidecar serves %s, and the bot is connected", s.Gateway.Addr)
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
	return failure("set WEBHOOK_ADDR to a free address, or end the program that uses this one", "%v", taken)
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
		return failure("set BOT_WEBHOOK_URL to an http:// or https:// URL", "BOT_WEBHOOK_URL is no URL")
	}
	where := hostPort(u) // the rest of the URL may be secret
	began := time.Now()
	code, lacks, err := postChallenge(ctx, s.config, rand.Text())
	took := time.Since(began)
	switch {
	case err != nil:
		return failure(webhookMend(err), "%s: %s", where, plainly(err))
	case lacks != "" && code == http.StatusNotFound:
		return failure("correct the path in BOT_WEBHOOK_URL: it is where Feishu's events are taken, "+
			"such as /webhook/event", "%s has nothing at that path (HTTP 404)", where)
	case lacks != "" && code == http.StatusMethodNotAllowed:
		return failure("correct the path in BOT_WEBHOOK_URL: events are posted to it",
			"%s takes no posts at that path (HTTP 405)", where)
	case lacks != "" && code != http.StatusOK:
		return failure("give the bot and the sidecar the same Encrypt Key and Verification Token "+
			"(FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN), and look at the bot's log",
			"%s refuses Feishu's question (HTTP %d)", where, code)
	case lacks != "":
		return failure("turn on the bot's webhook mode at that URL, with the Encrypt Key in FEISHU_ENCRYPT_KEY: "+
			"it must answer {\"challenge\":…}", "%s does not answer Feishu's question: %s", where, lacks)
	case took > challengeLimit:
		return warning("look what keeps the bot busy: it answers events within 3 s, or Feishu sends them again",
			"%s answers Feishu's question after %s; Feishu waits 1 s", where, took.Round(100*time.Millisecond))
	}
	return well("%s answers Feishu's question in %s", where, took.Round(time.Millisecond))
}

// postChallenge sends what Feishu sends to verify a URL, encrypted where the app has an
// Encrypt Key, and looks for the word in the answer. lacks is empty if it is there,
// else what the answer was instead, without its text.
func postChallenge(ctx context.Context, c *config, word string) (code int, lacks string, err error) {
	body, err := json.Marshal(map[string]string{
		"challenge": word, "token": string(c.VerificationToken), "type": "url_verification"})
	if err == nil && c.EncryptKey != "" {
		body, err = feishu.Encrypt(string(c.EncryptKey), body)
	}
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit-time.Second)
	defer cancel()
	resp, data, err := fetch(ctx, direct, http.MethodPost, c.BotWebhookURL, "", body, maxChallengeLen)
	if err != nil {
		return 0, "", err
	}
	var answer struct{ Challenge *string }
	switch err := json.Unmarshal(data, &answer); {
	case len(data) == 0:
		return resp.StatusCode, "its answer is empty", nil
	case err != nil:
		return resp.StatusCode, "its answer is no JSON", nil
	case answer.Challenge == nil:
		return resp.StatusCode, "its answer has no challenge", nil
	case *answer.Challenge != word || resp.StatusCode != http.StatusOK:
		return resp.StatusCode, "its answer has another challenge", nil
	}
	return resp.StatusCode, "", nil
}

// webhookMend is what to do about a bot that is not reached.
func webhookMend(err error) string {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case isA[*net.DNSError](err):
		return "correct the host in BOT_WEBHOOK_URL: in a compose file it is the bot's service name"
	case errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout():
		return "look whether the bot hangs, or a firewall drops what is sent to it; Feishu waits 1 s"
	case isA[*tls.CertificateVerificationError](err) || isA[tls.RecordHeaderError](err):
		return "BOT_WEBHOOK_URL is https://: the bot needs a certificate that this host trusts, " +
			"or http:// within the host"
	}
	return "start the bot, or set BOT_WEBHOOK_URL to where it listens; from a container, localhost is the container"
}

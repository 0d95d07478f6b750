package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
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

// checkWebhook asks the bot's webhook what Feishu asks to verify it, at any time
// and without consequences: to send a word back.
func checkWebhook(ctx context.Context, c *subject) []finding {
	const name = "bot webhook"
	if c.BotWebhookURL == "" {
		return nil
	}
	u, err := url.Parse(c.BotWebhookURL)
	if err != nil {
		return []finding{failure(name, "set BOT_WEBHOOK_URL to an http:// or https:// URL", "BOT_WEBHOOK_URL is no URL")}
	}
	where := hostPort(u) // the rest of the URL may be secret
	began := time.Now()
	code, body, err := postChallenge(ctx, c.config, rand.Text())
	took := time.Since(began)
	switch {
	case errors.Is(err, errNoChallenge) && code == http.StatusNotFound:
		return []finding{failure(name, "correct the path in BOT_WEBHOOK_URL: it is where Feishu's events are taken, such as /webhook/event", "%s has nothing at that path (HTTP 404)", where)}
	case errors.Is(err, errNoChallenge) && code == http.StatusMethodNotAllowed:
		return []finding{failure(name, "correct the path in BOT_WEBHOOK_URL: events are posted to it", "%s takes no posts at that path (HTTP 405)", where)}
	case errors.Is(err, errNoChallenge) && code != http.StatusOK:
		return []finding{failure(name, "give the bot and the sidecar the same Encrypt Key and Verification Token (FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN), and look at the bot's log",
			"%s refuses Feishu's question (HTTP %d)", where, code)}
	case errors.Is(err, errNoChallenge):
		return []finding{failure(name, "turn on the bot's webhook mode at that URL, with the Encrypt Key in FEISHU_ENCRYPT_KEY: it must answer {\"challenge\":…}",
			"%s does not answer Feishu's question: %s", where, body)}
	case err != nil:
		return []finding{failure(name, webhookMend(err), "%s: %s", where, plainly(err))}
	case took > challengeLimit:
		return []finding{warning(name, "look what keeps the bot busy: it answers events within 3 s, or Feishu sends them again",
			"%s answers Feishu's question after %s; Feishu waits 1 s", where, took.Round(100*time.Millisecond))}
	}
	return []finding{well(name, "%s answers Feishu's question in %s", where, took.Round(time.Millisecond))}
}

var errNoChallenge = errors.New("the challenge is not in the answer")

// postChallenge sends what Feishu sends to verify a URL, encrypted where the app
// has an Encrypt Key, and looks for the word in the answer. about says what the
// answer was instead, without showing it.
func postChallenge(ctx context.Context, c *config, word string) (code int, about string, err error) {
	body, err := json.Marshal(map[string]string{"challenge": word, "token": string(c.VerificationToken), "type": "url_verification"})
	if err == nil && c.EncryptKey != "" {
		body, err = feishu.Encrypt(string(c.EncryptKey), body)
	}
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit-time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BotWebhookURL, bytes.NewReader(body))
	if err != nil {
		return 0, "", errors.New("BOT_WEBHOOK_URL is no URL")
	}
	req.Header.Set("Content-Type", "application/json;charset=utf-8")
	transport := &http.Transport{Proxy: nil} // as the sidecar posts
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxChallengeLen))
	if err != nil {
		return resp.StatusCode, "", err
	}
	var answer struct{ Challenge *string }
	switch err := json.Unmarshal(data, &answer); {
	case resp.StatusCode == http.StatusOK && err == nil && answer.Challenge != nil && *answer.Challenge == word:
		return resp.StatusCode, "", nil
	case len(data) == 0:
		about = "its answer is empty"
	case err != nil:
		about = "its answer is no JSON"
	case answer.Challenge == nil:
		about = "its answer has no challenge"
	default:
		about = "its answer has another challenge"
	}
	return resp.StatusCode, about, errNoChallenge
}

// webhookMend is what to do about a bot that is not reached.
func webhookMend(err error) string {
	_, dns := errors.AsType[*net.DNSError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case dns:
		return "correct the host in BOT_WEBHOOK_URL: in a compose file it is the bot's service name"
	case errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout():
		return "look whether the bot hangs, or a firewall drops what is sent to it; Feishu waits 1 s"
	case certificate || plain:
		return "BOT_WEBHOOK_URL is https://: the bot needs a certificate that this host trusts, or http:// within the host"
	}
	return "start the bot, or set BOT_WEBHOOK_URL to where it listens; from a container, localhost is the container"
}

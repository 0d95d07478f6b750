//go:build unix

package sidecar_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

const eventKey = "key of BotA"

// webhookBot is a bot that Feishu's events are posted to, and its configuration.
func (n *tenant) webhookBot(app feishusim.App, answer http.HandlerFunc) sidecar.Config {
	bot := httptest.NewServer(answer)
	n.t.Cleanup(bot.Close)
	cfg := n.config("agent_a")
	cfg.BotWebhookURL, cfg.AppID = bot.URL, app.ID
	cfg.EncryptKey, cfg.VerificationToken = eventKey, sidecar.Secret(app.VerificationToken)
	return cfg
}

// postsEvent posts an event as Feishu does and returns the answer's status; 0: there was none.
func (n *tenant) postsEvent(s *running, app feishusim.App, id string) int {
	n.t.Helper()
	return n.postsEventTo(s.Gateway().String(), app, id)
}

func (n *tenant) postsEventTo(addr string, app feishusim.App, id string) int {
	n.t.Helper()
	body, err := feishu.Encrypt(eventKey, fmt.Appendf(nil, `{"schema":"2.0","header":{"event_id":%q,"event_type":"x","token":%q,`+
		`"app_id":%q},"event":{}}`, id, app.VerificationToken, app.ID))
	must(n.t, err)
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+"/webhook/event", bytes.NewReader(body))
	must(n.t, err)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("X-Lark-Request-Timestamp", now)
	req.Header.Set("X-Lark-Signature", feishu.Sign(now, "", eventKey, body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Log(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A sidecar without an app secret can write only after a call of its bot: a command that comes before is answered then.
func TestACommandBeforeTheBotsFirstCall(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA", EncryptKey: eventKey})
	a, botA := n.hooked(apps[0], n.steered("agent_a"), nil)
	command := n.says("/relay status")
	n.until("the command is taken in", func() bool { return strings.Contains(fmt.Sprint(n.marks()), command) })
	for range 3 { // the answer has had its turn
		n.get(a, "/v1/groups")
	}
	botA.introduce(t)
	if answer := n.sees("agent_a"); answer.ParentID != command {
		t.Errorf("got %+v", answer)
	}
}

// Neither senders that never finish nor a restart make the bot miss an event or get it twice.
func TestTheWebhookAmongHostileSenders(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	var given atomic.Int64
	cfg := n.webhookBot(apps[0], func(http.ResponseWriter, *http.Request) { given.Add(1) })
	s := n.start(cfg)
	for range 100 {
		c, err := net.Dial("tcp", s.Gateway().String())
		must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /webhook/event HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nX-Lark-Request-Timestamp: %d\r\n"+
			"X-Lark-Signature: %s\r\n\r\n{", time.Now().Unix(), strings.Repeat("0", 64))
		must(t, err)
	}
	if code := n.postsEvent(s, apps[0], "e1"); code != 200 || given.Load() != 1 {
		t.Errorf("got %d; the bot was given %d events, want 1", code, given.Load())
	}
	s.stop()
	s = n.start(cfg)
	if code := n.postsEvent(s, apps[0], "e1"); code != 200 || given.Load() != 1 {
		t.Errorf("a repeat: got %d; the bot was given %d events, want 1", code, given.Load())
	}
	if n.events(s, "repeated") != 1 {
		t.Errorf("not counted:\n%s", n.metrics(s))
	}
}

// DELIVERY_TIMEOUT is how long a bot may think about one of Feishu's events.
func TestFeishusEventsHaveTheDeliveryTimeout(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.webhookBot(apps[0], func(_ http.ResponseWriter, r *http.Request) {
		_, _ = new(bytes.Buffer).ReadFrom(r.Body) // so that the end of the connection is noticed
		<-r.Context().Done()
	})
	cfg.DeliveryTimeout = 100 * time.Millisecond
	if code := n.postsEvent(n.start(cfg), apps[0], "e1"); code != http.StatusBadGateway {
		t.Errorf("got %d, want 502", code)
	}
}

// Headers that are much larger than a browser's or a proxy's are refused.
func TestHugeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.webhookBot(apps[0], func(http.ResponseWriter, *http.Request) {})
	cfg.ListenAddr, cfg.WebhookAddr = freeAddr(t), freeAddr(t)
	n.start(cfg)
	for size, want := range map[int]bool{8 << 10: false, 16 << 10: true} {
		for name, url := range map[string]string{"local API": "http://" + cfg.ListenAddr + "/healthz",
			"webhook": "http://" + cfg.WebhookAddr} {
			req, err := http.NewRequest(http.MethodGet, url, nil)
			must(t, err)
			req.Header.Set("Cookie", "a="+strings.Repeat("a", size))
			resp, err := http.DefaultClient.Do(req)
			must(t, err)
			resp.Body.Close()
			if refused := resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge; refused != want {
				t.Errorf("%s, %d bytes of cookies: got %d", name, size, resp.StatusCode)
			}
		}
	}
}

//go:build unix

package sidecar_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu/entry"
	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/verify"
	"feishu-relay/sidecar"
)

// Credentials of TestProgram.
const (
	programAppEnv    = "SIDECAR_TEST_BOT_APP"
	programSecretEnv = "SIDECAR_TEST_BOT_SECRET"
)

// overTLS is a tenant with two bots. BotA, on plain HTTP, hands over to BotB and
// hears its answer. With the configuration for BotB its sidecar speaks TLS.
func overTLS(t *testing.T) (n *tenant, botA *sdkBot, appB feishusim.App, cfgB sidecar.Config) {
	t.Helper()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	a := n.start(n.config("agent_a"))
	botA = n.bot(apps[0], "http://"+a.Gateway().String(), func(bot *sdkBot, h heard) {
		if strings.Contains(h.Text, "over to you") && n.mentioned(bot, h) {
			n.reply(bot, h, apps[1].ID, "please write the sort function")
		}
	})
	n.connected(a)
	cfgB = n.config("agent_b")
	cfgB.Gateway.TLS = entry.ModeAuto
	return n, botA, apps[1], cfgB
}

// handsOver lets BotA hand over to BotB, which answers.
func (n *tenant) handsOver(botA *sdkBot, botB *program) {
	n.t.Helper()
	n.says("@BotA over to you two", botA.app.ID)
	n.hearsFrom(botB.sdkBot, botA.app, "please write")
	said := n.sees("quicksort")
	if h := n.hears(botA, "quicksort"); h.ID != said.ID {
		n.t.Errorf("BotA was given %+v for message %s", h, said.ID)
	}
	n.transcribed("over to you", "please write", "quicksort")
	n.eachOnce(botA)
	n.eachOnce(botB.sdkBot)
}

func (n *tenant) caFile() string { return filepath.Join(n.dir, "ca.pem") }

// proxied is an environment whose only way to Feishu is the gateway of s.
func (n *tenant) proxied(s *running) []string {
	return []string{"HTTPS_PROXY=http://" + s.Gateway().String(), "SSL_CERT_FILE=" + n.caFile(), "NODE_EXTRA_CA_CERTS=" + n.caFile()}
}

// opened checks that the bot came through the proxy, and that every handshake
// succeeded.
func (n *tenant) opened(s *running) {
	n.t.Helper()
	if n.events(s, "opened") == 0 || n.events(s, "tls_failed") > 0 || n.events(s, "tunnel") > 0 {
		n.t.Errorf("the bot's calls were not opened:\n%s", n.metrics(s))
	}
}

// Through the gateway as a proxy nobody reaches what trusts its own machine, such as the local API.
func TestTheGatewayLeadsToNothingOnItsMachine(t *testing.T) {
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.config("agent_a")
	listed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listed.Close()
	cfg.Gateway.Allow = []string{listed.Addr().String()}
	s := n.start(cfg)
	for addr, want := range map[string]int{s.Addr().String(): 403, listed.Addr().String(): 200} {
		c, err := net.Dial("tcp", s.Gateway().String())
		must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr)
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		must(t, err)
		if resp.StatusCode != want {
			t.Errorf("CONNECT %s: got %s, want %d", addr, resp.Status, want)
		}
	}
}

// A bot behind the proxy reaches a Feishu of its company's own through the gateway, too, which does not read what goes to
// other ports of that host.
func TestAPrivateFeishuBehindTheProxy(t *testing.T) {
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.config("agent_a")
	cfg.Gateway.TLS = entry.ModeAuto
	s := n.start(cfg)
	pem, err := os.ReadFile(n.caFile())
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	bot := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool},
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: s.Gateway().String()})}}
	defer bot.CloseIdleConnections()
	for _, base := range []string{"https://" + n.url.Host, "http://" + n.url.Host} { // by CONNECT, and in absolute form
		resp, err := bot.Get(base + "/open-apis/bot/v3/info")
		must(t, err)
		resp.Body.Close()
	}
	if _, err := bot.Get("https://127.0.0.1:1/"); err == nil {
		t.Error("another port of the host was reached")
	}
	if n.events(s, "opened") != 2 || n.events(s, "proxy_refused") != 1 {
		t.Errorf("the bot's calls were not opened:\n%s", n.metrics(s))
	}
}

// The Node SDK, pointed at https://localhost, keeps to TLS for its WebSocket. Not told of any gateway, it reaches that by
// HTTPS_PROXY and a CA.
func TestNodeSDKOverTLS(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	nodeSDK(t)
	for _, proxy := range []bool{false, true} {
		t.Run(fmt.Sprint("proxy ", proxy), func(t *testing.T) {
			t.Parallel()
			n, botA, appB, cfg := overTLS(t)
			b := n.start(cfg)
			_, port, _ := net.SplitHostPort(b.Gateway().String())
			domain, connects, env := "https://localhost:"+port, "wss://localhost:"+port+"/", []string{"NODE_EXTRA_CA_CERTS=" + n.caFile()}
			if proxy {
				domain, connects, env = "", "ws://"+b.Gateway().String()+"/", n.proxied(b)
			}
			botB := n.nodeBot(appB, domain, env, rule{When: "please write", Say: "quicksort is written", To: "BotA"})
			n.connected(b)
			n.handsOver(botA, botB)
			botB.connectsTo(t, connects)
			if proxy {
				n.opened(b)
			}
		})
	}
}

// A bot that nobody configured reaches its sidecar by HTTPS_PROXY and a CA.
func TestGoSDKBehindProxy(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "darwin" {
		t.Skip("Go takes no SSL_CERT_FILE here")
	}
	n, botA, appB, cfg := overTLS(t)
	b := n.start(cfg)
	bot := exec.Command(os.Args[0], "-test.run=^TestProgram$")
	bot.Env = slices.Concat(withoutProxy(), n.proxied(b), []string{programAppEnv + "=" + appB.ID, programSecretEnv + "=" + appB.Secret, "GORACE=atexit_sleep_ms=0"})
	botB := n.program(appB, bot)
	n.connected(b)
	n.handsOver(botA, botB)
	n.opened(b)
}

// TestProgram is the bot that TestGoSDKBehindProxy starts: on the official Go
// SDK, with nothing overridden.
func TestProgram(t *testing.T) {
	t.Parallel()
	b := &sdkBot{app: feishusim.App{ID: os.Getenv(programAppEnv), Secret: os.Getenv(programSecretEnv)}, heard: make(chan heard, 1000)}
	if b.app.ID == "" {
		t.Skip("another test starts it")
	}
	b.client = lark.NewClient(b.app.ID, b.app.Secret, lark.WithLogLevel(larkcore.LogLevelError))
	b.introduce(t)
	world := &tenant{t: t}
	ws := larkws.NewClient(b.app.ID, b.app.Secret, larkws.WithLogLevel(larkcore.LogLevelError),
		larkws.WithEventHandler(b.dispatcher(func(b *sdkBot, h heard) {
			if strings.Contains(h.Text, "please write") {
				world.reply(b, h, "", "quicksort is written")
			}
		})))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go func() {
		for h := range b.heard {
			line, _ := json.Marshal(h) // of strings: cannot fail
			fmt.Printf("%s\n", line)
		}
	}()
	_ = ws.Start(ctx)
}

//go:build unix

package sidecar_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/npmtest"
	"feishu-relay/internal/test/verify"
)

const nodePackage = "@larksuiteoapi/node-sdk"

// nodeSDK returns the folder in which the official Node SDK is installed.
func nodeSDK(t *testing.T) string {
	t.Helper()
	return npmtest.Installed(t, filepath.Join("testdata", "node", "package.json"), nodePackage)
}

// rule says what a bot answers to a message that mentions it and has When in it.
type rule struct {
	When    string   `json:"when"`
	Say     string   `json:"say,omitempty"`
	To      string   `json:"to,omitempty"`      // the name of the bot that Say mentions
	Steps   []string `json:"steps,omitempty"`   // a card that grows, instead of Say
	Picture []byte   `json:"picture,omitempty"` // instead of Say
	Hand    string   `json:"hand,omitempty"`    // the URL of the MCP server by which the agent To is given the task Say
}

// nodeBot starts testdata/node/bot.mjs with its SDK pointed at domain ("":
// nowhere, so at Feishu).
func (n *tenant) nodeBot(app feishusim.App, domain string, env []string, rules ...rule) *program {
	n.t.Helper()
	script, err := filepath.Abs(filepath.Join("testdata", "node", "bot.mjs"))
	must(n.t, err)
	settings, err := json.Marshal(map[string]any{"appId": app.ID, "appSecret": app.Secret, "domain": domain, "rules": rules})
	must(n.t, err)
	node := exec.Command("node", script)
	node.Dir = nodeSDK(n.t)
	node.Env = append(withoutProxy(), append(env, "BOT="+string(settings))...)
	return n.program(app, node)
}

// withoutProxy is the environment without what it says of proxies and CAs.
func withoutProxy() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(v), "=")
		return strings.HasSuffix(name, "_PROXY") || name == "SSL_CERT_FILE" || name == "SSL_CERT_DIR" || name == "NODE_EXTRA_CA_CERTS"
	})
}

// program is a bot that is a process of its own. It prints each message that it
// hears as the JSON of a [heard].
type program struct {
	*sdkBot

	mu  sync.Mutex
	log bytes.Buffer // what it says besides; guarded by mu
}

// Write adds to the log.
func (p *program) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(data)
}

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// program runs cmd until the test ends: then its standard input does.
func (n *tenant) program(app feishusim.App, cmd *exec.Cmd) *program {
	n.t.Helper()
	p := &program{sdkBot: &sdkBot{app: app, heard: make(chan heard, 1000)}}
	cmd.Stderr = p
	stdin, err := cmd.StdinPipe()
	must(n.t, err)
	stdout, err := cmd.StdoutPipe()
	must(n.t, err)
	must(n.t, cmd.Start())
	ended := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var h heard
			if json.Unmarshal(lines.Bytes(), &h) != nil || h.ID == "" {
				_, _ = p.Write(append(lines.Bytes(), '\n'))
				continue
			}
			p.received(h)
		}
		ended <- errors.Join(lines.Err(), cmd.Wait())
	}()
	n.t.Cleanup(func() {
		_ = stdin.Close() // fails where it has ended by itself
		select {
		case err = <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			err = <-ended
		}
		if err != nil {
			n.t.Errorf("%s ended: %v", app.Name, err)
		}
		if n.t.Failed() {
			n.t.Logf("%s said:\n%s", app.Name, p.said())
		}
	})
	return p
}

// A bot on the official Node SDK and one on Go's talk with each other, stream a
// card, and lose nothing while the Node bot's sidecar is being restarted,
// whether or not Feishu delivers bots' messages itself.
func TestNodeSDK(t *testing.T) {
	t.Parallel()
	nodeSDK(t)
	for _, native := range []string{"off", "on"} {
		t.Run("native "+native, func(t *testing.T) {
			t.Parallel()
			converseWithNode(t, native)
		})
	}
}

func converseWithNode(t *testing.T, native string) {
	apps := []feishusim.App{{Name: "BotN"}, {Name: "BotG"}}
	if native == "on" {
		for i := range apps {
			apps[i].Scopes = append(feishusim.DefaultScopes(), feishusim.ScopeGroupBots)
		}
	}
	// Feishu tells bots to take an hour for coming back; the gateway tells them otherwise.
	n, apps := newTenant(t, feishusim.Options{Client: feishusim.ClientConfig{
		ReconnectCount: -1, ReconnectInterval: 3600, ReconnectNonce: 3600, PingInterval: 120}}, apps...)
	appN, appG := apps[0], apps[1]

	cfg := n.config("agent_n")
	cfg.Gateway.Addr = freeAddr(t)
	beside := n.start(cfg)
	botN := n.nodeBot(appN, "http://"+beside.Gateway().String(), nil,
		rule{When: "sort this", Say: "please write the **sort** function", To: "BotG"},
		rule{When: "the plan", Steps: []string{"First ", "sort, ", "then search."}})
	g := n.start(n.config("agent_g"))
	botG := n.bot(appG, "http://"+g.Gateway().String(), func(b *sdkBot, h heard) {
		switch {
		case strings.Contains(h.Text, "please write"):
			n.reply(b, h, appN.ID, "quicksort is written, which cases shall I test?")
		case strings.Contains(h.Text, "are you there"):
			n.reply(b, h, appN.ID, "read this when you are back: the tests pass")
		}
	})
	n.connected(beside)
	n.connected(g)

	n.says("@BotN sort this", appN.ID)
	if h := n.hears(botG, "please write"); !n.mentioned(botG, h) {
		t.Errorf("BotG is not mentioned in what it was given: %+v", h)
	}
	n.hearsFrom(botN.sdkBot, appG, "quicksort")

	n.says("@BotN what is the plan?", appN.ID)
	if h := n.hears(botG, "First"); h.Text != "First sort, then search." || n.mentioned(botG, h) {
		t.Errorf("BotG was given %+v of the card", h)
	}

	beside.stop()
	n.says("@BotN are you there?", appN.ID)
	n.sees("read this")
	beside = n.start(cfg)
	n.connected(beside)
	n.hearsFrom(botN.sdkBot, appG, "read this")
	n.until("the Node bot was given the person's message", func() bool { return botN.has("are you there") })

	n.transcribed("sort this", "please write", "quicksort", "the plan", "First sort", "are you there", "read this")
	n.until("Feishu has delivered all it had", func() bool { return n.Waiting(appN.ID)+n.Waiting(appG.ID) == 0 })
	n.eachOnce(botN.sdkBot)
	n.eachOnce(botG)
}

// Two bots on Koishi, which has a long connection of its own make and drops no message that comes twice, talk through
// two sidecars, as docs/frameworks.md sets them up.
func TestKoishi(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotK"}, feishusim.App{Name: "BotL"})
	k, l := n.start(n.config("agent_k")), n.start(n.config("agent_l"))
	botK := n.koishiBot(apps[0], "http://"+k.Gateway().String(), "",
		rule{When: "sort this", Say: "please write the sort function, will you?"})
	botL := n.koishiBot(apps[1], "http://"+l.Gateway().String(), "",
		rule{When: "please write", Say: "quicksort is written, which cases shall I test?"})
	n.connected(k)
	n.connected(l)

	n.says("@BotK sort this", apps[0].ID)
	asked := n.sees("please write")
	if h := n.hears(botL.sdkBot, "please write"); h.ID != asked.ID || h.Chat != n.chat || h.ChatType != "group" ||
		h.SenderID != n.OpenID(apps[1].ID, apps[0].ID) {
		t.Errorf("BotL was given %+v", h)
	}
	answered := n.sees("quicksort")
	if h := n.hears(botK.sdkBot, "quicksort"); h.ID != answered.ID {
		t.Errorf("BotK was given %+v", h)
	}
	n.transcribed("sort this", "please write", "quicksort")
	n.until("Feishu has delivered all it had", func() bool { return n.Waiting(apps[0].ID)+n.Waiting(apps[1].ID) == 0 })
	n.eachOnce(botK.sdkBot)
	n.eachOnce(botL.sdkBot)
}

// connectsTo checks where the SDK opened its first WebSocket, as its log says.
func (p *program) connectsTo(t *testing.T, url string) {
	t.Helper()
	_, first, _ := strings.Cut(p.said(), "ws url: ")
	if !strings.HasPrefix(first, url) {
		t.Errorf("%s connects to %.60s, not to %s", p.app.Name, first, url)
	}
}

// hearsFrom waits for a message with text in it and compares what the bot was
// given with what a bot of the app from said, and as b's own app sees it.
func (n *tenant) hearsFrom(b *sdkBot, from feishusim.App, text string) {
	n.t.Helper()
	said := n.sees(text)
	got := n.hears(b, text)
	want := heard{ID: said.ID, Chat: n.chat, ChatType: "group", Type: "text", Text: got.Text, Created: got.Created,
		SenderType: "bot", SenderID: n.OpenID(b.app.ID, from.ID), Mentions: []string{n.OpenID(b.app.ID, b.app.ID)}}
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("%s was given another message than %s said (-want +got):\n%s", b.app.Name, from.Name, diff)
	}
}

// has reports whether the bot was given a message with text in it.
func (b *sdkBot) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.all, func(h heard) bool { return strings.Contains(h.Text, text) })
}

// transcribed checks that the group's transcript has a line for each text and no
// other. In which order is not said: an answer that comes at once may be written
// before the message it answers, and readers go by ts.
func (n *tenant) transcribed(texts ...string) {
	n.t.Helper()
	var lines []string
	n.until("the transcript is complete", func() bool {
		data, _ := os.ReadFile(filepath.Join(n.dir, "transcripts", "feishu_"+n.chat+".jsonl")) // not there before its first line
		lines = slices.Collect(strings.Lines(string(data)))
		return len(lines) >= len(texts)
	})
	for _, text := range texts {
		times := 0
		for _, line := range lines {
			times += strings.Count(line, text)
		}
		if times != 1 {
			n.t.Errorf("%q stands %d times in the transcript", text, times)
		}
	}
	if len(lines) != len(texts) {
		n.t.Errorf("the transcript has %d lines, want %d:\n%s", len(lines), len(texts), strings.Join(lines, ""))
	}
}

//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/npmtest"
)

// openclawPlugin is OpenClaw's Feishu channel, which OpenClaw itself installs.
const openclawPlugin = "npm:@openclaw/feishu@2026.9.5"

// OpenClaw, installed from npm and set up only with what `feishu-relay init` prints and docs/frameworks.md says, works
// with a bot on Feishu's Node SDK: in the group, by mail, and with the sidecar's MCP tools. Feishu is simulated, and so
// is the model.
func TestOpenClaw(t *testing.T) {
	if os.Getenv("FOREIGN") == "" {
		t.Skip("it takes minutes and 1 GB: make frameworks runs it")
	}
	dir := npmtest.Installed(t, "testdata/foreign/openclaw/package.json", "openclaw")
	nodeDir := npmtest.Installed(t, "../../sidecar/testdata/node/package.json", "@larksuiteoapi/node-sdk")
	clearEnvironment(t, nil)
	feishu := feishusim.New(feishusim.Options{})
	t.Cleanup(func() { _ = feishu.Close() })
	base, err := feishu.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := feishu.Build(feishusim.Scenario{
		Apps:   []feishusim.App{{Name: "Claw"}, {Name: "Writer"}},
		Users:  []string{"Ann"},
		Groups: []feishusim.Group{{Name: "Lab", Members: []string{"Ann", "Claw", "Writer"}}},
	}); err != nil {
		t.Fatal(err)
	}
	world := feishu.State()
	claw, writer, ann, lab := world.Apps[0], world.Apps[1], world.Users[0], world.Groups[0]
	data := filepath.Join(t.TempDir(), "data")

	// The answers of the model, the later conversations first.
	model := startModel(t,
		[2]string{"write a search function", "func search(xs []int, x int) int"},
		[2]string{"quicksort is written", "Yes: which of the empty list and equal numbers did you test?"},
		[2]string{"sort my numbers", "Can you write a quicksort function for Ann?"})

	env, trust, block := initFor(t, claw, base, data)
	api, gateway := startGateway(t, "MAILBOX_GATEWAY=on", "--env-file", env)
	block = strings.ReplaceAll(block, "localhost:8788", "localhost:"+portOf(t, gateway))
	if !strings.Contains(block, `groups: { "`+lab.ID+`": {} }`) {
		t.Errorf("init does not name the bot's group: %s", block)
	}

	o := newOpenClaw(t, dir)
	o.run("", "plugins", "install", openclawPlugin)
	o.patch(model.config(o.home, portOf(t, freePort(t)), claw)) // what a user has already
	o.patch(block)
	o.patch(documented(t, "{ channels: { feishu: { dmPolicy"))
	o.patch(strings.ReplaceAll(documented(t, "{ mcp: { servers: {"), "127.0.0.1:8787", api))
	probe := o.run("", "mcp", "probe", "--json")
	for _, tool := range ourTools() {
		if !strings.Contains(probe, tool) {
			t.Errorf("OpenClaw does not see the tool %s: %s", tool, probe)
		}
	}
	o.start(trust...)

	writerAPI, writerGateway := startGateway(t, "AGENT_NAME=writer", "DATA_DIR="+data, "FEISHU_BASE_URL="+base,
		"INJECT_MENTION=always", "MAILBOX_GATEWAY=on")
	startWriter(t, nodeDir, writer, "http://"+writerGateway)
	ctx, cancel := context.WithTimeout(t.Context(), foreignPatience)
	defer cancel()
	for _, app := range []string{claw.ID, writer.ID} {
		if err := feishu.WaitConnected(ctx, app, 1); err != nil {
			t.Fatalf("%s is not connected: %v", app, err)
		}
	}

	says := func(from, text string) feishusim.Message {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), foreignPatience)
		defer cancel()
		m, err := feishu.Wait(ctx, func(m feishusim.Message) bool {
			return m.SenderName == from && !m.Streaming && strings.Contains(m.Text, text)
		})
		if err != nil {
			t.Fatalf("%s does not say %q: %v; the group has %+v", from, text, err, feishu.Messages(lab.ID))
		}
		return m
	}
	if _, err := feishu.Say(lab.ID, ann.ID, "@Claw please sort my numbers", claw.ID); err != nil {
		t.Fatal(err)
	}
	says("Claw", "Can you write a quicksort")
	says("Writer", "quicksort is written")
	says("Claw", "which of the empty list")
	waitUntil(t, "the third message between the bots is stopped", func() bool {
		return strings.Contains(get(t, writerAPI, "/metrics"), `feishu_relay_stopped_total{agent="writer",reason="max_depth"} 1`)
	})

	// A task by mail wakes OpenClaw, and its answer is the result.
	task := `{"to":"claw","text":"write a search function"}`
	resp, err := http.Post("http://"+writerAPI+"/v1/mailbox/tasks", "application/json", strings.NewReader(task))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the task: %s", resp.Status)
	}
	waitUntil(t, "the task is completed", func() bool {
		tasks := get(t, writerAPI, "/v1/mailbox/tasks")
		return strings.Contains(tasks, `"completed"`) && strings.Contains(tasks, "func search(xs []int, x int) int")
	})
	if n := len(feishu.Messages(lab.ID)); n != 4 {
		t.Errorf("the group has %d messages, not Ann's and three of bots: %+v", n, feishu.Messages(lab.ID))
	}
	for _, r := range feishu.Requests() {
		if bytes.Contains(append([]byte(r.URI), r.Body...), []byte("relaypeer")) {
			t.Errorf("%s %s reached Feishu: it is about mail", r.Method, r.URI)
		}
	}
}

// initFor runs `feishu-relay init` for an app on OpenClaw. It returns the env file that it writes, and what it prints
// for OpenClaw: the variables and the lines of openclaw.json.
func initFor(t *testing.T, app feishusim.AppState, base, data string) (env string, trust []string, block string) {
	t.Helper()
	env = filepath.Join(t.TempDir(), "claw.env")
	cmd := exec.Command("feishu-relay", "init", "--framework", "openclaw", "--agent", "claw", "--app-id", app.ID,
		"--base-url", base, "--data-dir", data, "--out", env, "--lang", "en")
	cmd.Env = append(endsAtOnce(), "FEISHU_APP_SECRET="+app.Secret)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	trust = strings.Fields(string(regexp.MustCompile(`NODE_EXTRA_CA_CERTS=.*`).Find(out)))
	block = string(regexp.MustCompile(`(?s)\{ channels:.*?\n *\} \} \}`).Find(out))
	if len(trust) != 2 || block == "" {
		t.Fatalf("init prints no lines for OpenClaw: %s", out)
	}
	return env, trust, block
}

// documented is the block of docs/frameworks.md that begins so.
func documented(t *testing.T, begins string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(doc), begins)
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatalf("docs/frameworks.md has no block %q", begins)
	}
	return begins + block
}

// startGateway starts a sidecar: settings are variables, and from the first that begins with "-" on, arguments. It
// returns the addresses of its API and its gateway.
func startGateway(t *testing.T, settings ...string) (api, gateway string) {
	t.Helper()
	var env, args []string
	for _, s := range settings {
		if args != nil || strings.HasPrefix(s, "-") {
			args = append(args, s)
		} else {
			env = append(env, s)
		}
	}
	cmd := exec.Command("feishu-relay", args...)
	env = append(env, "LISTEN_ADDR=127.0.0.1:0", "GATEWAY_ADDR=127.0.0.1:0", "LOG_FORMAT=json")
	cmd.Env = append(endsAtOnce(), env...)
	log := startProcess(t, "sidecar", cmd)
	waitUntil(t, "the sidecar listens", func() bool {
		for line := range strings.Lines(log.String()) {
			var l struct{ Msg, Addr string }
			switch json.Unmarshal([]byte(line), &l); l.Msg {
			case "listening":
				api = l.Addr
			case "the gateway listens":
				gateway = l.Addr
			}
		}
		return api != "" && gateway != ""
	})
	return api, gateway
}

// startWriter starts a bot on Feishu's Node SDK that answers the first and, should it be passed on, the second message
// that OpenClaw writes to it.
func startWriter(t *testing.T, dir string, app feishusim.AppState, domain string) {
	t.Helper()
	script, err := filepath.Abs("../../sidecar/testdata/node/bot.mjs")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := json.Marshal(map[string]any{"appId": app.ID, "appSecret": app.Secret, "domain": domain,
		"rules": []map[string]string{
			{"when": "quicksort function", "say": "quicksort is written, shall I test it?", "to": "Claw"},
			{"when": "which of the empty list", "say": "this answer is beyond the limit", "to": "Claw"},
		}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "BOT="+string(settings), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	stdin, err := cmd.StdinPipe() // it ends when this does
	if err != nil {
		t.Fatal(err)
	}
	startProcess(t, "Writer", cmd)
	t.Cleanup(func() { _ = stdin.Close() })
}

// openClaw is an OpenClaw with a home of its own.
type openClaw struct {
	t    *testing.T
	node string
	main string
	home string
	env  []string
}

func newOpenClaw(t *testing.T, dir string) *openClaw {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	o := &openClaw{t: t, node: npmtest.Node(dir), home: t.TempDir(),
		main: filepath.Join(dir, "node_modules/openclaw/openclaw.mjs")}
	o.env = append(os.Environ(), "HOME="+o.home, "NO_COLOR=1", "PATH="+filepath.Dir(o.node)+":"+os.Getenv("PATH"),
		"npm_config_cache="+filepath.Join(home, ".npm"), "npm_config_userconfig="+filepath.Join(home, ".npmrc"))
	return o
}

// patch changes openclaw.json.
func (o *openClaw) patch(config string) {
	o.t.Helper()
	o.run(config, "config", "patch", "--stdin")
}

// run runs a command of OpenClaw.
func (o *openClaw) run(stdin string, args ...string) (stdout string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), foreignPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.node, append([]string{o.main}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.WaitDelay = o.home, o.env, strings.NewReader(stdin), time.Second
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		o.t.Fatalf("openclaw %q: %v: %s%s", args, err, &out, &log)
	}
	return out.String()
}

// start starts OpenClaw until the test ends, with what else is to be in its environment.
func (o *openClaw) start(env ...string) {
	cmd := exec.Command(o.node, o.main, "gateway")
	cmd.Dir, cmd.Env = o.home, append(o.env, env...)
	startProcess(o.t, "OpenClaw", cmd)
}

// model is a language model that speaks OpenAI's API and gives the answer of the first rule whose text is in the
// conversation.
type model struct {
	*httptest.Server
	rules [][2]string
}

func startModel(t *testing.T, rules ...[2]string) *model {
	m := &model{rules: rules}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// config is an openclaw.json with this model and a Feishu channel that knows nothing of the relay.
func (m *model) config(home, port string, app feishusim.AppState) string {
	return fmt.Sprintf(`{
		gateway: { mode: "local", bind: "loopback", port: %s, auth: { mode: "token", token: "of this test" } },
		agents: { defaults: { workspace: %q, skipBootstrap: true, model: { primary: "stub/stub" } } },
		models: { mode: "merge", providers: { stub: { baseUrl: "%s/v1", api: "openai-completions", apiKey: "x", models: [
			{ id: "stub", name: "stub", input: ["text"], reasoning: false, contextWindow: 128000, maxTokens: 4096,
			  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 } } ] } } },
		channels: { feishu: { appId: %q, appSecret: %q } } }`,
		port, filepath.Join(home, "workspace"), m.URL, app.ID, app.Secret)
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Messages []struct{ Content json.RawMessage }
		Stream   bool
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Messages) == 0 {
		http.Error(w, "not a chat completion", http.StatusBadRequest)
		return
	}
	var said []byte // in the conversation: what a person wrote need not be in the last message
	for _, message := range asked.Messages {
		said = append(said, message.Content...)
	}
	answer := "I have nothing to say."
	for _, rule := range m.rules {
		if bytes.Contains(said, []byte(rule[0])) {
			answer = rule[1]
			break
		}
	}
	reply := map[string]string{"role": "assistant", "content": answer}
	choice := map[string]any{"index": 0, "message": reply, "finish_reason": "stop"}
	kind := "chat.completion"
	if asked.Stream {
		choice = map[string]any{"index": 0, "delta": reply, "finish_reason": "stop"}
		kind += ".chunk"
	}
	body, _ := json.Marshal(map[string]any{"id": "c1", "object": kind, "created": 1, "model": "stub",
		"choices": []any{choice}, "usage": map[string]int{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", body)
}

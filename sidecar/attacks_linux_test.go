package sidecar_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/programtest"
	"feishu-relay/internal/test/verify"
)

// releaseProgram builds the program as releases are: the race detector's memory is
// several times as much.
func releaseProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "feishu-relay")
	must(t, programtest.Build(programtest.Relay, program))
	return program
}

// crowd is the hostile neighbours of one sidecar.
type crowd struct {
	t     *testing.T
	ctx   context.Context
	tasks sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// leave ends all attacks.
func (c *crowd) leave() {
	c.mu.Lock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.tasks.Wait()
}

// stall opens n connections of an address, writes what may be the beginning of a
// request, and leaves them open.
func (c *crowd) stall(from, to string, n int, beginning string) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		conn, err := dialer.DialContext(c.ctx, "tcp", to)
		if err != nil {
			c.t.Errorf("stalling: %v", err)
			return
		}
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // an answer may come before all is written
		_, _ = io.WriteString(conn, beginning)
	}
}

// request makes one call and reports its status, 0 where there was no answer.
func (c *crowd) request(method, url string, body io.Reader, header ...string) int {
	req, err := http.NewRequestWithContext(c.ctx, method, url, body)
	must(c.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// Under every attack at once a sidecar takes less memory than the smallest pods
// have, and what its bot says and hears passes.
func TestAllAttacksAtOnce(t *testing.T) {
	verify.Only(t)
	const most = 256 << 10       // KiB
	release := releaseProgram(t) // may take minutes where nothing is compiled yet
	ctx := limited(t)
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	app := apps[0]
	var events atomic.Int64
	bot := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { events.Add(1) }))
	defer bot.Close()

	const token, secret = "the token of this test", "a secret of sixteen"
	api, gateway, hook := freeAddr(t), freeAddr(t), freeAddr(t)
	program := exec.Command(release, "run")
	log, err := os.Create(filepath.Join(n.dir, "log"))
	must(t, err)
	defer log.Close()
	program.Stderr = log
	program.Env = []string{"AGENT_NAME=agent_a", "BOT_NAME=BotA", "DATA_DIR=" + n.dir, "LISTEN_ADDR=" + api, "API_TOKEN=" + token,
		"GATEWAY_ADDR=" + gateway, "WEBHOOK_ADDR=" + hook, "FEISHU_BASE_URL=" + n.url.String(), "FEISHU_APP_ID=" + app.ID,
		"FEISHU_APP_SECRET=" + app.Secret, "FEISHU_ENCRYPT_KEY=" + eventKey, "FEISHU_VERIFICATION_TOKEN=" + app.VerificationToken,
		"BOT_WEBHOOK_URL=" + bot.URL + "/event", "RELAY_SECRET=" + secret, "MAX_BOT_REPLY_DEPTH=1000", "BOT_REPLY_LLM_THRESHOLD=1000"}
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, program.Start())
	defer func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		if err := program.Wait(); err != nil {
			t.Errorf("the sidecar ended with %v", err)
		}
		if data, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("log of %d bytes:\n%.20000s", len(data), data)
		}
	}()
	eventually(ctx, t, "the sidecar listens", func() bool { return dials(api) && dials(gateway) && dials(hook) })
	memory := func(what string) int {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", program.Process.Pid))
		must(t, err)
		_, rest, _ := strings.Cut(string(data), what+":")
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		must(t, err)
		return kib
	}
	before := memory("VmHWM")

	c := &crowd{t: t, ctx: ctx}
	defer c.leave()
	attack := func(f func()) { c.tasks.Go(f) }
	junk := strings.Repeat("x", 1<<20)
	// Stalled bodies, headers that never end, and answers that nobody reads.
	for i, addr := range []string{gateway, hook, api} {
		for j := range 3 {
			from := fmt.Sprintf("127.0.%d.%d", i+1, j+2)
			attack(func() {
				c.stall(from, addr, 150, "POST /webhook/event HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{")
				c.stall(from, addr, 100, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+junk[:6<<10])
				c.stall(from, addr, 40, "POST /open-apis/im/v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"+junk[:900<<10])
			})
		}
	}
	for _, a := range []struct {
		what  string
		times int
		call  func(i int) int
		fails func(code int) bool
	}{
		{"an unsigned event, up to a large one,", 64, func(i int) int {
			return c.request("POST", "http://"+hook+"/webhook/event", strings.NewReader(`{"encrypt":"`+junk[:i*16<<10]+`"}`))
		}, func(code int) bool { return code != http.StatusOK }},
		{"a guessed token", 200, func(i int) int {
			return c.request("GET", "http://"+api+"/v1/status", nil, "Authorization", "Bearer guess-"+strconv.Itoa(i))
		}, func(code int) bool { return code == http.StatusUnauthorized || code == http.StatusTooManyRequests }},
		{"a web page that calls the gateway", 100, func(int) int {
			return c.request("POST", "http://"+gateway+"/callback/ws/endpoint",
				strings.NewReader(`{"AppID":"cli_x","AppSecret":"x"}`), "Origin", "https://evil.example")
		}, func(code int) bool { return code == http.StatusForbidden }},
	} {
		attack(func() {
			for i := range a.times {
				if code := a.call(i); !a.fails(code) {
					t.Errorf("%s was answered %d", a.what, code)
				}
			}
		})
	}
	// Lines of the queue and letters, huge and unsigned.
	attack(func() {
		queue, err := os.OpenFile(filepath.Join(n.dir, "relay", "outbound.jsonl"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		must(t, err)
		defer queue.Close()
		inbox := filepath.Join(n.dir, "mailboxes", "agent_a", "inbox")
		must(t, os.MkdirAll(inbox, 0o700))
		for i := range 40 {
			_, err := fmt.Fprintf(queue, `{"relay_msg_id":"%d%s","channel":"feishu","chat_id":"oc_%d%s","content":"",`+
				`"sender_bot_open_id":"","sender_agent_name":"mallory","metadata":{}}`+"\n", i, junk[:400<<10], i, junk[:400<<10])
			must(t, err)
			must(t, os.WriteFile(filepath.Join(inbox, fmt.Sprintf("%d.msg.json", i)), []byte(`{"version":"1.0","id":"m`+
				strconv.Itoa(i)+`","from":"mallory","to":"agent_a","type":"answer","reply_to":"nothing","content":"`+junk[:100<<10]+`"}`), 0o600))
		}
		must(t, syscall.Mkfifo(filepath.Join(n.dir, "transcripts", "feishu_oc_fifo.jsonl"), 0o600))
	})

	// The bot meanwhile: Feishu's events, its own calls through the gateway, what it says.
	over := make(chan struct{})
	go func() {
		c.tasks.Wait()
		close(over)
	}()
	rounds, again := 0, 0
	passes := func(what string, want int, call func() int) {
		code := call()
		if code == 0 { // its connection made room before the call was read: clients repeat that
			again++
			code = call()
		}
		if code != want {
			t.Errorf("%s in round %d: got %d", what, rounds, code)
		}
	}
	for attacked := true; attacked || rounds < 20; rounds++ {
		select {
		case <-over:
			attacked = false
		default:
		}
		passes("Feishu's event", http.StatusOK, func() int { return n.postsEventTo(hook, app, fmt.Sprintf("e%d", rounds)) })
		passes("the bot's token call", http.StatusOK, func() int {
			return c.request("POST", "http://"+gateway+"/open-apis/auth/v3/tenant_access_token/internal",
				strings.NewReader(fmt.Sprintf(`{"app_id":%q,"app_secret":%q}`, app.ID, app.Secret)))
		})
		passes("the bot's message", http.StatusAccepted, func() int {
			said := fmt.Sprintf(`{"chat_id":"oc_x","message_id":"om_%d","content":"hello"}`, rounds)
			return c.request("POST", "http://"+api+"/v1/outbound", strings.NewReader(said), "Authorization", "Bearer "+token,
				"Content-Type", "application/json")
		})
	}
	if again > 2 {
		t.Errorf("%d calls had no answer", again)
	}
	if events.Load() != int64(rounds) {
		t.Errorf("the bot was given %d of Feishu's events, want %d", events.Load(), rounds)
	}
	eventually(ctx, t, "all lines and letters are set aside", func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/metrics", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && series(string(text), `feishu_relay_stopped_total{reason="malformed"}`) == 40
	})
	peak := memory("VmHWM")
	info, err := log.Stat()
	must(t, err)
	t.Logf("peak memory %d KiB, %d before the attacks; %d rounds of the bot's traffic, %d calls repeated; %d bytes of log",
		peak, before, rounds, again, info.Size())
	if peak > most {
		t.Errorf("the sidecar took %d KiB, want at most %d", peak, most)
	}
}

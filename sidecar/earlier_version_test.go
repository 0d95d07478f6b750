//go:build linux

package sidecar_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"feishu-relay/sidecar"
)

// earlierVersion is the commit whose program today's must get along with: in one
// group, and with the files that it wrote.
const earlierVersion = "061625fbeef69c4a3e393a489467bd28be26b26d"

// errNoHistory says that the earlier version cannot be built here.
var errNoHistory = errors.New("this is no clone, or a shallow one: the earlier version is not in it")

// earlierProgram returns the program of the earlier version. It is built once, from
// the history of this repository, and kept in the user's cache folder.
func earlierProgram(t *testing.T) string {
	t.Helper()
	program, err := buildEarlier()
	if errors.Is(err, errNoHistory) {
		t.Skipf("%v; run `git fetch --unshallow` to try it with version %.7s", err, earlierVersion)
	}
	must(t, err)
	return program
}

var buildEarlier = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "feishu-relay-test")
	program := filepath.Join(home, "feishu-relay-"+earlierVersion)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := runIn("..", "git", "cat-file", "-e", earlierVersion+"^{commit}"); err != nil {
		shallow, _ := exec.Command("git", "rev-parse", "--is-shallow-repository").Output() // no clone: nothing
		if string(shallow) == "false\n" {
			return "", fmt.Errorf("the history has no commit %s: %w", earlierVersion, err)
		}
		return "", errNoHistory
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	source, err := os.MkdirTemp(home, "source")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	archive := filepath.Join(source, "source.tar")
	built := filepath.Join(source, "feishu-relay")
	// As `make build` does: the packages of others need not be compiled again.
	err = errors.Join(
		runIn("..", "git", "archive", "--output", archive, earlierVersion),
		runIn(source, "tar", "-xf", archive),
		runIn(source, "env", "CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-trimpath", "-o", built, "./cmd/feishu-relay"))
	if err == nil {
		err = os.Rename(built, program)
	}
	return program, err
})

func runIn(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// asEarlier lets the next lives of a sidecar be of the earlier version.
func (p *process) asEarlier(t *testing.T, program string) {
	t.Helper()
	p.cfg.ListenAddr = freeAddr(t)
	p.program = func(cfg sidecar.Config) *exec.Cmd {
		cmd := exec.Command(program, "run")
		cmd.Env = append(environmentOf(&cfg), "PATH="+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive the test
		return cmd
	}
}

// asToday lets the next lives of a sidecar be of today's version.
func (p *process) asToday() { p.cfg.ListenAddr, p.program = "127.0.0.1:0", nil }

// environmentOf is the environment in which the program has a configuration of the
// tests.
func environmentOf(cfg *sidecar.Config) []string {
	vars := []string{
		"AGENT_NAME=" + string(cfg.Agent), "BOT_NAME=" + cfg.BotName,
		"LISTEN_ADDR=" + cfg.ListenAddr, "INJECT_URL=" + cfg.InjectURL,
		"RELAY_BACKEND=" + cfg.Backend, "REDIS_URL=" + string(cfg.RedisURL), "RELAY_CHANNEL=" + cfg.RelayChannel,
		"DATA_DIR=" + filepath.Dir(cfg.RelayDir), "RELAY_DIR=" + cfg.RelayDir, "TRANSCRIPT_DIR=" + cfg.TranscriptDir,
		"MAX_BOT_REPLY_DEPTH=" + strconv.Itoa(cfg.Limits.MaxDepth),
		"BOT_REPLY_LLM_THRESHOLD=" + strconv.Itoa(cfg.Limits.Threshold),
	}
	m := &cfg.Mailbox
	if !m.On {
		return append(vars, "MAILBOX=off")
	}
	return append(vars, "MAILBOX_DIR="+m.Dir, "MAILBOX_BACKEND="+m.Backend,
		"HEARTBEAT_INTERVAL="+m.Heartbeat.String(), "HEARTBEAT_TIMEOUT="+m.HeartbeatTimeout.String(),
		"ACK_TIMEOUT="+m.AckTimeout.String(), "RETRY_BASE="+m.RetryBase.String(),
		"PEER_MAX_EXCHANGES="+strconv.Itoa(m.MaxExchanges))
}

// withMailboxIn turns the mailbox on, in a folder or on Redis.
func withMailboxIn(cfg *sidecar.Config, dir string) {
	cfg.DedupSize = 5000
	cfg.DeliveryTimeout = 15 * time.Minute
	cfg.Mailbox = sidecar.MailboxConfig{On: true, Dir: dir, Backend: cfg.Backend, MaxTasks: 3,
		Heartbeat: time.Second, HeartbeatTimeout: 5 * time.Second, AckTimeout: 30 * time.Second,
		RetryBase: time.Second, MaxRetries: 3, MaxExchanges: 1000}
}

// mails sends a direct message, waits until the other bot has it, and checks that
// it came once.
func (b *bot) mails(ctx context.Context, t *testing.T, to *bot, id string) {
	t.Helper()
	b.sends(ctx, t, "/v1/mailbox/messages", question(to, id))
	to.receives(ctx, t, "question", "text of "+id)
}

func question(to *bot, id string) map[string]any {
	return map[string]any{"id": id, "to": to.name, "type": "question", "content": "text of " + id}
}

func (b *bot) sends(ctx context.Context, t *testing.T, route string, body any) {
	t.Helper()
	status, code, err := b.post(ctx, route, body)
	if err != nil || status >= http.StatusMultipleChoices {
		t.Fatalf("%s of %s was answered %d %s: %v", route, b.name, status, code, err)
	}
}

// receives waits for a direct message.
func (b *bot) receives(ctx context.Context, t *testing.T, kind, text string) {
	t.Helper()
	if b.h.await(ctx, func() bool { return b.h.mailTimes(b.name, kind, text) > 0 }) != nil {
		t.Fatalf("%s did not receive the %s %q", b.name, kind, text)
	}
}

// mailTimes is how often a bot received a direct message; the caller holds mu.
func (h *history) mailTimes(bot, kind, text string) (n int) {
	for _, m := range h.mail {
		if m.bot == bot && m.kind == kind && strings.Contains(m.text, text) {
			n++
		}
	}
	return n
}

// eachMailOnce checks that no direct message came twice, except one to a bot for each kill of its sidecar.
func (h *history) eachMailOnce(t *testing.T, mayHaveDied ...*bot) {
	t.Helper()
	excused := map[string]int{}
	for _, b := range mayHaveDied {
		excused[b.name] = len(b.side.killedLives())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[mailed]bool{}
	for _, m := range h.mail {
		if seen[m] {
			if excused[m.bot]--; excused[m.bot] < 0 {
				t.Errorf("%s received the %s %s twice", m.bot, m.kind, m.id)
			}
		}
		seen[m] = true
	}
}

// correspond lets two bots send each other a message and a task.
func correspond(ctx context.Context, t *testing.T, a, b *bot, round string) {
	t.Helper()
	for _, pair := range [][2]*bot{{a, b}, {b, a}} {
		from, to := pair[0], pair[1]
		name := fmt.Sprintf("%s-%s-%s", round, from.name, to.name)
		from.mails(ctx, t, to, "m-"+name)
		from.sends(ctx, t, "/v1/mailbox/tasks",
			map[string]any{"to": to.name, "task_id": "t-" + name, "text": "task " + name})
		to.receives(ctx, t, "task", "task "+name)
		to.sends(ctx, t, "/v1/mailbox/tasks/t-"+name, map[string]any{"state": "completed", "text": "result of " + name})
		from.receives(ctx, t, "task_update", "result of "+name)
	}
}

// Sidecars of the earlier version and of today's share a group: each message and
// each mail passes once, in both directions. Then one is upgraded, as users do: one
// bot after the other.
func TestEarlierVersionInOneGroup(t *testing.T) {
	t.Parallel()
	program := earlierProgram(t)
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			mail := t.TempDir()
			c := prepare(t, onBackend(t, backend, setup{webhooks: []int{1, 2}, callers: 2,
				change: func(_ int, cfg *sidecar.Config) { withMailboxIn(cfg, mail) }}))
			a, b, d := c.bots[0], c.bots[1], c.bots[2] // a reads its stream
			a.side.asEarlier(t, program)
			d.side.asEarlier(t, program)
			for _, b := range c.bots {
				b.side.start("")
			}
			c.connect()
			ctx := limited(t)
			c.ready(ctx)
			c.talk(ctx, 5, "oc_1", "oc_2")
			correspond(ctx, t, a, b, "first")
			correspond(ctx, t, b, d, "first")

			d.side.stop()
			_, err := a.say(ctx, "oc_1")
			must(t, err)
			_, err = b.say(ctx, "oc_1")
			must(t, err)
			a.sends(ctx, t, "/v1/mailbox/messages", question(d, "m-away"))
			d.side.asToday()
			d.side.start("")
			c.talk(ctx, 5, "oc_1", "oc_2")
			d.receives(ctx, t, "question", "text of m-away")
			correspond(ctx, t, a, d, "second")

			a.side.stop()
			a.side.asToday()
			a.side.start("")
			c.talk(ctx, 3, "oc_1", "oc_2")
			correspond(ctx, t, a, b, "third")
			c.verify(ctx)
			c.h.eachMailOnce(t)
		})
	}
}

// The way back: a sidecar of the earlier version goes on with the queue and the
// transcripts that today's has written to.
func TestEarlierVersionReadsTodaysFiles(t *testing.T) {
	t.Parallel()
	program := earlierProgram(t)
	c := prepare(t, setup{bots: 2, webhooks: []int{1}})
	today, earlier := c.bots[0], c.bots[1]
	earlier.side.asEarlier(t, program)
	for _, b := range c.bots {
		b.side.start("")
	}
	c.connect()
	ctx := limited(t)
	c.ready(ctx)
	c.talk(ctx, 1, "oc_1", "oc_2")
	c.h.complete(ctx, t)
	c.quiet(ctx)
	earlier.side.stop()
	for i := range 20 {
		_, err := today.say(ctx, fmt.Sprintf("oc_%d", i%2+1))
		must(t, err)
	}
	must(t, today.hear(ctx, "oc_1", "Ann", 1))
	eventually(ctx, t, "all is in the queue", func() bool {
		st, err := today.status(ctx)
		return err == nil && st.Queues["outbound"].Outbox.Pending == 0
	})
	today.side.stop()
	earlier.side.start("")
	today.side.start("")
	c.verify(ctx)
	for _, chat := range []string{"oc_1", "oc_2"} {
		var shown, want struct{ Entries []any }
		route := "/v1/transcripts/feishu/" + chat + "?limit=500"
		must(t, earlier.get(ctx, route, &shown))
		must(t, today.get(ctx, route, &want))
		want.Entries = messagesOf(want.Entries)
		if fmt.Sprint(shown) != fmt.Sprint(want) || len(want.Entries) == 0 {
			t.Errorf("the earlier version shows %d entries of %s, today's %d:\n%v\n%v",
				len(shown.Entries), chat, len(want.Entries), shown, want)
		}
	}
}

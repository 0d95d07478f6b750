//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// roundsEnv is how often `make faults` goes through all faults. Unset: `make test`, once through some.
const roundsEnv = "FAULT_ROUNDS"

func faultRounds(t *testing.T) (n int, long bool) {
	t.Helper()
	text := os.Getenv(roundsEnv)
	if text == "" {
		return 1, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of rounds", roundsEnv, text)
	}
	return n, true
}

// roundsLimit is a context for the waits of a test that goes through faults.
func roundsLimit(t *testing.T, rounds int) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(rounds)*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// answerWithin bounds a call of a sidecar's API. Only a call that hangs takes so long.
const answerWithin = time.Minute

// settledChat is a group in which nobody speaks: its settings change.
const settledChat = "oc_settled"

// withMailboxIn turns the mailbox on, in a folder or on Redis.
func withMailboxIn(cfg *sidecar.Config, dir string) {
	cfg.DedupSize = 5000
	cfg.DeliveryTimeout = 15 * time.Minute
	cfg.Mailbox = sidecar.MailboxConfig{On: true, Dir: dir, MaxTasks: 3,
		Heartbeat: time.Second, HeartbeatTimeout: 5 * time.Second, AckTimeout: 30 * time.Second,
		RetryBase: time.Second, MaxRetries: 3, MaxExchanges: 1000}
}

// withErrands is s with mail and settings of a group.
func withErrands(t *testing.T, s setup) setup {
	t.Helper()
	mail, groups := t.TempDir(), filepath.Join(t.TempDir(), "groups.json")
	must(t, os.WriteFile(groups, fmt.Appendf(nil, `{"groups":{%q:{"members":["agent_a","agent_b"]}}}`, settledChat), 0o600))
	s.bots, s.separate, s.webhooks = 2, true, []int{1}
	s.change = func(_ int, cfg *sidecar.Config) {
		withMailboxIn(cfg, mail)
		cfg.Mailbox.MaxExchanges = 1_000_000
		cfg.GroupsFile, cfg.MembershipCheck = groups, "off"
		cfg.Steer = sidecar.SteerConfig{AnswerMode: "all", StopNotice: "off", MaxDepth: 10}
	}
	return s
}

// errands are direct messages and changes of a group's settings beside the talk of two bots.
type errands struct {
	c    *cluster
	n    int // of each bot
	done chan struct{}
	err  error
}

// mailAhead is how many direct messages of a bot may be under way.
const mailAhead = 5

// startErrands runs them until the channel is closed.
func (c *cluster) startErrands(ctx context.Context, until <-chan struct{}) *errands {
	e := &errands{c: c, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for !closed(until) || e.n < 3 {
			e.n++
			if e.err = e.run(ctx, e.n); e.err != nil {
				return
			}
		}
	}()
	return e
}

func (e *errands) run(ctx context.Context, n int) error {
	a, b := e.c.bots[0], e.c.bots[1]
	for _, pair := range [][2]*bot{{a, b}, {b, a}} {
		id := e.id(pair[0], n)
		e.c.h.mails(id)
		if err := pair[0].insist(ctx, "/v1/mailbox/messages", question(pair[1], id)); err != nil {
			return err
		}
	}
	for _, bot := range e.c.bots { // each changes another setting
		if err := bot.changes(ctx, fmt.Sprintf(`{%q:%d}`, settingOf(bot), settingAt(n))); err != nil {
			return err
		}
	}
	return e.c.h.await(ctx, func() bool { return len(e.c.h.mail) >= 2*(n-mailAhead) })
}

func (e *errands) id(from *bot, n int) string { return fmt.Sprintf("m-%s-%04d.", from.name, n) }

func settingOf(b *bot) string {
	if b.name == "agent_a" {
		return "limit"
	}
	return "budget"
}

// settingAt is the n-th value.
func settingAt(n int) int { return 5 + n%2 }

// changes changes settings of settledChat, over faults.
func (b *bot) changes(ctx context.Context, body string) error {
	for {
		url, err := b.side.url(ctx)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPatch, url+"/v1/groups/"+settledChat, strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := b.http.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			if resp.StatusCode < 500 {
				return fmt.Errorf("a change of settings was answered %d", resp.StatusCode)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		breathe(ctx)
	}
}

// verify waits until each direct message has come once, both sidecars have the last settings, and both
// show of all messages that they were delivered.
func (e *errands) verify(ctx context.Context) {
	c, t := e.c, e.c.t
	t.Helper()
	<-e.done
	must(t, e.err)
	a, b := c.bots[0], c.bots[1]
	for n := 1; n <= e.n; n++ {
		b.receives(ctx, t, "question", "text of "+e.id(a, n))
		a.receives(ctx, t, "question", "text of "+e.id(b, n))
	}
	c.h.eachMailOnce(t, c.bots...)
	last := settingAt(e.n)
	for _, viewer := range c.bots {
		eventually(ctx, t, viewer.name+" has the last settings", func() bool {
			var g shownGroup
			return viewer.get(ctx, "/v1/groups/"+settledChat, &g) == nil && g.Settings.Limit == last && g.Settings.Budget == last
		})
		for _, of := range c.bots {
			for _, chat := range []string{"oc_1", "oc_2"} {
				c.wantOutcomes(ctx, viewer, of.name, chat)
			}
		}
	}
	t.Logf("%d direct messages and %d changes of settings", 2*e.n, 2*e.n)
}

// mark is the present moment of the history.
func (h *history) mark() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moment
}

// passed waits until each bot has received a message that was sent after a mark.
func (h *history) passed(ctx context.Context, mark int64) error {
	return h.await(ctx, func() bool {
		got := map[string]bool{}
		for _, d := range slices.Backward(h.record.Deliveries) {
			if d.At <= mark {
				break
			}
			if m := h.record.Messages[d.ID]; m != nil && m.Called > mark {
				got[d.Bot] = true
			}
		}
		return len(got) == len(h.record.Bots)
	})
}

// mails notes that a bot begins to send a direct message.
func (h *history) mails(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mailing[id] = h.now()
}

// mailPassed waits until each bot has received a direct message that was sent after a mark.
func (h *history) mailPassed(ctx context.Context, mark int64) error {
	return h.await(ctx, func() bool {
		got := map[string]bool{}
		for _, m := range h.mail {
			got[m.bot] = got[m.bot] || h.mailing[m.id] > mark
		}
		return !slices.ContainsFunc(h.record.Bots, func(bot string) bool { return !got[bot] })
	})
}

// killOne kills the sidecar of the n-th bot, counted round, and starts it again.
func (c *cluster) killOne(n int) {
	victim := c.bots[n%len(c.bots)].side
	victim.kill()
	victim.countKill()
	victim.start("")
}

// mustPlant plants faults in the record: the checker would have found them among what happened there. If no
// sidecar was killed, some are not possible.
func (r *record) mustPlant(t *testing.T) {
	t.Helper()
	wantsKill := []string{"two repeats of one chat after one kill", "a repeat to a bot that resumes its stream"}
	none := r.plant(t)
	for _, left := range none {
		if r.kills() > 0 || !slices.Contains(wantsKill, left) {
			t.Errorf("the history has no place for %s", left)
		}
	}
	t.Logf("%d messages and %d deliveries; %d of %d planted faults found", len(r.Messages), len(r.Deliveries),
		len(plantedFaults)-len(none), len(plantedFaults))
}

func question(to *bot, id string) map[string]any {
	return map[string]any{"id": id, "to": to.name, "type": "question", "content": "text of " + id}
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

// wantOutcomes waits until viewer shows, for each message of a chat that a bot was given,
// that it was.
func (c *cluster) wantOutcomes(ctx context.Context, viewer *bot, name, chat string) {
	c.t.Helper()
	given := c.h.given(name)
	c.h.mu.Lock()
	for id := range given {
		if c.h.record.Messages[id].Chat != chat {
			delete(given, id)
		}
	}
	c.h.mu.Unlock()
	if len(given) == 0 {
		c.t.Fatalf("%s was given nothing", name)
	}
	what := fmt.Sprintf("%s shows that %s was given %d messages", viewer.name, name, len(given))
	eventually(ctx, c.t, what, func() bool {
		var answer struct{ Outcomes []httpapi.Outcome }
		if viewer.get(ctx, "/v1/outcomes?limit=5000&chat_id="+chat, &answer) != nil {
			return false
		}
		shown := map[relay.MessageID]bool{}
		for _, o := range answer.Outcomes {
			if string(o.Agent) == name && o.Delivered != 0 {
				shown[o.RelayMsgID] = true
			}
		}
		for id := range given {
			if !shown[id] {
				return false
			}
		}
		return true
	})
}

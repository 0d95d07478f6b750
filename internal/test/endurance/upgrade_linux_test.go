package endurance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/safefile"
)

const (
	upgradeEnv = "UPGRADE"      // not empty: run the upgrade tests
	fromEnv    = "UPGRADE_FROM" // the earlier version, a tag or a commit; empty: the last one
)

const secret = "a secret of the upgrade tests"

// earlierVersion is the version to upgrade from; the test is skipped unless it is requested.
func earlierVersion(t *testing.T) version {
	t.Helper()
	if os.Getenv(upgradeEnv) == "" {
		t.Skip("an earlier version is built and run by `make upgrade`")
	}
	v, err := earlier(t.Context(), os.Getenv(fromEnv))
	must(t, err)
	t.Logf("from %s (%.7s), which signs mail: %t", v.name, v.commit, v.signsMail)
	return v
}

// eachWay runs a test on files and on Redis, with and without RELAY_SECRET.
func eachWay(t *testing.T, test func(t *testing.T, v version, o teamSetup)) {
	v := earlierVersion(t)
	for _, backend := range []string{"file", "redis"} {
		for _, signed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/signed=%t", backend, signed), func(t *testing.T) {
				t.Parallel()
				o := teamSetup{redis: backend == "redis", env: map[string]string{}, webhooks: []string{"agent_a", "agent_b"},
					gateways: []string{"agent_g"}}
				if signed {
					o.env["RELAY_SECRET"] = secret
				}
				if signed && !v.signsMail {
					o.env["MAILBOX_UNSIGNED"] = "allow" // the earlier version does not know it
				}
				if test(t, v, o); !t.Failed() {
					t.Log("nothing was lost and nothing came twice")
				}
			})
		}
	}
}

// left is what the earlier version left behind.
type left struct {
	settled            []string // messages whose outcome was recorded
	card, cardMessage  string   // a card that the bot still writes
	openTask, awayTask string   // a task that agent_b works on, one that it has not read
	doneTask           string   // that agent_b gave and agent_a completed
	dead               string   // mail that expired
	judgeOff           bool     // a person turned the judge of the group off; false: it had no such setting
	outcomes           bool     // whether it showed outcomes
}

// An earlier version is killed in the middle of everything and this one is started on what it left:
// what was accepted comes, once; what was settled does not come again; settings, tasks, dead letters,
// drafts and outcomes are as they were.
func TestUpgradeOfState(t *testing.T) {
	eachWay(t, func(t *testing.T, v version, o teamSetup) {
		n := newTeam(t, o)
		for _, b := range n.bots {
			b.as(v.program)
		}
		l := n.leave(t)
		t.Logf("the earlier version was killed; it left %+v", *l)
		program := presentProgram(t)
		for _, b := range n.bots {
			b.as(program)
		}
		n.resume(t, l)
	})
}

// leave lets the earlier version run until everything is under way, and kills it.
func (n *team) leave(t *testing.T) *left {
	ctx := limited(t)
	a, b, g := n.bot("agent_a"), n.bot("agent_b"), n.bot("agent_g")
	n.start(ctx, n.bots...)
	l := &left{}

	// All of this is delivered and settled.
	_, err := n.sim.Say(n.chat, n.user.ID, "hello everybody")
	must(t, err)
	for _, from := range []*bot{a, b, g} {
		id, err := from.say(ctx, "settled words of "+from.name)
		must(t, err)
		l.settled = append(l.settled, id)
	}
	_, err = a.mail(ctx, b, "settled mail")
	must(t, err)
	l.doneTask, l.openTask, l.awayTask = "t_done", "t_open", "t_away"
	b.give(ctx, a, l.doneTask, "do this")
	n.book.hasText(ctx, t, a.name, "do this")
	a.report(ctx, l.doneTask, "completed", "this is done")
	n.book.hasText(ctx, t, b.name, "this is done")
	a.give(ctx, b, l.openTask, "do that")
	n.book.hasText(ctx, t, b.name, "do that")
	b.report(ctx, l.openTask, "working", "half of that")
	n.book.hasText(ctx, t, a.name, "half of that")
	n.book.complete(ctx, t)
	status, _, err := a.call(ctx, http.MethodPatch, "/v1/groups/"+n.chat, map[string]any{"judge": false}, nil)
	must(t, err)
	if l.judgeOff = status == http.StatusOK; l.judgeOff {
		eventually(ctx, t, "the other sidecar has the settings", func() bool { return b.judgeOff(ctx, n.chat) })
	}
	l.outcomes = n.deliveredAt(ctx, a, l.settled[0]) >= 0
	for _, s := range n.bots {
		eventually(ctx, t, s.name+" is idle", func() bool { return s.idle(ctx) })
	}
	if l.outcomes {
		for i, id := range l.settled {
			eventually(ctx, t, "the outcomes are recorded", func() bool { return n.deliveredAt(ctx, n.bots[(i+1)%2], id) == 2 })
		}
	}

	// From here on nothing of it is settled at agent_b.
	b.away.Store(true)
	asked := b.asks.Load()
	_, err = a.say(ctx, "refused by the bot for now")
	must(t, err)
	eventually(ctx, t, "the bot was asked", func() bool { return b.asks.Load() > asked })
	b.kill()
	_, err = g.say(ctx, "sent while agent_b was away")
	must(t, err)
	_, err = a.mail(ctx, b, "mail while agent_b was away")
	must(t, err)
	a.give(ctx, b, l.awayTask, "do it later")
	l.dead = n.id("m", a.name)
	a.do(ctx, http.MethodPost, "/v1/mailbox/messages", map[string]any{"id": l.dead, "to": b.name, "type": "question",
		"content": "mail that expires", "metadata": map[string]any{"ttl": 1, "requiresAck": true}}, nil)
	eventually(ctx, t, "the mail is a dead letter", func() bool { return a.deadLetter(ctx, l.dead) })
	l.cardMessage, l.card = g.card(ctx, t, "the beginning of")
	eventually(ctx, t, "all is published", func() bool { return a.idle(ctx) && g.idle(ctx) })

	// The last message is accepted and stays in the outbox.
	release := n.blockQueue(t)
	_, err = a.say(ctx, "accepted and not published")
	must(t, err)
	a.kill()
	g.kill()
	release()
	return l
}

// blockQueue keeps everybody from publishing.
func (n *team) blockQueue(t *testing.T) (release func()) {
	t.Helper()
	if n.redis != nil {
		must(t, n.redis.Pause())
		return func() { must(t, n.redis.Resume()) }
	}
	queue, err := os.OpenFile(filepath.Join(n.dir, "relay", "outbound.jsonl"), os.O_RDWR, 0)
	must(t, err)
	must(t, safefile.Lock(queue))
	return func() { must(t, queue.Close()) }
}

// resume starts this version on what was left and compares.
func (n *team) resume(t *testing.T, l *left) {
	ctx := limited(t)
	a, b, g := n.bot("agent_a"), n.bot("agent_b"), n.bot("agent_g")
	b.away.Store(false)
	n.start(ctx, n.bots...)
	n.book.complete(ctx, t)
	n.book.hasText(ctx, t, b.name, "do it later")

	if l.judgeOff {
		eventually(ctx, t, "the group's settings", func() bool { return a.judgeOff(ctx, n.chat) && b.judgeOff(ctx, n.chat) })
	}
	if _, err := os.Stat(filepath.Join(n.dir, "relay", "outcomes")); err == nil {
		t.Log("the earlier version wrote outcomes to the folder outcomes/, which is not read any more (docs/files.md)")
		l.outcomes = false
	}
	if l.outcomes {
		for _, id := range l.settled {
			eventually(ctx, t, "the outcome of "+id, func() bool { return n.deliveredAt(ctx, b, id) == 2 })
		}
	}
	if got := b.taskState(ctx, l.doneTask); got != "completed" {
		t.Errorf("the task that was completed is %s", got)
	}
	b.report(ctx, l.openTask, "completed", "all of that")
	n.book.hasText(ctx, t, a.name, "all of that")
	b.report(ctx, l.awayTask, "completed", "it is later now")
	n.book.hasText(ctx, t, a.name, "it is later now")
	if !a.deadLetter(ctx, l.dead) {
		t.Error("the dead letter is gone")
	}
	a.do(ctx, http.MethodPost, "/v1/mailbox/dead-letters/"+l.dead+"/replay", nil, nil)
	n.book.hasText(ctx, t, b.name, "mail that expires")
	g.write(ctx, t, l.card, "the beginning of the whole text", 2)
	g.finish(ctx, t, l.card, 3)
	n.book.accepted(l.cardMessage, message{from: g.name, text: "whole text"})
	n.talk(ctx, t)
	n.verify(ctx, t)
	n.book.mu.Lock()
	defer n.book.mu.Unlock()
	for bot, texts := range map[string][]string{a.name: {"do this", "half of that", "all of that", "it is later now"},
		b.name: {"this is done", "do that", "do it later", "mail that expires"}} {
		for _, text := range texts {
			if times := n.book.times(bot, text); times != 1 {
				t.Errorf("%s was given %q %d times", bot, text, times)
			}
		}
	}
}

// judgeOff reports whether a person has turned the judge of a group off, as the sidecar shows.
func (s *side) judgeOff(ctx context.Context, chat string) bool {
	var group struct {
		Settings struct{ Judge bool }
		Sources  struct{ Judge string }
	}
	status, _, err := s.call(ctx, http.MethodGet, "/v1/groups/"+chat, nil, &group)
	return err == nil && status == http.StatusOK && !group.Settings.Judge && group.Sources.Judge == "record"
}

// deliveredAt is at how many bots a message was delivered, as a sidecar shows; -1: it does not show outcomes.
func (n *team) deliveredAt(ctx context.Context, s *bot, id string) int {
	var shown struct {
		Outcomes []struct {
			Agent       string
			RelayMsgID  string `json:"relay_msg_id"`
			DeliveredAt int64  `json:"delivered_at"`
		}
	}
	status, _, err := s.call(ctx, http.MethodGet, "/v1/outcomes?limit=5000&chat_id="+n.chat, nil, &shown)
	if err != nil || status != http.StatusOK {
		return -1
	}
	at := map[string]bool{}
	for _, o := range shown.Outcomes {
		if o.RelayMsgID == id && o.DeliveredAt > 0 {
			at[o.Agent] = true
		}
	}
	return len(at)
}

func (s *side) deadLetter(ctx context.Context, id string) bool {
	status, text, err := s.call(ctx, http.MethodGet, "/v1/mailbox/dead-letters", nil, nil)
	return err == nil && status == http.StatusOK && strings.Contains(text, `"`+id+`"`)
}

// taskState is the state of a task that the agent has given or received.
func (s *side) taskState(ctx context.Context, id string) string {
	s.t.Helper()
	var answer struct{ Tasks []struct{ State string } }
	s.do(ctx, http.MethodGet, "/v1/mailbox/tasks/"+id, nil, &answer)
	if len(answer.Tasks) == 0 {
		return "missing"
	}
	return answer.Tasks[0].State
}

// talk lets every bot send a message to the group, and those with a webhook mail to each other and
// a task.
func (n *team) talk(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, from := range n.bots {
		_, err := from.say(ctx, "a word of "+from.name)
		must(t, err)
	}
	for _, from := range n.bots {
		for _, to := range n.bots {
			if from == to || from.sdk != nil || to.sdk != nil {
				continue
			}
			_, err := from.mail(ctx, to, "mail of "+from.name)
			must(t, err)
			id := n.id("t", from.name)
			from.give(ctx, to, id, "do "+id)
			n.book.hasText(ctx, t, to.name, "do "+id)
			to.report(ctx, id, "completed", "end of "+id)
			n.book.hasText(ctx, t, from.name, "end of "+id)
		}
	}
	n.book.complete(ctx, t)
}

// verify waits for the end of everything and looks for what was lost or came twice.
func (n *team) verify(ctx context.Context, t *testing.T) {
	t.Helper()
	n.book.complete(ctx, t)
	for _, s := range n.bots {
		eventually(ctx, t, s.name+" is idle", func() bool { return s.idle(ctx) })
	}
	found, _ := n.book.faults(func(string, int) bool { return false })
	for _, f := range found {
		t.Error(f)
	}
	n.recorded(ctx, t)
}

// recorded checks that the group's transcript has each accepted message once.
func (n *team) recorded(ctx context.Context, t *testing.T) {
	t.Helper()
	want := map[string]int{}
	n.book.mu.Lock()
	for id, m := range n.book.sent {
		if m.to == "" {
			want[id] = 1
		}
	}
	n.book.mu.Unlock()
	var got map[string]int
	complete := func() bool {
		got = n.transcript(t)
		for id := range want {
			if got[id] == 0 {
				return false
			}
		}
		return true
	}
	eventually(ctx, t, "the transcript is complete", complete)
	for id, times := range got {
		if times > 1 {
			t.Errorf("%s is in the transcript %d times", id, times)
		}
	}
}

// transcript is how often each message is in the group's transcript.
func (n *team) transcript(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "transcripts", "feishu_"+n.chat+".jsonl*"))
	must(t, err)
	times := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(data)) {
			var e struct {
				ID   string `json:"message_id"`
				Edit bool   `json:"edited"`
			}
			if json.Unmarshal([]byte(line), &e) == nil && !e.Edit {
				times[e.ID]++
			}
		}
	}
	return maps.Clone(times)
}

// Sidecars of an earlier version and of this one are in one group: each message and each mail
// passes once, in all directions. Then the others are upgraded, one after the other.
func TestUpgradeSideBySide(t *testing.T) {
	eachWay(t, func(t *testing.T, v version, o teamSetup) {
		o.gateways = []string{"agent_g", "agent_h"}
		n := newTeam(t, o)
		program := presentProgram(t)
		for i, b := range n.bots {
			b.as([]string{v.program, program}[i%2])
		}
		ctx := limited(t)
		n.start(ctx, n.bots...)
		n.talk(ctx, t)
		for _, b := range n.bots {
			if b.program == program {
				continue
			}
			b.stop()
			b.as(program)
			for _, other := range n.bots {
				if other != b {
					_, err := other.say(ctx, "while "+b.name+" is upgraded")
					must(t, err)
				}
			}
			n.start(ctx, b)
			n.talk(ctx, t)
		}
		n.verify(ctx, t)
	})
}

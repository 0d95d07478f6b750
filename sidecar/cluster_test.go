//go:build unix

package sidecar_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/wait"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// setup says what a test runs on.
type setup struct {
	redis    string // REDIS_URL; "": the file backend
	separate bool   // each sidecar has folders of its own, as containers have
	webhooks []int  // the bots that are given their messages by webhook
	bots     int    // 0: three
	callers  int    // of each bot in each chat at once; 0: one
	// change may alter the configuration of the i-th sidecar.
	change func(i int, cfg *sidecar.Config)
}

// cluster is sidecars as processes, each with its bot.
type cluster struct {
	t       *testing.T
	h       *history
	bots    []*bot
	folders []string // of transcripts
	relays  []string // RELAY_DIRs
	torn    int      // lines that a fault other than a kill may have torn in a file
	callers int      // of each bot in each chat
}

// in is c for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	sub := *c
	sub.t = t
	return &sub
}

var backends = []string{"file", "redis"}

// newCluster starts it all and waits until every sidecar is ready and every
// stream has its reader: what is sent before a sidecar's first start is not for
// its bot.
func newCluster(t *testing.T, s setup) *cluster {
	t.Helper()
	c := prepare(t, s)
	for _, b := range c.bots {
		b.side.start("")
	}
	c.connect()
	c.ready(limited(t))
	return c
}

// prepare is newCluster without starting the sidecars.
func prepare(t *testing.T, s setup) *cluster {
	t.Helper()
	dir := t.TempDir()
	n := cmp.Or(s.bots, 3)
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("agent_%c", 'a'+i))
	}
	c := &cluster{t: t, h: newHistory(names), callers: cmp.Or(s.callers, 1)}
	for i, name := range names {
		home := dir
		if s.separate {
			home = filepath.Join(dir, name)
			must(t, os.Mkdir(home, 0o700))
		}
		b := newBot(name, c.h)
		cfg := sidecar.Config{
			Agent: relay.AgentName(name), BotName: name, ListenAddr: "127.0.0.1:0",
			Backend: "file", RelayChannel: "test:outbound",
			RelayDir: filepath.Join(home, "relay"), TranscriptDir: filepath.Join(home, "transcripts"),
			MaxAge: 10 * time.Minute, UserMessages: true,
			GroupPolicy: "auto", MembershipCheck: "auto",
			Limits: policy.Limits{MaxDepth: 1000, Threshold: 1000, Check: true, Timeout: 10 * time.Second},
		}
		if s.redis != "" {
			cfg.Backend, cfg.RedisURL = "redis", sidecar.Secret(s.redis)
		} else {
			cfg.RelayDir = filepath.Join(dir, "relay") // the queue is what they share
		}
		for _, hooked := range s.webhooks {
			if i == hooked {
				cfg.InjectURL = b.listen()
				t.Cleanup(b.hook.Close)
			}
		}
		if s.change != nil {
			s.change(i, &cfg)
		}
		if i == 0 || s.separate {
			c.folders = append(c.folders, cfg.TranscriptDir)
		}
		c.relays = append(c.relays, cfg.RelayDir)
		b.side = newProcess(t, dir, cfg)
		b.side.hooked = b.hook != nil
		c.bots = append(c.bots, b)
	}
	return c
}

// connect lets the bots without a webhook read their streams until the test ends.
func (c *cluster) connect() {
	for _, b := range c.bots {
		if b.hook == nil {
			b.connect(c.t)
		}
	}
}

// connect reads the stream until the test or the returned function ends it.
func (b *bot) connect(t *testing.T) (disconnect func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { b.readStream(ctx) })
	disconnect = func() {
		cancel()
		reading.Wait()
	}
	t.Cleanup(disconnect)
	return disconnect
}

// ready waits until every sidecar is ready and every bot reached.
func (c *cluster) ready(ctx context.Context) {
	c.t.Helper()
	for _, b := range c.bots {
		eventually(ctx, c.t, b.name+" is ready", func() bool {
			st, err := b.status(ctx)
			return err == nil && st.Ready && (b.hook != nil || st.Door.Connected != nil && *st.Door.Connected)
		})
	}
}

func (b *bot) status(ctx context.Context) (st sidecar.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = b.get(ctx, "/v1/status", &st)
	return st, err
}

// quiet waits until nothing is under way anywhere, and checks that no sidecar
// misses a message of another.
func (c *cluster) quiet(ctx context.Context) {
	c.t.Helper()
	for _, b := range c.bots {
		var last sidecar.Status
		eventually(ctx, c.t, b.name+" is quiet", func() bool {
			st, err := b.status(ctx)
			last = st
			out, in := st.Queues["outbound"], st.Queues["inbound"]
			return err == nil && st.Ready && idle(out) && idle(in)
		})
		if len(last.Missing) > 0 {
			c.t.Errorf("%s misses messages of %v", b.name, last.Missing)
		}
	}
}

func idle(q sidecar.QueueStatus) bool {
	return q.Outbox.Pending == 0 && q.Outbox.Bytes == 0 && q.Unsettled == 0 && q.Lag == 0
}

// talk lets every caller of a bot say n messages in each chat, side by side, and
// report a user's message before each tenth. No more than window deliveries
// are due at any time. It returns when all is accepted.
func (c *cluster) talk(ctx context.Context, n int, chats ...string) {
	c.t.Helper()
	until := make(chan struct{})
	close(until)
	c.talkUntil(ctx, until, n, chats...)
}

// window is how many deliveries may be due before the bots wait.
const window = 60

// talkUntil is talk until the channel is closed, and at least n messages.
func (c *cluster) talkUntil(ctx context.Context, until <-chan struct{}, n int, chats ...string) {
	c.t.Helper()
	var talking sync.WaitGroup
	var failed sync.Map
	for i, b := range c.bots {
		for _, chat := range chats {
			for range c.callers {
				talking.Go(func() {
					if err := c.converse(ctx, b, c.bots[(i+1)%len(c.bots)], chat, until, n); err != nil {
						failed.Store(b.name+" in "+chat, err)
					}
				})
			}
		}
	}
	talking.Wait()
	failed.Range(func(who, err any) bool {
		c.t.Errorf("%v: %v", who, err)
		return true
	})
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// converse is the part of one caller of a bot in one chat. Half of the user's messages are heard
// by neighbour as well.
func (c *cluster) converse(ctx context.Context, b, neighbour *bot, chat string, until <-chan struct{}, n int) error {
	for said := 0; said < n || !closed(until); said++ {
		if err := c.h.await(ctx, func() bool { return c.h.open < window }); err != nil {
			return fmt.Errorf("wait for deliveries: %w", err)
		}
		id, err := b.say(ctx, chat)
		if err != nil {
			return err
		}
		if said%10 != 0 {
			continue
		}
		user := "user of " + b.name
		number := b.count(chat)
		var hearing sync.WaitGroup
		var errs [2]error
		hearers := []*bot{b, neighbour}
		if said%20 == 0 {
			hearers = hearers[:1] // the others know of it only because it is shared
		}
		for i, who := range hearers {
			hearing.Go(func() { errs[i] = who.hear(ctx, chat, user, number) })
		}
		hearing.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return fmt.Errorf("after %s: %w", id, err)
		}
	}
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// verify waits for the end of everything and compares the history with the promises.
func (c *cluster) verify(ctx context.Context) {
	c.t.Helper()
	c.finish(ctx)
	r := &c.h.record
	c.recorded(ctx)
	c.report()
	fragments := 0
	for _, dir := range slices.Compact(slices.Clone(c.relays)) {
		if _, err := os.Stat(filepath.Join(dir, "outbound.jsonl")); err == nil {
			fragments += c.h.checkQueue(c.t, r.kills()+c.torn, dir)
		}
	}
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.t.Logf("%d messages accepted, %d deliveries, %d kills, repeated deliveries %v, fragments in the queue %d",
		len(r.Messages), len(r.Deliveries), r.kills(), r.repeats(), fragments)
}

// recorded reads the transcripts until they have all that was accepted: who was quiet before
// the last sender was may still have to read a person's message, which no bot is given.
func (c *cluster) recorded(ctx context.Context) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, recordedWithin)
	defer cancel()
	for {
		c.h.mu.Lock()
		r := &c.h.record
		r.readTranscripts(c.t, c.folders...)
		lost := slices.ContainsFunc(r.checkTranscripts(), func(v violation) bool { return v.fault == faultLost })
		c.h.mu.Unlock()
		if !lost || wait.Sleep(ctx, 100*time.Millisecond) != nil {
			return // else it is reported
		}
	}
}

// recordedWithin bounds the wait of a test that fails.
const recordedWithin = time.Minute

// settle is verify without a look at the files.
func (c *cluster) settle(ctx context.Context) {
	c.t.Helper()
	c.finish(ctx)
	c.report()
}

// finish waits until all is delivered and nothing is under way, and completes the record.
func (c *cluster) finish(ctx context.Context) {
	c.t.Helper()
	c.h.complete(ctx, c.t)
	c.quiet(ctx)
	c.stopReasons(ctx)
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	r := &c.h.record
	r.Torn = c.torn
	for _, b := range c.bots {
		r.Killed[b.name] = b.side.killedLives()
		r.Resumes[b.name] = b.hook == nil
	}
}

// stopReasons waits until each sidecar shows why it stopped what it had to stop.
// One that was killed may have lost the reasons that it had not written yet.
func (c *cluster) stopReasons(ctx context.Context) {
	c.t.Helper()
	for _, b := range c.bots {
		due := map[string]map[relay.MessageID]relay.Reason{} // by chat
		c.h.mu.Lock()
		for id, m := range c.h.record.Messages {
			if reason := m.Stopped[b.name]; reason != "" && m.Accepted > 0 && m.Sender != b.name {
				if due[m.Chat] == nil {
					due[m.Chat] = map[relay.MessageID]relay.Reason{}
				}
				due[m.Chat][id] = reason
			}
		}
		c.h.mu.Unlock()
		for chat, want := range due {
			var shown map[relay.MessageID]relay.Reason
			read := func() bool {
				var answer struct{ Outcomes []httpapi.Outcome }
				if b.get(ctx, "/v1/outcomes?limit=5000&chat_id="+chat, &answer) != nil {
					return false
				}
				shown = map[relay.MessageID]relay.Reason{}
				for _, o := range answer.Outcomes {
					if string(o.Agent) == b.name && want[o.RelayMsgID] != "" && o.Stopped != "" {
						shown[o.RelayMsgID] = o.Stopped
					}
				}
				return len(shown) == len(want) || len(b.side.killedLives()) > 0
			}
			eventually(ctx, c.t, fmt.Sprintf("%s shows why it stopped %d messages in %s", b.name, len(want), chat), read)
			for id, reason := range shown {
				if reason != want[id] {
					c.t.Errorf("%s shows %q for %s, want %q", b.name, reason, id, want[id])
				}
			}
		}
	}
}

// report fails the test for each violation in the record, and keeps that then.
func (c *cluster) report() {
	c.t.Helper()
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	found := c.h.record.check()
	for _, v := range found[:min(len(found), 20)] {
		c.t.Error(v)
	}
	if len(found) > 0 {
		data, err := json.Marshal(&c.h.record)
		must(c.t, err)
		_ = os.WriteFile(filepath.Join(c.t.ArtifactDir(), "history.json"), data, 0o600)
	}
}

//go:build unix

package sidecar_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

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
	c := &cluster{t: t, h: newHistory(names)}
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

// talk lets every bot say n messages in each chat, the chats side by side, and
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
			talking.Go(func() {
				if err := c.converse(ctx, b, c.bots[(i+1)%len(c.bots)], chat, until, n); err != nil {
					failed.Store(b.name+" in "+chat, err)
				}
			})
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

// converse is one bot's part in one chat. Half of the user's messages are heard
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

// verify waits for the end of everything and proves the promises.
func (c *cluster) verify(ctx context.Context) {
	c.t.Helper()
	repeats := c.settle(ctx)
	kills := 0
	for _, b := range c.bots {
		kills += b.side.killed()
	}
	c.h.checkTranscripts(c.t, kills+c.torn, c.folders...)
	fragments := 0
	for _, dir := range slices.Compact(slices.Clone(c.relays)) {
		if _, err := os.Stat(filepath.Join(dir, "outbound.jsonl")); err == nil {
			fragments += c.h.checkQueue(c.t, kills+c.torn, dir)
		}
	}
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.t.Logf("%d messages and %d users' accepted, %d kills, repeated deliveries %v, fragments in the queue %d",
		len(c.h.accepted), len(c.h.heard), kills, repeats, fragments)
}

// settle is verify without a look at the files. It returns how many deliveries
// to each bot were repeats: none to one that says what it got last, and to a
// webhook at most one for each kill and chat.
func (c *cluster) settle(ctx context.Context) map[string]int {
	c.t.Helper()
	c.h.complete(ctx, c.t)
	c.quiet(ctx)
	kills := map[string]int{}
	for _, b := range c.bots {
		kills[b.name] = b.side.killed()
	}
	repeats := c.h.check(c.t, func(bot string) int { return kills[bot] })
	for _, b := range c.bots {
		switch n := repeats[b.name]; {
		case b.hook == nil && n > 0:
			c.t.Errorf("%s resumed its stream and was given %d messages twice", b.name, n)
		case b.hook != nil && n > len(b.sent)*kills[b.name]:
			c.t.Errorf("%s was given %d messages twice, with %d kills and %d chats", b.name, n, kills[b.name], len(b.sent))
		}
	}
	return repeats
}

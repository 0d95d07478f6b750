package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/redisbox"
	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
)

const (
	oldestRedis = 6               // major version; an older one lacks some of what is used
	fullRedis   = 90              // per cent of maxmemory, from which on the test warns
	maxSkew     = 5 * time.Second // of our clock: messages are ordered, and expire, by their senders' clocks
)

// relay tests where the sidecars meet, and what the others' cards there say.
func (r *results) relay(ctx context.Context) {
	if r.cfg.Backend == "redis" && !r.redis(ctx) {
		return
	}
	cards, err := r.cards(ctx)
	r.test("Relay", "peers")
	r.peers(cards)
	r.test("Mailbox", "mailbox")
	switch {
	case err != nil:
		r.fail("mailbox unread", err)
	case !r.cfg.Mailbox.On:
		r.ok("mailbox off")
	case r.Running != nil && r.Running.Mailbox != nil && r.Running.Mailbox.Waiting >= mailbox.MaxInbox:
		r.warn("mailbox full", r.Running.Mailbox.Waiting)
	case r.cfg.Gateway.Addr != "" && r.cfg.InjectURL == "" && !r.cfg.Mailbox.Gateway:
		r.ok("mailbox waits", r.Words.Count("agents", len(cards)))
	default:
		r.ok("mailbox", r.Words.Count("agents", len(cards)))
	}
}

// redis tests the Redis of REDIS_URL with the backend's own calls. It returns whether that is reached.
func (r *results) redis(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	r.test("Relay", "redis")
	if err := r.publish(ctx); err != nil {
		r.fail("redis unreached", err)
		return false
	}
	o, err := redislink.ParseURL(string(r.cfg.RedisURL))
	if err != nil {
		r.fail("redis unreached", err)
		return false
	}
	client := redislink.NewClient(redislink.Options(o, 10, tryLimit/2, tryLimit/2))
	defer client.Close()
	sections, err := client.InfoMap(ctx).Result()
	info := map[string]string{}
	for _, section := range sections {
		maps.Copy(info, section)
	}
	if err != nil {
		r.unknown("redis without info")
	} else {
		r.redisInfo(info)
	}
	r.test("Relay", "clock")
	asked := time.Now()
	if theirs, err := client.Time(ctx).Result(); err == nil {
		r.clock("Redis", maxSkew, theirs.Sub(asked.Add(time.Since(asked)/2)))
	} else {
		r.unknown("redis time", r.code(err))
	}
	return true
}

// publish asks for what was never published: that goes the whole path of a publish and writes nothing.
func (r *results) publish(ctx context.Context) error {
	q, err := redisrelay.New(redisrelay.Options{URL: string(r.cfg.RedisURL), Channel: r.cfg.RelayChannel})
	if err != nil {
		return err
	}
	defer q.Close()
	if _, err = q.Publish(ctx, nil, "1-0/"); err == nil || errors.Is(err, relay.ErrForgotten) {
		return nil
	}
	return cmp.Or(errors.Unwrap(err), err) // without "publish to redis"
}

// code is the first word of a server's error; the rest may quote what was sent.
func (r *results) code(err error) string {
	if is[redis.Error](err) {
		code, _, _ := strings.Cut(err.Error(), " ")
		return code[:min(len(code), 40)]
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return r.plainly(err)
	}
	return r.say("connection lost")
}

// redisInfo reports version, persistence, role and memory.
func (r *results) redisInfo(info map[string]string) {
	version, role := cmp.Or(info["redis_version"], "?"), info["role"]
	major, _, _ := strings.Cut(version, ".")
	switch n, err := strconv.Atoi(major); {
	case err == nil && n < oldestRedis:
		r.warn("redis old", version, oldestRedis)
	case info["aof_enabled"] == "1":
		r.ok("redis aof", version)
	default:
		r.ok("redis no aof", version)
	}
	r.test("Relay", "redis role")
	if role == "slave" {
		r.fail("redis replica", info["master_host"], info["master_port"])
		return
	}
	r.test("Relay", "redis memory")
	policy, used, most := info["maxmemory_policy"], number(info["used_memory"]), number(info["maxmemory"])
	switch {
	case most > 0 && used >= most && policy == "noeviction":
		r.fail("redis full", Size(used), Size(most), 2*most)
	case most > 0 && used > most/100*fullRedis:
		r.warn("redis nearly full", Size(used), Size(most), 2*most)
	}
	switch {
	case strings.HasPrefix(policy, "volatile-"): // only keys that expire
		r.warn("redis evicts claims", policy)
	case policy != "" && policy != "noeviction":
		r.warn("redis evicts", policy)
	}
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if missing
	return n
}

// clock judges how far the clock of somebody is ahead of ours.
func (r *results) clock(whose string, most, ahead time.Duration) {
	switch by := ahead.Abs().Round(time.Second); {
	case ahead.Abs() <= most:
		r.ok("clock", whose)
	case ahead > 0:
		r.warn("clock behind", by, whose)
	default:
		r.warn("clock ahead", by, whose)
	}
}

// cards reads the agents' cards as a sidecar does, which writes its own with MAILBOX=off, too.
func (r *results) cards(ctx context.Context) ([]mailbox.Card, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	var store interface {
		Cards(ctx context.Context) ([]mailbox.Card, error)
		Close() error
	}
	var err error
	if r.cfg.Backend == "redis" {
		store, err = redisbox.Open(redisbox.Options{URL: string(r.cfg.RedisURL), Self: mailbox.AgentID(r.cfg.Agent)})
	} else if _, missing := os.Stat(r.cfg.Mailbox.Dir); missing != nil {
		return nil, nil // nobody has run yet; the test of the folder says what is wrong with it
	} else {
		store, err = filebox.Open(r.cfg.Mailbox.Dir, nil)
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return store.Cards(ctx)
}

// peers reports which other agents have a card, and what their sidecars are set to otherwise than this one.
func (r *results) peers(cards []mailbox.Card) {
	own, now := r.cfg.Shared(r.Version), time.Now()
	var seen []string
	var online []mailbox.Card
	mine := slices.IndexFunc(cards, func(c mailbox.Card) bool { return string(c.AgentID) == string(r.cfg.Agent) })
	for i, c := range cards {
		if i == mine {
			continue
		}
		seen = append(seen, r.say("ago", c.AgentID, r.Words.Age(now.Sub(c.LastHeartbeat))))
		switch there := c.At(now, r.cfg.Mailbox.HeartbeatTimeout) != mailbox.Offline; {
		case there && c.HasSettings():
			online = append(online, c)
		case !there && mine >= 0 && c.BotName != "" && c.BotName == cards[mine].BotName:
			r.warn("old name", c.AgentID)
		}
	}
	if len(seen) == 0 {
		r.unknown("no peers")
		return
	}
	r.ok("peers", r.Words.Count("other agents", len(seen)), r.Words.List(seen))
	r.test("Relay", "secrets")
	r.secrets(own, online)
	r.test("Relay", "peer settings")
	here, found := settings(own), false
	for _, name := range slices.Sorted(maps.Keys(here)) {
		var at []string
		for _, c := range online {
			if there, has := settings(c.Sidecar)[name]; has && there.is != here[name].is {
				at = append(at, r.say("setting at", there.text, c.AgentID))
			}
		}
		if len(at) > 0 {
			found = true
			r.warn("peer settings", name, here[name].text, r.Words.List(at), r.say("why/"+name))
		}
	}
	if !found && len(online) > 0 {
		r.ok("peer settings same", len(online))
	}
}

// setting is a setting that sidecars should have alike: what it is, and its text.
type setting struct{ is, text string }

// settings are those of a sidecar that are known, by name.
func settings(s *mailbox.Settings) map[string]setting {
	all := map[string]setting{}
	add := func(name, value string) {
		if value != "" {
			all[name] = setting{value, value}
		}
	}
	add("RELAY_BACKEND", s.Backend)
	add("RELAY_CHANNEL", s.RelayChannel)
	add("version", s.Version)
	add("MAX_BOT_REPLY_DEPTH", fmt.Sprint(s.MaxDepth))
	add("BOT_REPLY_LLM_THRESHOLD", fmt.Sprint(s.Threshold))
	add("BOT_REPLY_LLM_CHECK", fmt.Sprint(s.Check))
	add("BOT_REPLY_DEPTH_COUNT", s.DepthCount)
	add("RELAY_MAX_AGE", (time.Duration(s.MaxAge) * time.Millisecond).String())
	for name, f := range map[string]mailbox.Folder{"RELAY_DIR": s.RelayDir, "TRANSCRIPT_DIR": s.Transcripts} {
		if f.Path != "" && s.Backend != "redis" {
			all[name] = setting{cmp.Or(f.ID, f.Path), strings.TrimSuffix(f.Path+" ("+f.ID+")", " ()")}
		}
	}
	return all
}

// secrets compares the fingerprint of RELAY_SECRET with those on the cards of agents that are online.
func (r *results) secrets(own *mailbox.Settings, online []mailbox.Card) {
	var same []string
	for _, c := range online {
		switch other := c.Sidecar.Secret; {
		case other == own.Secret:
			same = append(same, string(c.AgentID))
		case !own.Meets(c.Sidecar):
			r.warn("secrets of others", c.AgentID)
		case other == "":
			r.fail("secret missing there", c.AgentID)
		case own.Secret == "":
			r.fail("secret missing here", c.AgentID)
		default:
			r.fail("secrets differ", c.AgentID, other, own.Secret)
		}
	}
	if own.Secret != "" && len(same) > 0 {
		r.ok("secrets", r.Words.List(same))
	}
}

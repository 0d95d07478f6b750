package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
	"feishu-relay/sidecar"
)

const (
	oldestRedis = 6               // major version; an older one lacks some of what is used
	fullRedis   = 90              // per cent of maxmemory, from which on the probe warns
	fullStream  = 80              // per cent of its share of memory, from which on the probe warns
	usualLength = 9000            // messages of the stream; with that many it is not the memory that limits it
	redisConns  = 10              // of the check
	maxSkew     = 5 * time.Second // of our clock: messages are ordered, and expire, by their senders' clocks
)

// redisServer is the Redis that holds the relay's stream, after it was reached.
type redisServer struct {
	*redis.Client
	info map[string]string // what INFO says; nil if this user may not ask
}

// noRedis reports that the sidecars meet in a Redis which was not reached.
func (s *subject) noRedis() bool {
	if !onRedis(s) {
		return false
	}
	_, problem := s.redis()
	return problem != nil
}

// reachRedis asks for what was never published: the whole path of a publish (link,
// password, script, the stream's type) without writing anything. Its errors are in
// the words of the backend.
func reachRedis(ctx context.Context, s *subject) (*redisServer, []finding) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	if err := publishOn(ctx, s.config, s.RelayChannel, nil, "1-0/0"); err != nil {
		return nil, failure("check REDIS_URL, and whether that Redis runs and is reached from here: "+
			"redis-cli -u \"$REDIS_URL\" ping", "%v", err)
	}
	node, err := nodeOf(ctx, s.client, s.RelayChannel+":log")
	if err != nil {
		return nil, failure("look at the state of the Cluster: redis-cli cluster info",
			"find the node of the stream: %s", redisCode(err))
	}
	server := &redisServer{Client: node}
	server.info, _ = redisrelay.Info(ctx, node, s.RelayChannel+":log", "default", true)
	return server, nil
}

func publishOn(ctx context.Context, c *config, channel string, lines [][]byte, after relay.Receipt) error {
	queue, err := redisrelay.New(redisrelay.Options{URL: string(c.RedisURL), Channel: channel})
	if err != nil {
		return err
	}
	defer queue.Close()
	_, err = queue.Publish(ctx, lines, after)
	if err == nil || errors.Is(err, relay.ErrForgotten) {
		return nil
	}
	return cmp.Or(errors.Unwrap(err), err) // without "publish to redis"
}

// openRedis makes a client for what the backend has no call for. Like the backend's it
// hides nothing and waits for nothing long. It is closed when ctx is done.
func openRedis(ctx context.Context, c *config) redis.UniversalClient {
	o, err := redislink.ParseURL(string(c.RedisURL))
	if err != nil {
		return nil // there is none: a wrong one is a mistake in the configuration
	}
	client := redislink.NewClient(redislink.Options(o, redisConns, tryLimit/2, tryLimit/2))
	context.AfterFunc(ctx, func() { _ = client.Close() })
	return client
}

// nodeOf is the server that holds key.
func nodeOf(ctx context.Context, client redis.UniversalClient, key string) (*redis.Client, error) {
	switch c := client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("a client of type %T", client)
}

// redisCode is the first word of a server's error; the rest may quote what was sent.
func redisCode(err error) string {
	if _, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(err.Error(), " ")
		return code[:min(len(code), 40)]
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return "the connection was lost"
}

func checkRedis(_ context.Context, s *subject) []finding {
	server, problem := s.redis()
	if problem != nil {
		return problem
	}
	return connected(server.info)
}

// connected reports the version, and what a restart of Redis keeps.
func connected(info map[string]string) []finding {
	if info == nil {
		return unseen("let the user in REDIS_URL ask INFO, or look at them yourself",
			"connected; version, role and memory cannot be seen: this user may not ask INFO")
	}
	version := cmp.Or(info["redis_version"], "unknown")
	if major, _, _ := strings.Cut(version, "."); version != "unknown" && number(major) < oldestRedis {
		return warning(fmt.Sprintf("use Redis %d or later, or Valkey", oldestRedis),
			"connected to version %s, which is older than what is tested", version)
	}
	return well("connected to version %s, %s", version, persistence(info))
}

// persistence is for information only: senders publish again what is missing.
func persistence(info map[string]string) string {
	switch {
	case info["aof_enabled"] == "1":
		return "persistence: append-only file"
	case info["rdb_last_save_time"] != "":
		return "persistence: snapshots at most (none is needed)"
	}
	return "persistence unknown (none is needed)"
}

func checkRedisRole(_ context.Context, s *subject) []finding {
	server, _ := s.redis()
	info := server.info
	if info["role"] != "slave" {
		return nil
	}
	return failure("set REDIS_URL to its primary, or to the Sentinels (docs/redis.md)",
		"this is a replica of %s:%s, which takes no writes for good", info["master_host"], info["master_port"])
}

func checkRedisMemory(_ context.Context, s *subject) []finding {
	server, _ := s.redis()
	return redisMemory(server.info)
}

// redisMemory reports memory that is short, or will be thrown away.
func redisMemory(info map[string]string) (out []finding) {
	policy, used, most := info["maxmemory_policy"], number(info["used_memory"]), number(info["maxmemory"])
	if policy != "" && policy != "noeviction" {
		lost := "the relay's streams, and inboxes with mail that waits,"
		if strings.HasPrefix(policy, "volatile-") { // only keys that expire
			lost = "claims, so that a notice comes twice, and malformed mail"
		}
		fornow := ""
		if most == 0 {
			fornow = "; for now there is no maxmemory"
		}
		out = warning("redis-cli config set maxmemory-policy noeviction", "redis may throw away %s "+
			"when memory is short (maxmemory-policy %s)%s", lost, policy, fornow)
	}
	if most > 0 && used > most/100*fullRedis {
		found, effect := warning, "soon"
		if used >= most && policy == "noeviction" {
			found, effect = failure, "now"
		}
		mend := fmt.Sprintf("redis-cli config set maxmemory %d, "+
			"or remove what other programs keep there: redis-cli --bigkeys", 2*most)
		out = append(out, found(mend, "%s of %s are used; writes are refused, or keys thrown away, %s",
			size(uint64(used)), size(uint64(most)), effect)...)
	}
	return out
}

// checkRedisRights adds an entry to a stream of its own and deletes it again, listens
// on the channels, and asks whether it might publish there without doing it.
func checkRedisRights(ctx context.Context, s *subject) (out []finding) {
	server, _ := s.redis()
	ours, users := s.RelayChannel, sidecar.UsersChannel(s.RelayChannel)
	mend := rightsMend(s.config)
	own := ours + ":check:" + rand.Text()
	if err := publishOn(ctx, s.config, own, [][]byte{[]byte("{}")}, ""); err != nil {
		return failure(mend, "write to a stream: %v", err)
	}
	if err := s.client.Del(ctx, own+":log").Err(); err != nil {
		out = warning(fmt.Sprintf("redis-cli del '%s:log'", own),
			"the stream that was tried could not be deleted: %s", redisCode(err))
	}
	listen := server.Subscribe(ctx, ours, users)
	_, err := listen.Receive(ctx)
	_ = listen.Close()
	if err != nil {
		return append(out, failure(mend, "subscribe to the channels: %s", redisCode(err))...)
	}
	for _, channel := range []string{ours, users} {
		refused := mayUse(ctx, s.client, channel+":log", "EVAL return(1) 1 KEY", "XADD KEY * payload -", "XTRIM KEY MAXLEN 1",
			"MEMORY USAGE KEY", "PUBLISH CHANNEL -", "XREAD STREAMS KEY 0", "XRANGE KEY - +", "XINFO STREAM KEY")
		refused = cmp.Or(refused, mayUse(ctx, s.client, channel+":agent:"+string(s.Agent),
			"EVAL return(1) 1 KEY", "GET KEY", "SET KEY - PX 1", "PTTL KEY"))
		if refused != "" {
			return append(out, failure(mend, "%s: %s", channel, refused)...)
		}
	}
	return append(out, well("streams and the channels %s and %s can be written and read", ours, users)...)
}

func rightsMend(c *config) string {
	return fmt.Sprintf("give the user in REDIS_URL the keys %[1]s:* and %[2]s:*, the channels %[1]s and %[2]s, "+
		"scripts, streams, publish and subscribe", c.RelayChannel, sidecar.UsersChannel(c.RelayChannel))
}

// checkOutcomes looks at the stream in which sidecars report to each other what became
// of messages. Only viewers need it.
func checkOutcomes(ctx context.Context, s *subject) []finding {
	return checkSideStream(ctx, s, sidecar.OutcomesKey(s.RelayChannel),
		"a viewer shows only what became of messages at its own bot")
}

// checkMarks looks at the stream of what people set in groups, and at the claims of what is shown there once.
func checkMarks(ctx context.Context, s *subject) []finding {
	const effect = "what people set in a group, and what it is shown, stays at the sidecar that heard it"
	if out := checkSideStream(ctx, s, sidecar.MarksKey(s.RelayChannel), effect); out != nil {
		return out
	}
	key := s.RelayChannel + ":claim:check"
	if refused := mayUse(ctx, s.client, key, "SET KEY - NX PX 1", "GET KEY"); refused != "" {
		return warning(rightsMend(s.config), "%s: commands in groups are not answered, nor stops shown", refused)
	}
	return nil
}

// checkSideStream looks at a stream beside the relay's own; effect is what fails without it.
func checkSideStream(ctx context.Context, s *subject, key, effect string) []finding {
	refused := mayUse(ctx, s.client, key, "XADD KEY * payload -", "XREAD STREAMS KEY 0", "XINFO STREAM KEY")
	if refused != "" {
		return warning(rightsMend(s.config), "%s: %s", refused, effect)
	}
	if err := s.client.XLen(ctx, key).Err(); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return warning(fmt.Sprintf("redis-cli del '%s', unless another program needs it: "+
			"then set another RELAY_CHANNEL", key), "%s is not a stream: %s", key, effect)
	}
	return nil
}

// mayUse tries commands on key, which stands in them as KEY, and returns the one that
// is refused, or "". They are queued in a transaction that is taken back: rights are
// looked at when a command is queued, and nothing is done.
func mayUse(ctx context.Context, client redis.UniversalClient, key string, commands ...string) string {
	node, err := nodeOf(ctx, client, key)
	if err != nil {
		return "find the node of " + key + ": " + redisCode(err)
	}
	conn := node.EphemeralConn()
	defer conn.Close() // ends the transaction, whatever its state
	for _, command := range append(append([]string{"MULTI"}, commands...), "DISCARD") {
		var args []any
		for word := range strings.FieldsSeq(command) {
			switch word {
			case "KEY":
				word = key
			case "CHANNEL":
				word = strings.TrimSuffix(key, ":log")
			}
			args = append(args, word)
		}
		if err := conn.Do(ctx, args...).Err(); err != nil {
			return fmt.Sprint(args[0], ": ", redisCode(err))
		}
	}
	return ""
}

// checkStream reports how many messages the relay's stream holds, and the age of the
// newest.
func checkStream(ctx context.Context, s *subject) []finding {
	key := s.RelayChannel + ":log"
	length, err := s.client.XLen(ctx, key).Result()
	if err != nil {
		return nil // reported with the rights
	}
	last, err := s.client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return well("%s holds nothing yet", key)
	}
	if server, _ := s.redis(); server.info != nil && length < usualLength {
		used := s.client.MemoryUsage(ctx, key).Val() // 0: it cannot be seen
		limit := cmp.Or(int64(s.RedisMaxBytes), redisrelay.Share(number(server.info["maxmemory"])))
		if limit > 0 && used > limit/100*fullStream {
			return warning("raise maxmemory of Redis, or REDIS_MAX_BYTES where it is set (docs/redis.md)",
				"%s takes %s of the %s that it may: it keeps only the newest %s, and a sidecar that is away for longer misses some",
				key, size(uint64(used)), size(uint64(limit)), counted(int(length), "message", "messages"))
		}
	}
	ms, _, _ := strings.Cut(last[0].ID, "-")
	return well("%s holds %s, the newest is %s old", key, counted(int(length), "message", "messages"),
		age(time.Since(time.UnixMilli(number(ms)))))
}

func checkClock(ctx context.Context, s *subject) []finding {
	server, _ := s.redis()
	asked := time.Now()
	theirs, err := server.Time(ctx).Result()
	if err != nil {
		return unseen("compare the hosts' clocks yourself", "redis does not tell its time (%s)", redisCode(err))
	}
	return clockFinding("redis", maxSkew, theirs.Sub(middle(asked)))
}

// middle is the time between a question and its answer, which came now.
func middle(asked time.Time) time.Time { return asked.Add(time.Since(asked) / 2) }

// clockFinding judges how far the clock of somebody is ahead of ours.
func clockFinding(whose string, most, ahead time.Duration) []finding {
	if ahead.Abs() <= most {
		return well("agrees with that of %s", whose)
	}
	which := "behind"
	if ahead < 0 {
		which = "ahead of"
	}
	return warning("set the clocks of both hosts by NTP: timedatectl set-ntp true",
		"this host's clock is %s %s that of %s", ahead.Abs().Round(time.Second), which, whose)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if missing
	return n
}

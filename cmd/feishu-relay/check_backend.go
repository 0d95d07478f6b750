package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
	"feishu-relay/sidecar"
)

// maxSkew is how far our clock may be from that of Redis before it is worth a
// word: messages are ordered, and expire, by the clocks of their senders.
const maxSkew = 5 * time.Second

func checkBackend(ctx context.Context, c *subject) []finding {
	if c.Backend == "redis" {
		return checkRedis(ctx, c)
	}
	return checkQueueFiles(c.config)
}

// checkQueueFiles opens the queues of the file backend as a writer does, as far
// as they exist; that they can be made the folder's check has shown.
func checkQueueFiles(c *config) []finding {
	const name = "file queue"
	made := 0
	for _, queue := range []string{"outbound.jsonl", "inbound.jsonl"} {
		f, err := os.OpenFile(filepath.Join(c.RelayDir, queue), os.O_RDWR|os.O_APPEND, 0)
		switch {
		case err == nil:
			made++
			_ = f.Close() // nothing was written
		case !errors.Is(err, fs.ErrNotExist):
			return []finding{failure(name, denied(err, "run all sidecars that share RELAY_DIR as one user, or make the folder writable by their group"), "%v", err)}
		}
	}
	if made == 0 {
		return []finding{well(name, "nothing has been sent in %s yet", c.RelayDir)}
	}
	return []finding{well(name, "%s can be appended to", c.RelayDir)}
}

// checkRedis goes from the connection to the rights. What fails ends it, since
// the rest would only repeat it.
func checkRedis(ctx context.Context, s *subject) []finding {
	const name = "redis"
	c := s.config
	if err := s.redis(); err != nil {
		return []finding{failure(name, "check REDIS_URL, and whether that Redis runs and is reached from here: redis-cli -u \"$REDIS_URL\" ping", "%v", err)}
	}
	client, err := openRedis(c)
	if err != nil {
		return []finding{failure(name, "correct REDIS_URL", "%v", err)}
	}
	defer client.Close()
	node, err := nodeOf(ctx, client, c.RelayChannel+":log")
	if err != nil {
		return []finding{failure(name, "look at the state of the Cluster: redis-cli cluster info", "find the node of the stream: %s", redisCode(err))}
	}
	out := aboutRedis(ctx, node)
	if !slices.ContainsFunc(out, func(f finding) bool { return f.Status == statusFail }) { // else what follows would only repeat it
		out = append(out, checkRights(ctx, c, client, node)...)
		out = append(out, checkStreams(ctx, c, client)...)
	}
	return append(out, checkClock(ctx, node))
}

// reachRedis asks for what was never published: all the way of a publish (link,
// password, script, the stream's type) without writing anything. Its errors say
// what is wrong in the words of the backend.
func reachRedis(ctx context.Context, c *config) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return publishOn(ctx, c, c.RelayChannel, nil, "1-0/0")
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

// openRedis makes a client for what the backend has no call for. Like the
// backend's it hides nothing and waits for nothing long.
func openRedis(c *config) (redis.UniversalClient, error) {
	o, err := redisrelay.ParseURL(string(c.RedisURL))
	if err != nil {
		return nil, err
	}
	o.Protocol, o.MaxRetries, o.DialerRetries, o.DisableIdentity = 2, -1, 1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = tryLimit/2, tryLimit/2, tryLimit/2
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewUniversalClient(o), nil
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

// redisCode is the first word of a server's error; the rest may quote what was
// sent.
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

// checkRights adds an entry to a stream of its own and deletes it again, listens
// on the channel, and asks whether it might publish there without doing it.
func checkRights(ctx context.Context, c *config, client redis.UniversalClient, node *redis.Client) []finding {
	const name = "redis rights"
	users := sidecar.UsersChannel(c.RelayChannel)
	mend := fmt.Sprintf("give the user in REDIS_URL the keys %[1]s:* and %[2]s:*, the channels %[1]s and %[2]s, scripts, streams, publish and subscribe", c.RelayChannel, users)
	scratch := c.RelayChannel + ":check:" + rand.Text()
	if err := publishOn(ctx, c, scratch, [][]byte{[]byte("{}")}, ""); err != nil {
		return []finding{failure(name, mend, "write to a stream: %v", err)}
	}
	var out []finding
	if err := client.Del(ctx, scratch+":log").Err(); err != nil {
		out = append(out, warning(name, fmt.Sprintf("redis-cli del '%s:log'", scratch), "the stream that was tried could not be deleted: %s", redisCode(err)))
	}
	listen := node.Subscribe(ctx, c.RelayChannel, users)
	_, err := listen.Receive(ctx)
	_ = listen.Close()
	if err != nil {
		return append(out, failure(name, mend, "subscribe to the channels: %s", redisCode(err)))
	}
	for _, channel := range []string{c.RelayChannel, users} {
		stream, agent := channel+":log", channel+":agent:"+string(c.Agent)
		refused := cmp.Or(
			mayUse(ctx, client, stream, []any{"EVAL", "return 1", 1, stream}, []any{"XADD", stream, "*", "payload", ""}, []any{"PUBLISH", channel, ""},
				[]any{"XREAD", "STREAMS", stream, "0"}, []any{"XRANGE", stream, "-", "+"}, []any{"XINFO", "STREAM", stream}),
			mayUse(ctx, client, agent, []any{"EVAL", "return 1", 1, agent}, []any{"GET", agent}, []any{"SET", agent, "", "PX", 1}, []any{"PTTL", agent}))
		if refused != "" {
			return append(out, failure(name, mend, "%s: %s", channel, refused))
		}
	}
	out = append(out, well(name, "streams and the channels %s and %s can be written and read", c.RelayChannel, users))
	return append(out, checkOutcomes(ctx, c, client, mend)...)
}

// checkOutcomes looks at the stream in which sidecars tell each other what became
// of messages. Only viewers live on it.
func checkOutcomes(ctx context.Context, c *config, client redis.UniversalClient, mend string) []finding {
	const name = "redis outcomes"
	const effect = "a viewer shows only what became of messages at its own bot"
	key := sidecar.OutcomesKey(c.RelayChannel)
	refused := mayUse(ctx, client, key, []any{"XADD", key, "*", "payload", ""}, []any{"XREAD", "STREAMS", key, "0"}, []any{"XINFO", "STREAM", key})
	if refused != "" {
		return []finding{warning(name, mend, "%s: %s", refused, effect)}
	}
	if err := client.XLen(ctx, key).Err(); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return []finding{warning(name, fmt.Sprintf("redis-cli del '%s', unless another program needs it: then set another RELAY_CHANNEL", key),
			"%s is not a stream: %s", key, effect)}
	}
	return nil
}

// mayUse tries commands on key, as mayDo does, and says which is refused; "" is
// none.
func mayUse(ctx context.Context, client redis.UniversalClient, key string, commands ...[]any) string {
	node, err := nodeOf(ctx, client, key)
	if err != nil {
		return "find the node of " + key + ": " + redisCode(err)
	}
	if refused, err := mayDo(ctx, node, commands...); err != nil {
		return refused + ": " + redisCode(err)
	}
	return ""
}

// mayDo queues commands in a transaction and takes it back: rights are looked at
// when a command is queued, and nothing is done. It names the one refused.
func mayDo(ctx context.Context, node *redis.Client, commands ...[]any) (refused string, err error) {
	conn := node.EphemeralConn()
	defer conn.Close() // ends the transaction, whatever its state
	for _, command := range slices.Concat([][]any{{"MULTI"}}, commands, [][]any{{"DISCARD"}}) {
		if err := conn.Do(ctx, command...).Err(); err != nil {
			return fmt.Sprint(command[0]), err
		}
	}
	return "", nil
}

func checkClock(ctx context.Context, node *redis.Client) finding {
	before := time.Now()
	theirs, err := node.Time(ctx).Result()
	if err != nil {
		return well("clock", "not compared: redis does not tell its time (%s)", redisCode(err))
	}
	return clockFinding("clock", "redis", maxSkew, theirs.Sub(before.Add(time.Since(before)/2)))
}

// clockFinding judges how far the clock of somebody is ahead of ours.
func clockFinding(name, whose string, most, ahead time.Duration) finding {
	if ahead.Abs() <= most {
		return well(name, "agrees with that of %s", whose)
	}
	which := "behind"
	if ahead < 0 {
		which = "ahead of"
	}
	return warning(name, "set the clocks of both hosts by NTP: timedatectl set-ntp true",
		"this host's clock is %s %s that of %s", ahead.Abs().Round(time.Second), which, whose)
}

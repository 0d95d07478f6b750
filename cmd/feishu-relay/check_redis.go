package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
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
	if err := publishOn(ctx, s.config, s.RelayChannel, nil, "1-0/"); err != nil {
		return nil, failure(say("check REDIS_URL, and whether that Redis runs and is reached from here: "+
			`redis-cli -u "$REDIS_URL" ping`,
			`检查 REDIS_URL，以及那个 Redis 是否在运行、从这里能否连上：redis-cli -u "$REDIS_URL" ping`),
			"%v", "", err)
	}
	node, err := nodeOf(ctx, s.client, s.RelayChannel+":log")
	if err != nil {
		return nil, failure(say("look at the state of the Cluster: redis-cli cluster info",
			"查看 Cluster 的状态：redis-cli cluster info"),
			"find the node of the stream: %s", "找不到流所在的节点：%s", redisCode(err))
	}
	server := &redisServer{Client: node}
	if sections, err := node.InfoMap(ctx).Result(); err == nil {
		server.info = map[string]string{}
		for _, section := range sections {
			maps.Copy(server.info, section)
		}
	}
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
func redisCode(err error) text {
	if _, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(err.Error(), " ")
		return alike(code[:min(len(code), 40)])
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return plainly(err)
	}
	return say("the connection was lost", "连接断了")
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
		return unseen(say("let the user in REDIS_URL ask INFO, or look at them yourself",
			"允许 REDIS_URL 里的用户执行 INFO，或自己查看"),
			"connected; version, role and memory cannot be seen: this user may not ask INFO",
			"已连接；看不到版本、角色和内存：这个用户不能执行 INFO")
	}
	version := cmp.Or(alike(info["redis_version"]), unknown)
	if major, _, _ := strings.Cut(version.en, "."); version != unknown && number(major) < oldestRedis {
		return warning(say("use Redis %d or later, or Valkey", "用 Redis %d 以上，或 Valkey", oldestRedis),
			"connected to version %s, which is older than what is tested", "已连接，版本 %s 比测试过的旧", version)
	}
	return well("connected to version %s, %s", "已连接，版本 %s，%s", version, persistence(info))
}

// persistence is for information only: senders that are up send again what is missing.
func persistence(info map[string]string) text {
	switch {
	case info["aof_enabled"] == "1":
		return say("persistence: append-only file", "持久化：AOF")
	case info["rdb_last_save_time"] != "":
		return say("persistence: snapshots at most (mail: appendonly yes)", "持久化：最多只有快照（邮件宜 appendonly yes）")
	}
	return say("persistence unknown (mail: appendonly yes)", "持久化方式未知（邮件宜用 appendonly yes）")
}

func checkRedisRole(_ context.Context, s *subject) []finding {
	server, _ := s.redis()
	info := server.info
	if info["role"] != "slave" {
		return nil
	}
	return failure(say("set REDIS_URL to its primary, or to the Sentinels (docs/redis.md)",
		"把 REDIS_URL 设成主节点，或各个 Sentinel（docs/redis.md）"),
		"this is a replica of %s:%s, which takes no writes for good",
		"这是 %s:%s 的副本，不能一直写入", info["master_host"], info["master_port"])
}

func checkRedisMemory(_ context.Context, s *subject) []finding {
	server, _ := s.redis()
	return redisMemory(server.info)
}

// redisMemory reports memory that is short, or will be thrown away.
func redisMemory(info map[string]string) (out []finding) {
	policy, used, most := info["maxmemory_policy"], number(info["used_memory"]), number(info["maxmemory"])
	if policy != "" && policy != "noeviction" {
		lost := say("the relay's streams, and inboxes with mail that waits,", "中继的流，以及还有邮件在等的收件箱")
		if strings.HasPrefix(policy, "volatile-") { // only keys that expire
			lost = say("claims, so that a notice comes twice, and malformed mail",
				"占用标记（于是同一条通知会出现两次）和格式有误的邮件")
		}
		fornow := text{}
		if most == 0 {
			fornow = say("; for now there is no maxmemory", "；目前没有设 maxmemory")
		}
		out = warning(alike("redis-cli config set maxmemory-policy noeviction"),
			"redis may throw away %s when memory is short (maxmemory-policy %s)%s",
			"内存不足时 Redis 可能淘汰%s（maxmemory-policy %s）%s", lost, policy, fornow)
	}
	if most > 0 && used > most/100*fullRedis {
		found, effect := warning, text{"soon", "很快会拒绝写入，或淘汰键"}
		if used >= most && policy == "noeviction" {
			found, effect = failure, text{"now", "正在拒绝写入，或淘汰键"}
		}
		mend := say("redis-cli config set maxmemory %d, or remove what other programs keep there: redis-cli --bigkeys",
			"redis-cli config set maxmemory %d，或清理其他程序存在里面的数据：redis-cli --bigkeys", 2*most)
		out = append(out, found(mend,
			"%s of %s are used; writes are refused, or keys thrown away, %s",
			"已用 %s，共 %s；%s", size(uint64(used)), size(uint64(most)), effect)...)
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
		return failure(mend, "write to a stream: %v", "写流失败：%v", err)
	}
	if err := s.client.Del(ctx, own+":log").Err(); err != nil {
		out = warning(alike(fmt.Sprintf("redis-cli del '%s:log'", own)),
			"the stream that was tried could not be deleted: %s", "试写用的流删不掉：%s", redisCode(err))
	}
	listen := server.Subscribe(ctx, ours, users)
	_, err := listen.Receive(ctx)
	_ = listen.Close()
	if err != nil {
		return append(out, failure(mend, "subscribe to the channels: %s", "订阅频道失败：%s", redisCode(err))...)
	}
	for _, channel := range []string{ours, users} {
		refused := mayUse(ctx, s.client, channel+":log", "EVAL return(1) 1 KEY", "XADD KEY * payload -",
			"PUBLISH CHANNEL -", "XREAD STREAMS KEY 0", "XRANGE KEY - +", "XREVRANGE KEY + -", "XLEN KEY")
		refused = cmp.Or(refused, mayUse(ctx, s.client, channel+":agent:"+string(s.Agent),
			"GET KEY", "SET KEY - PX 1"))
		if refused != (text{}) {
			return append(out, failure(mend, "%s: %s", "%s：%s", channel, refused)...)
		}
	}
	return append(out, well("streams and the channels %s and %s can be written and read",
		"流以及频道 %s 和 %s 可读可写", ours, users)...)
}

func rightsMend(c *config) text {
	return say("give the user in REDIS_URL the keys %[1]s:* and %[2]s:*, the channels %[1]s and %[2]s, "+
		"scripts, streams, publish and subscribe",
		"给 REDIS_URL 里的用户授权：键 %[1]s:* 和 %[2]s:*，频道 %[1]s 和 %[2]s，脚本、流、发布和订阅",
		c.RelayChannel, sidecar.UsersChannel(c.RelayChannel))
}

// checkOutcomes looks at the stream in which sidecars report to each other what became
// of messages. Only viewers need it.
func checkOutcomes(ctx context.Context, s *subject) []finding {
	return checkSideStream(ctx, s, sidecar.OutcomesKey(s.RelayChannel),
		say("a viewer shows only what became of messages at its own bot", "网页只能显示消息在自己机器人那里的结果"))
}

// checkMarks looks at the stream of what people set in groups, and at the claims of what is shown there once.
func checkMarks(ctx context.Context, s *subject) []finding {
	effect := say("what people set in a group, and what it is shown, stays at the sidecar that heard it",
		"群里改的设置和给群的提示，只有收到命令的边车知道")
	if out := checkSideStream(ctx, s, sidecar.MarksKey(s.RelayChannel), effect); out != nil {
		return out
	}
	key := s.RelayChannel + ":claim:check"
	if refused := mayUse(ctx, s.client, key, "SET KEY - NX PX 1", "GET KEY"); refused != (text{}) {
		return warning(rightsMend(s.config),
			"%s: commands in groups are not answered, nor stops shown",
			"%s：群里的命令没有回复，停下也没有提示", refused)
	}
	return nil
}

// checkSideStream looks at a stream beside the relay's own; effect is what fails without it.
func checkSideStream(ctx context.Context, s *subject, key string, effect text) []finding {
	refused := mayUse(ctx, s.client, key, "XADD KEY * payload -", "XREAD STREAMS KEY 0", "XRANGE KEY - +",
		"XREVRANGE KEY + -")
	if refused != (text{}) {
		return warning(rightsMend(s.config), "%s: %s", "%s：%s", refused, effect)
	}
	if err := s.client.XLen(ctx, key).Err(); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return warning(say("redis-cli del '%s', unless another program needs it: then set another RELAY_CHANNEL",
			"redis-cli del '%s'；如果其他程序要用它，就换一个 RELAY_CHANNEL", key),
			"%s is not a stream: %s", "%s 不是流：%s", key, effect)
	}
	return nil
}

// mayUse tries commands on key, which stands in them as KEY, and returns the one that
// is refused, if any. They are queued in a transaction that is taken back: rights are
// looked at when a command is queued, and nothing is done.
func mayUse(ctx context.Context, client redis.UniversalClient, key string, commands ...string) text {
	node, err := nodeOf(ctx, client, key)
	if err != nil {
		return say("find the node of %s: %s", "找不到 %s 所在的节点：%s", key, redisCode(err))
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
			return say("%s: %s", "%s：%s", args[0], redisCode(err))
		}
	}
	return text{}
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
		return well("%s holds nothing yet", "%s 还是空的", key)
	}
	ms, _, _ := strings.Cut(last[0].ID, "-")
	return well("%s holds %s, the newest is %s old", "%s 里有 %s，最新的一条是 %s前的",
		key, amount(int(length), "message", "messages", "条消息"), age(time.Since(time.UnixMilli(number(ms)))))
}

func checkClock(ctx context.Context, s *subject) []finding {
	server, _ := s.redis()
	asked := time.Now()
	theirs, err := server.Time(ctx).Result()
	if err != nil {
		return unseen(say("compare the hosts' clocks yourself", "请自己对照两台主机的时钟"),
			"redis does not tell its time (%s)", "Redis 不给出时间（%s）", redisCode(err))
	}
	return clockFinding(alike("redis"), maxSkew, theirs.Sub(middle(asked)))
}

// middle is the time between a question and its answer, which came now.
func middle(asked time.Time) time.Time { return asked.Add(time.Since(asked) / 2) }

// clockFinding judges how far the clock of somebody is ahead of ours.
func clockFinding(whose text, most, ahead time.Duration) []finding {
	if ahead.Abs() <= most {
		return well("agrees with that of %s", "与 %s 一致", whose)
	}
	which := text{"behind", "慢"}
	if ahead < 0 {
		which = text{"ahead of", "快"}
	}
	return warning(say("set the clocks of both hosts by NTP: timedatectl set-ntp true",
		"两台主机都用 NTP 校时：timedatectl set-ntp true"),
		"this host's clock is %s %s that of %s",
		"这台主机的时钟%[2]s %[1]s，对照的是 %[3]s", ahead.Abs().Round(time.Second), which, whose)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if missing
	return n
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	oldestRedis = 6  // major version; with an older one some of what is used is missing
	fullRedis   = 90 // per cent of maxmemory, from which on it is worth a word
)

// aboutRedis tells what INFO says: version, role, memory, and what a restart
// keeps.
func aboutRedis(ctx context.Context, node *redis.Client) []finding {
	text, err := node.Info(ctx).Result()
	if err != nil {
		return []finding{well("redis", "connected (this user may not ask INFO: version, role and memory are not known)")}
	}
	info := parseInfo(text)
	out := []finding{connected(info)}
	if info["role"] == "slave" {
		out = append(out, failure("redis role", "set REDIS_URL to its primary, or to the Sentinels (docs/architecture.md)",
			"this is a replica of %s:%s, which takes no writes for good", info["master_host"], info["master_port"]))
	}
	return append(out, redisMemory(info)...)
}

func connected(info map[string]string) finding {
	const name = "redis"
	version := or(info["redis_version"], "unknown")
	if major, _, _ := strings.Cut(version, "."); version != "unknown" && number(major) < oldestRedis {
		return warning(name, fmt.Sprintf("use Redis %d or later, or Valkey", oldestRedis), "connected to version %s, which is older than what is tested", version)
	}
	return well(name, "connected to version %s, %s", version, persistence(info))
}

// redisMemory tells of memory that is short, or will be thrown away.
func redisMemory(info map[string]string) (out []finding) {
	const name = "redis memory"
	policy, used, most := info["maxmemory_policy"], number(info["used_memory"]), number(info["maxmemory"])
	if policy != "" && policy != "noeviction" {
		detail := "redis may throw the relay's stream away when memory is short (maxmemory-policy " + policy + ")"
		if most == 0 {
			detail += "; for now there is no maxmemory"
		}
		out = append(out, warning(name, "redis-cli config set maxmemory-policy noeviction", "%s", detail))
	}
	if most > 0 && used > most/100*fullRedis {
		found, effect := warning, "soon"
		if used >= most && policy == "noeviction" {
			found, effect = failure, "now"
		}
		out = append(out, found(name, fmt.Sprintf("redis-cli config set maxmemory %d, or remove what other programs keep there: redis-cli --bigkeys", 2*most),
			"%s of %s are used; writes are refused, or keys thrown away, %s", size(uint64(used)), size(uint64(most)), effect))
	}
	return out
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0: not told
	return n
}

// persistence says what a restart of Redis keeps. It is for information only:
// senders publish again what is missing.
func persistence(info map[string]string) string {
	switch {
	case info["aof_enabled"] == "1":
		return "persistence: append-only file"
	case info["rdb_last_save_time"] != "":
		return "persistence: snapshots at most (none is needed)"
	}
	return "persistence unknown (none is needed)"
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// checkStreams tells how many messages the relay's stream holds, and how old the
// newest is.
func checkStreams(ctx context.Context, c *config, client redis.UniversalClient) []finding {
	const name = "redis stream"
	key := c.RelayChannel + ":log"
	length, err := client.XLen(ctx, key).Result()
	if err != nil {
		return nil // told with the rights
	}
	last, err := client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return []finding{well(name, "%s holds nothing yet", key)}
	}
	ms, _, _ := strings.Cut(last[0].ID, "-")
	return []finding{well(name, "%s holds %s, the newest is %s old", key, counted(int(length), "message", "messages"),
		age(time.Since(time.UnixMilli(number(ms)))))}
}

// age is a span of time as people say it.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return counted(int(d/time.Second), "second", "seconds")
	case d < time.Hour:
		return counted(int(d/time.Minute), "minute", "minutes")
	case d < 48*time.Hour:
		return counted(int(d/time.Hour), "hour", "hours")
	}
	return counted(int(d/(24*time.Hour)), "day", "days")
}

// size is a number of bytes as people say it.
func size(bytes uint64) string {
	const unit = 1024
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for value >= unit && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	if value < 10 && value != float64(int(value)) {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

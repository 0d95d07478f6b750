package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
)

func TestCheckRedisReplica(t *testing.T) {
	configured(t)
	primary := redistest.Start(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	t.Setenv("REDIS_URL", replica.URL())
	code, found := checked(t)
	wants(t, found, "redis role", statusFail, "this is a replica of "+primary.Addr())
	wants(t, found, "redis role", statusFail, "set REDIS_URL to its primary")
	if code != 1 || len(found["redis rights"]) > 0 {
		t.Errorf("status %d, and the rights of a replica are tried: %v", code, found["redis rights"])
	}
}

// The user of docs/redis.md sees all that `check` looks at but INFO.
func TestCheckAsTheUserInTheDocs(t *testing.T) {
	configured(t)
	rules := redistest.UserRules(t, "../../docs/redis.md")
	srv := redistest.Start(t, append([]string{"--user", redistest.User}, rules[1:]...)...)
	t.Setenv("REDIS_URL", srv.RestrictedURL())
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	if err := client.LPush(t.Context(), mailboxAgent("agent_a")+"malformed", "{").Err(); err != nil {
		t.Fatal(err)
	}
	_, found := checked(t)
	wants(t, found, "redis", statusUnknown, "this user may not ask INFO")
	wants(t, found, "mailbox malformed", statusWarn, "1 message is not an envelope")
	wants(t, found, "redis rights", statusOK, "can be written and read")
}

func TestCheckRedisMemory(t *testing.T) {
	configured(t)
	srv := redistest.Start(t)
	t.Setenv("REDIS_URL", srv.URL())
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	_, found := checked(t)
	if len(found["redis memory"]) > 0 {
		t.Errorf("without a maxmemory: %v", found["redis memory"])
	}
	info, err := client.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	used := number(info["Memory"]["used_memory"])
	limit := func(bytes int64) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(bytes, 10)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit(used/2 + 1) // writes are refused
	_, found = checked(t)
	wants(t, found, "redis memory", statusFail, "redis-cli config set maxmemory ")
	limit(used * 1000)
	_, found = checked(t)
	if len(found["redis memory"]) > 0 {
		t.Errorf("with much room: %v", found["redis memory"])
	}
	got := redisMemory(map[string]string{"maxmemory_policy": "noeviction", "used_memory": "950000", "maxmemory": "1000000"})
	wants(t, map[string][]finding{"redis memory": got}, "redis memory", statusWarn, "928 KiB of 977 KiB are used")
}

func TestCheckRedisStream(t *testing.T) {
	configured(t)
	srv := redistest.Start(t)
	t.Setenv("REDIS_URL", srv.URL())
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	_, found := checked(t)
	wants(t, found, "redis stream", statusOK, "holds nothing yet")
	id := strconv.FormatInt(time.Now().Add(-3*time.Hour).UnixMilli(), 10) + "-0"
	if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "nanobot:feishu:outbound:log", ID: id, Values: []string{"payload", "{}"}}).Err(); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "redis stream", statusOK, "holds 1 message, the newest is 3 hours old")
}

// Versions that no server at hand has.
func TestAboutOldRedis(t *testing.T) {
	for version, want := range map[string]status{"5.0.14": statusWarn, "6.2.0": statusOK, "7.2.4": statusOK, "10.0.0": statusOK, "": statusOK} {
		if got := connected(map[string]string{"redis_version": version})[0]; got.Status != want {
			t.Errorf("%s: got %+v, want %s", version, got, want)
		}
	}
}

func TestCheckMailboxOfRedis(t *testing.T) {
	configured(t)
	srv := redistest.Start(t)
	t.Setenv("REDIS_URL", srv.URL())
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	_, found := checked(t)
	wants(t, found, "mailbox inboxes", statusOK, "0 messages wait for agent_a")
	if len(found["mailbox malformed"]) > 0 {
		t.Errorf("without any: %v", found["mailbox malformed"])
	}
	if err := client.LPush(t.Context(), "nanobot:mailbox:{agent_a}:malformed", "hidden", "hidden").Err(); err != nil {
		t.Fatal(err)
	}
	code, found := checked(t)
	wants(t, found, "mailbox malformed", statusWarn, "2 messages are not envelopes: nanobot:mailbox:{agent_a}:malformed")
	wants(t, found, "mailbox malformed", statusWarn, "redis-cli del 'nanobot:mailbox:{agent_a}:malformed'")
	if code != 0 {
		t.Errorf("status %d, want 0", code)
	}
}

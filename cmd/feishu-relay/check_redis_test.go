package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/test/redistest"
)

func TestCheckRedisReplica(t *testing.T) {
	configured(t)
	primary := redistest.Start(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	t.Setenv("REDIS_URL", replica.URL())
	code, found := checked(t)
	wants(t, found, "redis role", selftest.Fail, "this is a replica of "+primary.Addr())
	wants(t, found, "redis role", selftest.Fail, "set REDIS_URL to its primary")
	if code != 1 {
		t.Errorf("status %d", code)
	}
}

// The user of docs/redis.md sees all that `check` looks at but INFO.
func TestCheckAsTheUserInTheDocs(t *testing.T) {
	configured(t)
	rules := redistest.UserRules(t, "../../docs/redis.md")
	srv := redistest.Start(t, append([]string{"--user", redistest.User}, rules[1:]...)...)
	t.Setenv("REDIS_URL", srv.RestrictedURL())
	_, found := checked(t)
	wants(t, found, "redis", selftest.Unknown, "this user may not ask INFO")
	wants(t, found, "mailbox", selftest.OK, "0 agents")
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
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(bytes int64) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(bytes, 10)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit(used/2 + 1) // writes are refused
	_, found = checked(t)
	wants(t, found, "redis memory", selftest.Fail, "redis-cli config set maxmemory ")
	limit(used * 1000)
	_, found = checked(t)
	if len(found["redis memory"]) > 0 {
		t.Errorf("with much room: %v", found["redis memory"])
	}
}

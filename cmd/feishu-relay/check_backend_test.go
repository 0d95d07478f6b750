package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

func TestCheckRedis(t *testing.T) {
	configured(t)
	srv := redistest.Start(t, "--requirepass", "hidden")
	t.Setenv("REDIS_URL", strings.Replace(srv.URL(), "redis://", "redis://:hidden@", 1))
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Password: "hidden"})
	defer client.Close()
	code, found := checked(t)
	wants(t, found, "redis", selftest.OK, "connected to version ")
	wants(t, found, "clock", selftest.OK, "agrees")
	if code != 0 || strings.Contains(fmt.Sprint(found), "hidden") {
		t.Errorf("status %d, %v", code, found)
	}
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("the check left %v (%v)", keys, err)
	}
	t.Setenv("REDIS_URL", strings.Replace(srv.URL(), "redis://", "redis://:wrong@", 1))
	_, found = checked(t)
	wants(t, found, "redis", selftest.Fail, "refuses the user or the password")
	srv.Kill()
	code, found = checked(t)
	wants(t, found, "redis", selftest.Fail, "connection refused")
	if code != 1 || len(found["mailbox"])+len(found["peers"]) > 0 {
		t.Errorf("dead redis: status %d, want 1, and one finding that says so: %v", code, found)
	}
}

func TestCheckRedisRights(t *testing.T) {
	const all = "on >pw ~* &* +@all "
	tests := []struct {
		name, rules, check string
		status             selftest.Status
		says               string
	}{
		{"no scripts", all + "-@scripting", "redis", selftest.Fail, "lacks rights"},
		{"no mailbox", "on >pw ~nanobot:feishu:* &* +@all", "mailbox", selftest.Fail, "docs/redis.md"},
	}
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			user := fmt.Sprintf("user%d", i)
			command := []any{"ACL", "SETUSER", user}
			for rule := range strings.FieldsSeq(tt.rules) {
				command = append(command, rule)
			}
			if err := client.Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
			t.Setenv("REDIS_URL", "redis://"+user+":pw@"+srv.Addr())
			_, found := checked(t)
			wants(t, found, tt.check, tt.status, tt.says)
		})
	}
}

func TestCheckRedisCluster(t *testing.T) {
	verify.Only(t)
	configured(t)
	srv := redistest.StartNode(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	t.Setenv("REDIS_URL", "redis+cluster://"+srv.Addr())
	_, found := checked(t)
	wants(t, found, "redis", selftest.OK, "connected to version ")
	wants(t, found, "mailbox", selftest.OK, "registered")
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("the check left %v (%v)", keys, err)
	}
}

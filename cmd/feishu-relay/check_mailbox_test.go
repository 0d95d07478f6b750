package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/mailbox/redisbox"
)

func TestCheckMailboxRegistry(t *testing.T) {
	heard := time.Now().UTC().Format(time.RFC3339)
	card := func(id, status, heartbeat string) string {
		return fmt.Sprintf(`"%s":{"agent_id":"%s","status":"%s","last_heartbeat":"%s"}`, id, id, status, heartbeat)
	}
	for _, tt := range []struct {
		name, text string
		status     status
		says       string
	}{
		{"nobody", `{}`, statusOK, "0 agents are registered, 0 of them are there"},
		{"some", "{" + card("a", "idle", heard) + "," + card("b", "busy", "2020-01-01T00:00:00Z") + "," + card("c", "offline", heard) + "}", statusOK, "3 agents are registered, 1 of them is there"},
		{"entries of another make", `{"a":3,"../b":{}}`, statusWarn, "cannot be read: ../b, a"},
		{"broken", `{"a":`, statusWarn, "_registry.json.broken-"},
		{"a list", `[]`, statusWarn, "is no JSON object"},
		{"empty", ``, statusWarn, "is no JSON object"},
		{"too long", `{}` + strings.Repeat(" ", maxRegistry), statusFail, "longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(configured(t), "mailboxes", "_registry.json")
			write(t, path, tt.text)
			_, found := checked(t)
			wants(t, found, "mailbox folder", statusOK, "locks work")
			wants(t, found, "mailbox registry", tt.status, tt.says)
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.text {
				t.Errorf("the check changed the registry: %v", err)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		mkdir(t, filepath.Join(configured(t), "mailboxes"), 0o700)
		_, found := checked(t)
		wants(t, found, "mailbox registry", statusUnknown, "no agent has registered")
	})
	t.Run("a folder", func(t *testing.T) {
		mkdir(t, filepath.Join(configured(t), "mailboxes", "_registry.json"), 0o700)
		_, found := checked(t)
		wants(t, found, "mailbox registry", statusFail, "is a directory")
	})
}

func TestCheckMailboxSignatures(t *testing.T) {
	const foreign = `{"nano":{"agent_id":"nano"},"agent_a":{"agent_id":"agent_a"},"b":{"agent_id":"b","protocol":"1.1"}}`
	for _, tt := range []struct {
		name, secret, unsigned, registry string
		status                           status
		says                             string
	}{
		{"all sign", "s", "", `{"b":{"agent_id":"b","protocol":"1.1"}}`, statusOK, "without a signature is refused"},
		{"others are refused", "s", "refuse", foreign, statusWarn, "may not sign: nano"},
		{"others are taken", "s", "allow", foreign, statusWarn, "agents of other makes: nano"},
		{"taken for nobody", "s", "allow", `{}`, statusWarn, "agents of other makes: none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(t, filepath.Join(configured(t), "mailboxes", "_registry.json"), tt.registry)
			t.Setenv("RELAY_SECRET", tt.secret)
			t.Setenv("MAILBOX_UNSIGNED", tt.unsigned)
			_, found := checked(t)
			wants(t, found, "mailbox signatures", tt.status, tt.says)
		})
	}
	write(t, filepath.Join(configured(t), "mailboxes", "_registry.json"), foreign)
	if _, found := checked(t); len(found["mailbox signatures"]) > 0 {
		t.Errorf("without RELAY_SECRET: %v", found["mailbox signatures"])
	}
}

func TestCheckMailboxFolder(t *testing.T) {
	dir := filepath.Join(configured(t), "mailboxes")
	write(t, dir, "")
	_, found := checked(t)
	wants(t, found, "mailbox folder", statusFail, "set MAILBOX_DIR")
	if len(found["mailbox registry"]) > 0 {
		t.Errorf("without a folder: %v", found["mailbox registry"])
	}
}

func TestCheckMailboxInboxes(t *testing.T) {
	dir := filepath.Join(configured(t), "mailboxes")
	write(t, filepath.Join(dir, "_registry.json"), `{"b":{"agent_id":"b"},"c":{"agent_id":"c"},"d":{"agent_id":"d"}}`)
	own := filepath.Join(dir, "agent_a", "inbox")
	write(t, filepath.Join(own, "1_b.msg.json"), "{}")
	write(t, filepath.Join(own, "2_b.msg.json.tmp"), "{}")
	write(t, filepath.Join(dir, "c", "inbox", "1_b.msg.json"), "{}")
	_, found := checked(t)
	wants(t, found, "mailbox inboxes", statusOK, "1 message waits for agent_a")
	if len(found["mailbox inboxes"]) > 1 {
		t.Errorf("got %+v", found["mailbox inboxes"])
	}
	if len(found["mailbox malformed"]) > 0 {
		t.Errorf("without any: %+v", found["mailbox malformed"])
	}
	for _, inbox := range []string{own, filepath.Join(dir, "c", "inbox")} {
		if left, err := filepath.Glob(filepath.Join(inbox, ".*")); err != nil || len(left) > 0 {
			t.Errorf("the check left %v (%v)", left, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("the check made a folder for b")
	}
	write(t, filepath.Join(dir, "b"), "") // where the folder of b should be made
	code, found := checked(t)
	wants(t, found, "mailbox inboxes", statusFail, "cannot be written: b")
	if code != 1 {
		t.Errorf("status %d, want 1", code)
	}
}

func TestCheckMailboxRedis(t *testing.T) {
	data := configured(t)
	srv := redistest.Start(t, "--requirepass", "hidden")
	url := strings.Replace(srv.URL(), "redis://", "redis://:hidden@", 1)
	t.Setenv("REDIS_URL", url)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Password: "hidden"})
	defer client.Close()

	code, found := checked(t)
	wants(t, found, "mailbox", statusOK, "in Redis; 0 agents are registered")
	if code != 0 || strings.Contains(fmt.Sprint(found), "hidden") || len(found["mailbox folder"]) > 0 {
		t.Errorf("status %d, %v", code, found)
	}
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("the check left %v (%v)", keys, err)
	}
	if _, err := os.Stat(filepath.Join(data, "mailboxes")); err == nil {
		t.Error("the check made a folder")
	}

	// The keys whose rights are asked for are those that a mailbox uses.
	store, err := redisbox.Open(redisbox.Options{URL: url, Self: "agent_a"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.SetCard(t.Context(), mailbox.Card{AgentID: "agent_a", Status: mailbox.Idle, LastHeartbeat: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), mailboxtest.Sealed(mailbox.Envelope{ID: "msg_1", From: "b", To: "agent_a", Type: mailbox.TypeMessage, Priority: 3, Trace: []mailbox.AgentID{"b"},
		Timestamp: time.Now(), Content: mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: "x"}}}})); err != nil {
		t.Fatal(err)
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) < 3 {
		t.Fatalf("got %v (%v)", keys, err)
	}
	for _, key := range keys {
		if key != mailboxKeys+"agents" && key != mailboxKeys+"inboxes" && !strings.HasPrefix(key, mailboxKeys+"{agent_a}:") {
			t.Errorf("a mailbox uses the key %s, which the check does not know", key)
		}
	}
	_, found = checked(t)
	wants(t, found, "mailbox", statusOK, "1 agent is registered, 1 of them is there")

	if err := client.Set(t.Context(), mailboxKeys+"agents", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "mailbox", statusFail, mailboxKeys+"agents")
	srv.Kill()
	code, found = checked(t)
	wants(t, found, "redis", statusFail, "connection refused")
	if code != 1 {
		t.Errorf("dead redis: status %d, want 1", code)
	}
}

func TestCheckMailboxRights(t *testing.T) {
	const all = "on >pw ~* &* +@all "
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	for i, tt := range []struct {
		name, rules string
		status      status
		says        string
	}{
		{"other channels", "on >pw ~* &other +@all", statusFail, "PUBLISH: NOPERM"},
		{"no writing", all + "-xadd", statusFail, "XADD: NOPERM"},
		{"no ZRANGEBYSCORE", all + "-zrangebyscore", statusWarn, "unused inboxes stay: ZRANGEBYSCORE: NOPERM"},
	} {
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
			wants(t, found, "mailbox", tt.status, tt.says)
		})
	}
}

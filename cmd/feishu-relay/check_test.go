package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redistest"
	"feishu-relay/internal/safefile"
	"feishu-relay/sidecar"
)

// configured gives agent_a a folder of its own and returns it.
func configured(t *testing.T) (data string) {
	t.Helper()
	clean(t)
	data = filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENT_NAME", "agent_a")
	t.Setenv("DATA_DIR", data)
	t.Setenv("LISTEN_ADDR", "127.0.0.1:0")
	return data
}

// checked runs check --json and returns its findings by name.
func checked(t *testing.T) (code int, found map[string][]finding) {
	t.Helper()
	code, stdout, stderr := program(t, "check", "--json")
	var list []finding
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || stderr != "" {
		t.Fatalf("status %d, %v in %q, stderr %q", code, err, stdout, stderr)
	}
	found, fails := map[string][]finding{}, 0
	for _, f := range list {
		found[f.Name] = append(found[f.Name], f)
		if (f.Status == statusOK) != (f.Mend == "") {
			t.Errorf("%s is %s and its mend is %q", f.Name, f.Status, f.Mend)
		}
		if f.Status == statusFail {
			fails++
		}
	}
	if (fails > 0) != (code == 1) || code > 1 {
		t.Errorf("status %d with %d failures", code, fails)
	}
	return code, found
}

// wants looks for a finding with the status and a part of its detail or mend.
func wants(t *testing.T, found map[string][]finding, name string, s status, part string) {
	t.Helper()
	for _, f := range found[name] {
		if f.Status == s && strings.Contains(f.Detail+"\n"+f.Mend, part) {
			return
		}
	}
	t.Errorf("%s: want %s with %q, got %+v", name, s, part, found[name])
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheckOfAFreshInstallation(t *testing.T) {
	data := configured(t)
	code, stdout, _ := program(t, "check")
	want := []string{
		"✓ configuration: AGENT_NAME is agent_a, RELAY_BACKEND is file",
		"✓ relay folder: " + data + "/relay does not exist yet, and can be made",
		"✓ transcript folder: " + data + "/transcripts does not exist yet, and can be made",
		"✓ this agent: agent_a has not run in " + data + "/relay yet",
		"! groups file: there is no " + data + "/groups.json: the bot hears every chat on the relay",
		`    list the groups with their members under "groups" in ` + data + "/groups.json",
		"✓ file queue: nothing has been sent in " + data + "/relay yet",
		"✓ bot: reads /v1/stream (no INJECT_URL)",
		"✓ judge: built-in rules (no OPENAI_API_KEY)",
		"✓ local API: 127.0.0.1:0 is free",
		"",
		"works; 1 to know of",
		"",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), stdout); diff != "" || code != 0 {
		t.Errorf("status %d (-want +got):\n%s", code, diff)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("the check left %v (%v)", left, err)
	}
}

func TestCheckNamesAllMistakes(t *testing.T) {
	configured(t)
	for name, value := range map[string]string{"AGENT_NAME": "", "LOG_LEVEL": "loud", "DEDUP_SIZE": "many", "GATEWAY_ADDR": ":1",
		"RELAY_BACKEND": "redis"} {
		t.Setenv(name, value)
	}
	code, found := checked(t)
	if code != 1 {
		t.Errorf("status %d, want 1", code)
	}
	wants(t, found, "AGENT_NAME", statusFail, "required")
	wants(t, found, "LOG_LEVEL", statusFail, "debug, info, warn")
	wants(t, found, "DEDUP_SIZE", statusFail, "message ids remembered")
	wants(t, found, "GATEWAY_ADDR, CONNECTOR", statusFail, "unset it")
	wants(t, found, "REDIS_URL", statusFail, "redis://127.0.0.1:6379/0")
	wants(t, found, "everything else", statusWarn, "check again")
	if len(found) != 6 {
		t.Errorf("got %d findings, want 6: %v", len(found), found)
	}
}

func TestCheckUsage(t *testing.T) {
	configured(t)
	if code, stdout, stderr := program(t, "check", "--help"); code != 0 || !strings.Contains(stdout, "Usage: feishu-relay check [--json]") || stderr != "" {
		t.Errorf("--help: status %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, stdout, stderr := program(t, "check", "all"); code != 2 || stdout != "" || !strings.Contains(stderr, "unexpected argument") {
		t.Errorf("an argument: status %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestCheckFolders(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		status  status
		says    string
	}{
		{"private", func(t *testing.T, dir string) { mkdir(t, dir, 0o700) }, statusOK, "locks work"},
		{"of a group", func(t *testing.T, dir string) { mkdir(t, dir, 0o770) }, statusOK, "locks work"},
		{"open to all", func(t *testing.T, dir string) { mkdir(t, dir, 0o755) }, statusWarn, "chmod o-rwx"},
		{"a file", func(t *testing.T, dir string) { write(t, dir, "") }, statusFail, "is a file"},
		{"below a file", func(t *testing.T, dir string) { write(t, filepath.Dir(dir), "") }, statusFail, "set RELAY_DIR"},
		{"missing", func(*testing.T, string) {}, statusOK, "can be made"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(configured(t), "deep", "relay")
			t.Setenv("RELAY_DIR", dir)
			tt.prepare(t, dir)
			_, found := checked(t)
			wants(t, found, "relay folder", tt.status, tt.says)
			if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
				t.Errorf("the check left %v", left)
			}
		})
	}
}

func mkdir(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil { // past the umask
		t.Fatal(err)
	}
}

func TestCheckQueueFiles(t *testing.T) {
	data := configured(t)
	queue := filepath.Join(data, "relay", "outbound.jsonl")
	write(t, queue, "{}\n")
	_, found := checked(t)
	wants(t, found, "file queue", statusOK, "can be appended to")
	if got, err := os.ReadFile(queue); err != nil || string(got) != "{}\n" {
		t.Errorf("the queue holds %q (%v), want it as it was", got, err)
	}
	if err := os.Remove(queue); err != nil {
		t.Fatal(err)
	}
	mkdir(t, queue, 0o700)
	_, found = checked(t)
	wants(t, found, "file queue", statusFail, "outbound.jsonl")
}

func TestCheckSeesTheRunningAgent(t *testing.T) {
	data := configured(t)
	lock := filepath.Join(data, "relay", "offsets", "agent_a.lock")
	write(t, lock, "")
	_, found := checked(t)
	wants(t, found, "this agent", statusOK, "no sidecar of agent_a is running")
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := safefile.TryLock(f); !ok || err != nil {
		t.Fatal("the check kept the lock:", err)
	}
	code, found := checked(t)
	wants(t, found, "this agent", statusOK, "a sidecar of agent_a is running")
	if code != 0 {
		t.Errorf("beside a running sidecar: status %d, want 0", code)
	}
}

func TestCheckGroups(t *testing.T) {
	const agents = `"agents":{"agent_a":{"name":"BotA"},"agent_b":{"name":"BotB","feishu_open_id":"ou_b"}}`
	tests := []struct {
		name, text string
		env        map[string]string
		status     status
		says       string
	}{
		{"member", `{` + agents + `,"groups":{"oc_x":{"members":["agent_a"]},"oc_y":{"members":["agent_b"]}}}`, nil, statusOK, "2 agents, 2 groups, agent_a is in 1"},
		{"no member", `{` + agents + `,"groups":{"oc_y":{"members":["agent_b"]}}}`, nil, statusWarn, "in none of the groups"},
		{"no groups", `{` + agents + `}`, nil, statusWarn, "hears every chat"},
		{"no groups, and none wanted", `{` + agents + `}`, map[string]string{"MEMBERSHIP_CHECK": "off"}, statusOK, "2 agents"},
		{"not listed", `{` + agents + `}`, map[string]string{"AGENT_NAME": "agent_c"}, statusWarn, "not among the agents"},
		{"listed by the bot's name", `[{"name":"小C","feishu_open_id":"ou_c"}]`, map[string]string{"AGENT_NAME": "agent_c", "BOT_NAME": "小C"}, statusOK, "1 agents"},
		{"broken", `{"agents":`, nil, statusFail, "line 1"},
		{"two mistakes", `{"agents":{"a":{"name":1}},"groups":{"oc_x":{"group_policy":"loud"}}}`, nil, statusFail, "group_policy"},
		{"too long", strings.Repeat(" ", 1<<20+1), nil, statusFail, "at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(configured(t), "groups.json")
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			write(t, path, tt.text)
			_, found := checked(t)
			wants(t, found, "groups file", tt.status, tt.says)
			if listedHere := tt.status == statusOK && tt.says != "not among the agents"; listedHere {
				for _, f := range found["groups file"] {
					if strings.Contains(f.Detail, "not among") {
						t.Errorf("got %+v", f)
					}
				}
			}
		})
	}
}

func TestCheckBot(t *testing.T) {
	configured(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("INJECT_URL", "http://user:hidden1@"+l.Addr().String()+"/in?token=hidden2")
	_, found := checked(t)
	wants(t, found, "bot", statusOK, l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "bot", statusFail, "start the bot")
	if strings.Contains(fmt.Sprint(found), "hidden") {
		t.Errorf("a secret is shown: %v", found)
	}
}

func TestCheckListen(t *testing.T) {
	t.Run("another program", func(t *testing.T) {
		configured(t)
		other := httptest.NewServer(http.NotFoundHandler())
		defer other.Close()
		t.Setenv("LISTEN_ADDR", other.Listener.Addr().String())
		_, found := checked(t)
		wants(t, found, "local API", statusFail, "set LISTEN_ADDR")
	})
	t.Run("sidecars", func(t *testing.T) {
		configured(t)
		t.Setenv("API_TOKEN", "good")
		cfg, err := loadConfig()
		if err != nil {
			t.Fatal(err)
		}
		s, err := sidecar.New(cfg.Config, sidecar.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		t.Setenv("LISTEN_ADDR", s.Addr().String())
		code, found := checked(t)
		wants(t, found, "local API", statusOK, "the running sidecar of agent_a answers")
		wants(t, found, "this agent", statusOK, "is running")
		if code != 0 {
			t.Errorf("beside a running sidecar: status %d: %v", code, found)
		}
		t.Setenv("API_TOKEN", "bad")
		_, found = checked(t)
		wants(t, found, "local API", statusWarn, "another API_TOKEN")
		t.Setenv("API_TOKEN", "good")
		t.Setenv("AGENT_NAME", "agent_b")
		_, found = checked(t)
		wants(t, found, "local API", statusFail, "the sidecar of agent_a listens")
	})
}

func TestCheckJudge(t *testing.T) {
	answer := func(text string) string {
		return fmt.Sprintf(`{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, text)
	}
	tests := []struct {
		name   string
		code   int
		body   string
		status status
		says   string
	}{
		{"yes", 200, answer("YES"), statusOK, "tiny answered YES in "},
		{"no", 200, answer("no."), statusOK, "answered NO"},
		{"chatters", 200, answer("Well, yes"), statusFail, "follows instructions"},
		{"wrong key", 401, `{"error":{"message":"wrong key hidden"}}`, statusFail, "OPENAI_API_KEY"},
		{"wrong model or path", 404, `{"error":{"message":"no such model"}}`, statusFail, "OPENAI_MODEL is a model of that endpoint"},
		{"no quota", 429, `{"error":{"message":"slow down"}}`, statusFail, "the account of that key"},
		{"a web page", 200, `<html>`, statusFail, "OPENAI_BASE_URL ends in the version"},
		{"a bad request", 400, `{"error":{"message":"no chat model"}}`, statusFail, "a chat model of that endpoint"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer endpoint.Close()
			t.Setenv("OPENAI_BASE_URL", endpoint.URL+"/v1")
			t.Setenv("OPENAI_MODEL", "tiny")
			t.Setenv("OPENAI_API_KEY", "hidden")
			_, found := checked(t)
			wants(t, found, "judge", tt.status, tt.says)
			if strings.Contains(fmt.Sprint(found), "hidden") {
				t.Errorf("the key is shown: %v", found)
			}
		})
	}
	t.Run("too slow", func(t *testing.T) {
		configured(t)
		over := make(chan struct{})
		endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
		defer endpoint.Close()
		defer close(over)
		t.Setenv("OPENAI_BASE_URL", endpoint.URL)
		t.Setenv("OPENAI_API_KEY", "hidden")
		t.Setenv("BOT_REPLY_LLM_TIMEOUT", "100ms")
		_, found := checked(t)
		wants(t, found, "judge", statusFail, "raise BOT_REPLY_LLM_TIMEOUT")
	})
	t.Run("off", func(t *testing.T) {
		configured(t)
		t.Setenv("BOT_REPLY_LLM_CHECK", "false")
		_, found := checked(t)
		wants(t, found, "judge", statusOK, "off")
	})
}

func TestCheckRedis(t *testing.T) {
	configured(t)
	srv := redistest.Start(t, "--requirepass", "hidden")
	t.Setenv("REDIS_URL", strings.Replace(srv.URL(), "redis://", "redis://:hidden@", 1))
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Password: "hidden"})
	defer client.Close()
	heard := client.PSubscribe(t.Context(), "*")
	defer heard.Close()
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}

	code, found := checked(t)
	wants(t, found, "redis", statusOK, "connected to version ")
	wants(t, found, "redis rights", statusOK, "nanobot:feishu:outbound")
	wants(t, found, "clock", statusOK, "agrees")
	if code != 0 || strings.Contains(fmt.Sprint(found), "hidden") {
		t.Errorf("status %d, %v", code, found)
	}
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("the check left %v (%v)", keys, err)
	}
	// What is published in between would be heard before this mark.
	if err := client.Publish(t.Context(), "mark", "").Err(); err != nil {
		t.Fatal(err)
	}
	if m, err := heard.ReceiveMessage(t.Context()); err != nil || m.Channel != "mark" {
		t.Errorf("the check published on %v (%v)", m, err)
	}

	if err := client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "redis memory", statusWarn, "maxmemory-policy noeviction")

	if err := client.Set(t.Context(), "nanobot:feishu:outbound:log", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "redis", statusFail, "not a stream")

	t.Setenv("REDIS_URL", strings.Replace(srv.URL(), "redis://", "redis://:wrong@", 1))
	_, found = checked(t)
	wants(t, found, "redis", statusFail, "refuses the user or the password")
	srv.Kill()
	code, found = checked(t)
	wants(t, found, "redis", statusFail, "connection refused")
	if code != 1 {
		t.Errorf("dead redis: status %d, want 1", code)
	}
}

func TestCheckRedisRights(t *testing.T) {
	const all = "on >pw ~* &* +@all "
	tests := []struct {
		name, rules, check string
		status             status
		says               string
	}{
		{"no INFO, no TIME", all + "-info -time", "redis", statusOK, "may not ask INFO"},
		{"no TIME", all + "-time", "clock", statusOK, "NOPERM"},
		{"no publishing", all + "-publish", "redis rights", statusFail, "publish on the channel: NOPERM"},
		{"another channel", "on >pw ~* &other +@all", "redis rights", statusFail, "subscribe to the channel: NOPERM"},
		{"other keys", "on >pw ~other &* +@all", "redis", statusFail, "lacks rights"},
		{"no scripts", all + "-@scripting", "redis", statusFail, "lacks rights"},
		{"no writing", all + "-xadd", "redis rights", statusFail, "write to a stream: "},
		{"no deleting", all + "-del", "redis rights", statusWarn, "redis-cli del 'nanobot:feishu:outbound:check:"},
		{"no more than needed", "on >pw ~nanobot:feishu:* &nanobot:feishu:* -@all +@connection +@scripting +@stream +@pubsub +@read +@write +@transaction", "redis rights", statusOK, "can be written and read"},
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
	configured(t)
	srv := redistest.Start(t, "--cluster-enabled", "yes")
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for ok := false; !ok; { // the server takes a moment to believe it
		info, err := client.ClusterInfo(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		ok = strings.Contains(info, "cluster_state:ok")
	}
	t.Setenv("REDIS_URL", "redis+cluster://"+srv.Addr())
	_, found := checked(t)
	wants(t, found, "redis", statusOK, "connected to version ")
	wants(t, found, "redis rights", statusOK, "can be written")
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("the check left %v (%v)", keys, err)
	}
}

func TestCheckClock(t *testing.T) {
	for _, tt := range []struct {
		ahead  time.Duration
		status status
		says   string
	}{
		{0, statusOK, "agrees"},
		{maxSkew, statusOK, "agrees"},
		{-maxSkew, statusOK, "agrees"},
		{maxSkew + time.Second, statusWarn, "this host's clock is 6s behind that of redis"},
		{-time.Hour, statusWarn, "this host's clock is 1h0m0s ahead of that of redis"},
	} {
		got := clockFinding(tt.ahead)
		if got.Status != tt.status || !strings.Contains(got.Detail, tt.says) {
			t.Errorf("%s: got %+v, want %s with %q", tt.ahead, got, tt.status, tt.says)
		}
	}
}

// A try that hangs where nothing can end it costs its time and not the check.
func TestCheckLeavesAHangingTryBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		c := check{"slow disk", func(*config) time.Duration { return tryLimit }, func(context.Context, *config) []finding {
			<-over
			return nil
		}}
		got := c.try(t.Context(), &config{})
		want := []finding{failure("slow disk", "look what its disk or its network is waiting for", "no result within 5s")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
}

func TestCheckEndsWhenInterrupted(t *testing.T) {
	configured(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	if code := run(ctx, []string{"check"}, &out, &errOut); code != 1 || strings.Contains(out.String(), "all is well") {
		t.Errorf("status %d, %q", code, out.String())
	}
}

// What stands in a file or comes from a server can be hostile, too.
func TestCheckNeutralises(t *testing.T) {
	var out bytes.Buffer
	newShow(&out)(failure("n\x1b", "m\n✓ forged", "d\x9b"))
	if want := "✗ n␛: d\ufffd\n    m␊✓ forged\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestCheckShowsNoSecret(t *testing.T) {
	configured(t)
	secrets := map[string]string{
		"AGENT_NAME": "agent_a",
		"API_TOKEN":  "hidden-token", "RELAY_SECRET": "hidden-secret", "OPENAI_API_KEY": "hidden-key",
		"REDIS_URL": "redis://hidden-user:hidden-word@127.0.0.1:1/0", "INJECT_URL": "http://hidden-a:hidden-b@127.0.0.1:1/hidden-c",
		"OPENAI_BASE_URL": "http://hidden-d:hidden-e@127.0.0.1:1/v1?hidden-f",
	}
	for name, value := range secrets {
		t.Setenv(name, value)
	}
	// Then each with a mistake in it.
	broken := []map[string]string{nil, {"REDIS_URL": "hidden:1"}, {"REDIS_URL": "redis://u:hidden#@h"}, {"INJECT_URL": "hidden"}, {"OPENAI_BASE_URL": "ftp://hidden"}, {"AGENT_NAME": ""}}
	for _, more := range broken {
		for name, value := range more {
			t.Setenv(name, value)
		}
		for _, args := range [][]string{{"check"}, {"check", "--json"}} {
			_, stdout, stderr := program(t, args...)
			if strings.Contains(stdout+stderr, "hidden") {
				t.Errorf("%v with %v shows a secret:\n%s%s", args, more, stdout, stderr)
			}
		}
		for name := range more {
			t.Setenv(name, secrets[name])
		}
	}
}

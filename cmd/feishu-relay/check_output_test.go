package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/test/redistest"
)

var update = flag.Bool("update", false, "write the files that tests compare with: testdata and the tables of docs/configuration.md")

// varying are the parts of the output that differ from run to run; the first
// match replaces all.
var varying = []struct {
	part *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:[1-9]\d*`), "HOST:PORT"},
	{regexp.MustCompile(`\[::1?\]:[1-9]\d*`), "HOST:PORT"},
	{regexp.MustCompile(`cli_[0-9a-f]{16}`), "APP"},
	{regexp.MustCompile(`ou_[0-9a-f]+`), "OPEN_ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?`), "DATE"},
	{regexp.MustCompile(`\b[\d.]+(µs|ms|s)\b`), "TIME"},
	{regexp.MustCompile(`[\d.]+ ([KMGT]i)?B are left`), "SPACE are left"},
	{regexp.MustCompile(`to version [\d.]+`), "to version VERSION"},
	{regexp.MustCompile(`(running sidecar is|this program is|ready, version) [^,\s]+`), "$1 VERSION"},
	{regexp.MustCompile(`\d+ seconds? (ago|old)`), "N seconds $1"},
	{regexp.MustCompile(`this is user \S+, home [^\s;]+`), "this is user USER, home HOME"},
	{regexp.MustCompile(`chown -R \d+:\d+`), "chown -R USER:GROUP"},
}

// steady replaces what differs from run to run.
func steady(text string, also ...string) string {
	text = strings.NewReplacer(also...).Replace(text)
	for _, v := range varying {
		text = v.part.ReplaceAllString(text, v.by)
	}
	return text
}

// golden compares got with a file of testdata, or writes that with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, which -update writes (-want +got):\n%s", path, diff)
	}
}

// serve answers every request with the status and body.
func serve(t *testing.T, status int, body string) (url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// listener takes connections and answers nothing.
func listener(t *testing.T) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func setenv(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		t.Setenv(pairs[i], pairs[i+1])
	}
}

func redisIn(t *testing.T, srv *redistest.Server, commands ...string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	for _, line := range commands {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// withTenant configures an app at a stand-in for Feishu that is in one group.
func withTenant(t *testing.T) (data string, in *tenant) {
	t.Helper()
	in = newTenant(t)
	in.AddGroup("Research", in.app.ID)
	return os.Getenv("DATA_DIR"), in
}

// The whole output and the exit status of the command in the settings that people
// run it in.
func TestCheckOutput(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T) (data string){
		"files": func(t *testing.T) string {
			data := configured(t)
			t.Setenv("BOT_NAME", "BotA")
			write(t, data+"/relay/outbound.jsonl", "{}\n")
			write(t, data+"/groups.json", `{"agents":{"agent_a":{"name":"BotA"},"agent_b":{"name":"BotB","aliases":["BotA"]}},`+
				`"groups":{"oc_x":{"members":["agent_a"],"max_bot_reply_deph":6}}}`)
			write(t, data+"/mailboxes/_registry.json", `{"agent_b":{"agent_id":"agent_b","status":"idle"},"no/agent":3}`)
			return data
		},
		"files-broken": func(t *testing.T) string {
			data := configured(t)
			setenv(t, "MEMBERSHIP_CHECK", "on", "RELAY_BAKEND", "file", "INJECT_TURBO", "1")
			write(t, data+"/relay", "")
			mkdir(t, data+"/transcripts", 0o755)
			write(t, data+"/groups.json", `{"agents":{"agent_b":{"name":3}},"groups":{"oc_x":{"group_policy":"loud"}}}`)
			write(t, data+"/mailboxes/_registry.json", `[]`)
			return data
		},
		"mailbox-off": func(t *testing.T) string {
			data := configured(t)
			setenv(t, "MAILBOX", "off", "BOT_REPLY_LLM_CHECK", "off", "INJECT_URL", "http://"+listener(t)+"/in")
			write(t, data+"/groups.json", `{"agents":{"agent_b":{"name":"BotB"}},"groups":{"oc_x":{"members":["agent_b"]}}}`)
			return data
		},
		"bot-away": func(t *testing.T) string {
			data := configured(t)
			setenv(t, "INJECT_URL", "http://127.0.0.1:1/in", "OPENAI_API_KEY", "k", "OPENAI_MODEL", "tiny", "OPENAI_BASE_URL",
				serve(t, 404, `{"error":{"message":"no such model"}}`), "LISTEN_ADDR", listener(t))
			return data
		},
		"judge": func(t *testing.T) string {
			data := configured(t)
			setenv(t, "OPENAI_API_KEY", "k", "OPENAI_MODEL", "tiny", "OPENAI_BASE_URL",
				serve(t, 200, `{"choices":[{"message":{"role":"assistant","content":"YES"},"finish_reason":"stop"}]}`))
			return data
		},
		"redis": func(t *testing.T) string {
			data := configured(t)
			srv := redistest.Start(t)
			t.Setenv("REDIS_URL", srv.URL())
			redisIn(t, srv, "XADD nanobot:feishu:outbound:log * payload {}", "CONFIG SET maxmemory-policy allkeys-lru")
			return data
		},
		"redis-wrong-type": func(t *testing.T) string {
			data := configured(t)
			srv := redistest.Start(t)
			t.Setenv("REDIS_URL", srv.URL())
			redisIn(t, srv, "SET nanobot:feishu:outbound:log x", "SET nanobot:mailbox:agents x")
			return data
		},
		"redis-few-rights": func(t *testing.T) string {
			data := configured(t)
			srv := redistest.Start(t)
			redisIn(t, srv, "ACL SETUSER joe on >pw ~* &* +@all -info -time -publish -hset")
			t.Setenv("REDIS_URL", "redis://joe:pw@"+srv.Addr())
			return data
		},
		"gateway": func(t *testing.T) string {
			data, _ := withTenant(t)
			setenv(t, "GATEWAY_ADDR", freePort(t), "GATEWAY_TLS", "auto", "BOT_NAME", "Bot", "BOT_OPEN_ID", "ou_other")
			write(t, data+"/groups.json", `{"agents":{"agent_a":{"name":"Bot"}},"groups":{"oc_x":{"members":["agent_a"]}}}`)
			return data
		},
		"gateway-taken": func(t *testing.T) string {
			data := configured(t)
			setenv(t, "GATEWAY_ADDR", listener(t), "GATEWAY_TLS", "file", "GATEWAY_CERT_FILE", "/none", "GATEWAY_KEY_FILE", "/none",
				"FEISHU_BASE_URL", serve(t, 200, `<html>`))
			return data
		},
		"gateway-certificate": func(t *testing.T) string {
			data, _ := withTenant(t)
			selfSigned(t, data, time.Now().Add(24*time.Hour), "localhost", "relay.example")
			chmod(t, data+"/key.pem", 0o644)
			setenv(t, "GATEWAY_ADDR", freePort(t), "GATEWAY_TLS", "file", "GATEWAY_CERT_FILE", data+"/cert.pem",
				"GATEWAY_KEY_FILE", data+"/key.pem", "GATEWAY_PUBLIC_URL", "https://relay.example")
			return data
		},
		"webhook-refused": func(t *testing.T) string {
			data, in := withTenant(t)
			in.releases()
			setenv(t, "GATEWAY_ADDR", freePort(t), "BOT_WEBHOOK_URL", serve(t, 500, ""), "FEISHU_ENCRYPT_KEY", "key",
				"WEBHOOK_ADDR", listener(t))
			return data
		},
		"connector": func(t *testing.T) string {
			data, in := withTenant(t)
			in.answers["/v6/scopes"] = `{"code":0,"data":{"scopes":[{"scope_name":"im:message","grant_status":1}]}}`
			in.releases(release{"3", 3, true, nil}, release{"2", 1, true, []string{"im.message.receive_v1"}})
			t.Setenv("CONNECTOR", "true")
			return data
		},
		"running": func(t *testing.T) string {
			data, _ := withTenant(t)
			setenv(t, "GATEWAY_ADDR", freePort(t), "GATEWAY_TLS", "auto")
			beside(t, "v0.0.1")
			return data
		},
		"mistakes": func(t *testing.T) string {
			data := configured(t)
			setenv(t, "AGENT_NAME", "a/b", "LISTEN_ADDR", "0.0.0.0:8787", "INJECT_URL", "ftp://user:hidden@x", "RELAY_MAX_AGE", "soon",
				"RELAY_BACKEND", "kafka", "DEDUP_SIZE", "-1", "BOT_REPLY_LLM_CHECK", "maybe", "LOG_LEVEL", "shout", "GATEWAY_ADDR", "8788",
				"FEISHU_BASE_URL", "https://h/x", "CONNECTOR", "true", "ALLOW_FROM", "none,b", "HEARTBEAT_INTERVAL", "90s",
				"REDIS_ULR", "redis://h", "REDIS_URL", "hidden:1", "GROUP_POLICY", "loud")
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := prepare(t)
			code, stdout, stderr := program(t, "check")
			if stderr != "" || strings.Contains(stdout, "hidden") {
				t.Errorf("stderr %q, or a secret in\n%s", stderr, stdout)
			}
			golden(t, "check/"+name+".txt", steady(stdout, data, "DATA")+"exit status "+strconv.Itoa(code)+"\n")
			var list []selftest.Finding // the same as JSON
			again, asJSON, _ := program(t, "check", "--json")
			if err := json.Unmarshal([]byte(asJSON), &list); err != nil || again != code {
				t.Errorf("--json: status %d after %d, %v", again, code, err)
			}
			for _, f := range list {
				if line := fmt.Sprintf(" %s: %s\n", f.Name, f.Detail); !strings.Contains(steady(stdout), steady(line)) {
					t.Errorf("--json has %q, which the text has not", line)
				}
			}
		})
	}
}

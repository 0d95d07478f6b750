package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// secretOfOurs is long enough for no other finding.
const secretOfOurs = "a secret of sixteen"

func signedLine(t *testing.T, sender, secret string) string {
	t.Helper()
	line := fmt.Appendf(nil, `{"relay_msg_id":"om_%s","chat_id":"oc_x","content":"hi","sender_agent_name":%q,"ts":%d}`,
		sender, sender, time.Now().UnixMilli())
	if secret == "" {
		return string(line)
	}
	line, err := relay.Sign(line, secret)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// Two sidecars whose secrets differ do not hear each other: the newest line of each
// other bot shows it, on both backends.
func TestCheckLineSignatures(t *testing.T) {
	for _, tt := range []struct {
		name, secret string
		lines        [][2]string // sender and secret, the oldest first
		status       status
		says         string // "": nothing
	}{
		{"another secret", secretOfOurs, [][2]string{{"b", secretOfOurs}, {"b", "another"}},
			statusWarn, "not delivered here: b ("},
		{"not signed", secretOfOurs, [][2]string{{"b", ""}, {"c", secretOfOurs}}, statusWarn, "not delivered here: b ("},
		{"the same", secretOfOurs, [][2]string{{"b", "another"}, {"b", secretOfOurs}},
			statusOK, "with this RELAY_SECRET: b ("},
		{"only the others sign", "", [][2]string{{"b", "another"}, {"c", ""}}, statusWarn, "set RELAY_SECRET to that"},
		{"own ones", secretOfOurs, [][2]string{{"agent_a", "the last one"}}, statusOK, ""},
		{"nobody signs", "", [][2]string{{"b", ""}}, statusOK, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(configured(t), "relay")
			t.Setenv("RELAY_SECRET", tt.secret)
			srv := redistest.Start(t)
			client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			defer client.Close()
			lines := []string{"{}", "no message"}
			for _, l := range tt.lines {
				line := signedLine(t, l[0], l[1])
				lines = append(lines, line)
				if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "nanobot:feishu:outbound:log",
					Values: []string{"payload", line}}).Err(); err != nil {
					t.Fatal(err)
				}
			}
			write(t, filepath.Join(dir, "outbound.jsonl"), strings.Join(append(lines, `{"half`), "\n"))
			for _, url := range []string{"", srv.URL()} {
				t.Setenv("REDIS_URL", url)
				_, found := checked(t)
				if tt.says == "" && len(found["signatures"]) > 0 {
					t.Errorf("got %+v, want nothing", found["signatures"])
				} else if tt.says != "" {
					wants(t, found, "signatures", tt.status, tt.says)
				}
			}
		})
	}
}

// Mail that is not signed with this secret is not called malformed, and what can be
// read now is named with the command that has it read.
func TestCheckMailSetAside(t *testing.T) {
	data := configured(t)
	t.Setenv("RELAY_SECRET", secretOfOurs)
	mail := func(secret string) string {
		raw, err := mailbox.Signing{Secret: secret}.Encode(mailbox.Envelope{ID: "msg_1", From: "b", To: "agent_a",
			Type: mailbox.TypeMessage, Priority: 3, Trace: []mailbox.AgentID{"b"}, Timestamp: time.Now(),
			Content: mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: "x"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	aside := []string{mail("another"), mail(""), mail(secretOfOurs), "{"}
	folder := filepath.Join(data, "mailboxes", "agent_a", "malformed")
	srv := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	for i, raw := range aside {
		write(t, filepath.Join(folder, fmt.Sprintf("%d_b.msg.json", i)), raw)
		if err := client.LPush(t.Context(), "nanobot:mailbox:{agent_a}:malformed", raw).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for url, again := range map[string]string{"": "mv '" + folder, srv.URL(): "redis-cli --raw lindex"} {
		t.Setenv("REDIS_URL", url)
		_, found := checked(t)
		wants(t, found, "mailbox malformed", statusWarn, "2 messages are not signed with this RELAY_SECRET: ")
		wants(t, found, "mailbox malformed", statusWarn, "1 message was set aside, for a reason that the log has, and may be readable now: ")
		wants(t, found, "mailbox malformed", statusWarn, again)
		wants(t, found, "mailbox malformed", statusWarn, "1 message is not an envelope: ")
	}
	for i := range maxVerified {
		write(t, filepath.Join(folder, fmt.Sprintf("9%d_b.msg.json", i)), "{")
	}
	t.Setenv("REDIS_URL", "")
	_, found := checked(t)
	wants(t, found, "mailbox malformed", statusWarn, fmt.Sprintf("%d messages are not envelopes: %s (%d in all; the newest "+
		"%d", maxVerified, folder, maxVerified+len(aside), maxVerified))
}

// Settings that work and surprise are named by the check, and logged at the start.
func TestCheckSettings(t *testing.T) {
	for _, tt := range []struct {
		name, setting, says string // says "": nothing
		env                 []string
	}{
		{"a short secret", "RELAY_SECRET", "it has 3 characters", []string{"RELAY_SECRET", "密钥x"}},
		{"a long one", "RELAY_SECRET", "", []string{"RELAY_SECRET", "0123456789abcdef"}},
		{"posts to another host", "INJECT_SECRET", "posts are not signed", []string{"INJECT_URL", "http://192.0.2.1:9/in"}},
		{"signed", "INJECT_SECRET", "", []string{"INJECT_URL", "http://192.0.2.1:9/", "INJECT_SECRET", "0123456789abcdef"}},
		{"over TLS", "INJECT_SECRET", "", []string{"INJECT_URL", "https://192.0.2.1:9/in"}},
		{"on this host", "INJECT_SECRET", "", []string{"INJECT_URL", "http://localhost:9/in"}},
		{"a threshold beyond the limit", "BOT_REPLY_LLM_THRESHOLD", "4 is more than MAX_BOT_REPLY_DEPTH=3",
			[]string{"BOT_REPLY_LLM_THRESHOLD", "4"}},
		{"without a judge", "BOT_REPLY_LLM_THRESHOLD", "",
			[]string{"BOT_REPLY_LLM_THRESHOLD", "4", "BOT_REPLY_LLM_CHECK", "off"}},
		{"no bots' messages at all", "BOT_REPLY_LLM_THRESHOLD", "", []string{"MAX_BOT_REPLY_DEPTH", "0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			setenv(t, tt.env...)
			cfg, err := loadConfig()
			if err != nil {
				t.Fatal(err)
			}
			found := map[string][]finding{}
			for _, w := range cfg.Warnings() {
				found[w.Setting] = nameAll(w.Setting, warning(alike(w.Fix), "%s", "", w.Detail))
			}
			if tt.says == "" && len(found) > 0 {
				t.Errorf("got %v, want nothing", found)
			} else if tt.says != "" {
				wants(t, found, tt.setting, statusWarn, tt.says)
			}
		})
	}
	configured(t)
	t.Setenv("RELAY_SECRET", "short")
	code, found := checked(t)
	if wants(t, found, "RELAY_SECRET", statusWarn, "openssl rand -hex 32"); code != 0 {
		t.Errorf("a short RELAY_SECRET fails the check: status %d", code)
	}
}

// What a mistake of two variables says to set is not contradicted by its fix.
func TestCheckDescribesEachOfTwoVariables(t *testing.T) {
	configured(t)
	setenv(t, "CONNECTOR", "true", "GATEWAY_ADDR", "127.0.0.1:0")
	_, found := checked(t)
	for _, f := range found["CONNECTOR, GATEWAY_ADDR"] {
		if strings.Contains(f.Mend.en, "set CONNECTOR") || !strings.Contains(f.Mend.en, "; GATEWAY_ADDR: where the gateway") {
			t.Errorf("the fix is %q beside %q", f.Mend, f.Detail)
		}
	}
	if len(found["CONNECTOR, GATEWAY_ADDR"]) != 1 {
		t.Errorf("got %v", found)
	}
}

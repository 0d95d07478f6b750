package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Every variable reaches its field of the configuration. The values are none of
// the defaults; what cannot be set together is set in the second set.
func TestVariablesReachTheConfiguration(t *testing.T) {
	home := t.TempDir()
	everything := map[string]string{
		"AGENT_NAME": "agent_a", "AGENT_ROLE": " tests ", "AGENT_CAPABILITIES": "a, b,,c", "BOT_NAME": " BotA ", "BOT_OPEN_ID": "ou_a",
		"FEISHU_APP_ID": "cli_a", "FEISHU_APP_SECRET": " s1 ", "FEISHU_BASE_URL": "https://open.larksuite.com/",
		"FEISHU_ENCRYPT_KEY": "s2", "FEISHU_VERIFICATION_TOKEN": "s3",
		"GATEWAY_ADDR": "0.0.0.0:8788", "GATEWAY_TLS": "FILE", "GATEWAY_CERT_FILE": "c.pem", "GATEWAY_KEY_FILE": "k.pem",
		"GATEWAY_PUBLIC_URL": "https://relay.example", "GATEWAY_CONNECT_ALLOW": "127.0.0.1:11434, h:1",
		"GATEWAY_SETTLE": "1s", "GATEWAY_STREAM_LIFE": "2m", "GATEWAY_EDIT_SETTLE": "3s", "REWRITE_MENTIONS": "true",
		"WEBHOOK_ADDR": "127.0.0.1:8789", "BOT_WEBHOOK_URL": "http://bot/x", "INJECT_SENDER_TYPE": "App", "INJECT_MENTION": "always",
		"LISTEN_ADDR": "0.0.0.0:8787", "API_TOKEN": "0123456789abcdef0123456789abcdef", "ADMIN_TOKEN": "fedcba9876543210", "INJECT_URL": " http://bot/in ", "INJECT_CONTEXT": " 7 ", "INJECT_SECRET": "0123456789abcdef",
		"DELIVERY_TIMEOUT": "4m", "RELAY_BACKEND": "redis", "REDIS_URL": "redis://h/1", "RELAY_CHANNEL": "team",
		"DATA_DIR": "~/d", "RELAY_DIR": "/r", "TRANSCRIPT_DIR": "~/t", "MAILBOX_DIR": "/m", "RELAY_SECRET": "s5", "RELAY_MAX_AGE": "5m",
		"RELAY_USER_MESSAGES": "no", "RELAY_FSYNC": "yes", "DEDUP_SIZE": "9", "GROUPS_FILE": "/g.json", "GROUP_POLICY": "open",
		"MENTION_ALL": "1", "MEMBERSHIP_CHECK": "on", "MAX_BOT_REPLY_DEPTH": "6", "BOT_REPLY_LLM_THRESHOLD": "2",
		"BOT_REPLY_LLM_CHECK": "off", "BOT_REPLY_LLM_TIMEOUT": "6s", "BOT_REPLY_LLM_ON_ERROR": "allow", "BOT_REPLY_DEPTH_COUNT": "turns",
		"BOT_REPLY_IDLE_RESET": "1h", "OPENAI_API_KEY": "s6", "OPENAI_BASE_URL": "http://llm/v1", "OPENAI_MODEL": "tiny",
		"MAILBOX": "off", "ALLOW_FROM": "res*, b", "ALLOWED_DELEGATES": "none", "MAX_CONCURRENT_TASKS": "0",
		"HEARTBEAT_INTERVAL": "7s", "HEARTBEAT_TIMEOUT": "8s", "ACK_TIMEOUT": "9s", "RETRY_BASE": "10s", "MAX_RETRIES": "4",
		"PEER_MAX_EXCHANGES": "5", "LOG_LEVEL": "debug", "LOG_FORMAT": "TEXT",
	}
	for name, set := range map[string]map[string]string{
		"defaults":   {"AGENT_NAME": "agent_a"},
		"everything": everything,
		"connector":  {"AGENT_NAME": "agent_a", "CONNECTOR": "on", "FEISHU_APP_ID": "cli_a", "FEISHU_APP_SECRET": "s", "REDIS_URL": "redis://h"},
		"set to nothing": {"AGENT_NAME": "agent_a", "LISTEN_ADDR": "", "MAILBOX": "", "DEDUP_SIZE": "", "RELAY_MAX_AGE": "",
			"RELAY_DIR": "", "ALLOW_FROM": "", "FEISHU_BASE_URL": "", "GATEWAY_PUBLIC_URL": "", "GATEWAY_ADDR": ""},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t, set)
			t.Setenv("HOME", home)
			c, err := loadConfig()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(c.Config)
			if err != nil {
				t.Fatal(err)
			}
			var byName any // in the order of the names, not of the fields
			if err := json.Unmarshal(text, &byName); err != nil {
				t.Fatal(err)
			}
			if text, err = json.MarshalIndent(byName, "", "  "); err != nil {
				t.Fatal(err)
			}
			here, err := filepath.Abs(".")
			if err != nil {
				t.Fatal(err)
			}
			text = fmt.Appendf(text, "\nlog level %s, format %s\n", c.LogLevel, c.LogFormat)
			got := strings.NewReplacer(home, "HOME", here, "HERE").Replace(string(text))
			golden(t, "config/"+strings.ReplaceAll(name, " ", "-")+".json", got)
		})
	}
}

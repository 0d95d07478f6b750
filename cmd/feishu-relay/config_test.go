package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/policy"
)

// clearEnvironment leaves the test with no variable of ours but those given.
func clearEnvironment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, v := range variables() {
		if _, ok := os.LookupEnv(v.name); ok {
			t.Setenv(v.name, "") // so that it is put back afterwards
		}
		if err := os.Unsetenv(v.name); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func TestDefaults(t *testing.T) {
	home := t.TempDir()
	clearEnvironment(t, map[string]string{"AGENT_NAME": "agent_a", "HOME": home})
	c, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.Agent, c.ListenAddr, c.Backend, c.RelayChannel, c.RelayDir, c.TranscriptDir, c.GroupsFile, c.MaxAge,
		c.UserMessages, c.DedupSize, c.GroupPolicy, c.MentionAll, c.MembershipCheck, c.Limits, c.InjectContext}
	want := []any{"agent_a", "127.0.0.1:8787", "file", "nanobot:feishu:outbound", filepath.Join(home, ".nanobot/relay"),
		filepath.Join(home, ".nanobot/transcripts"), filepath.Join(home, ".nanobot/groups.json"), 10 * time.Minute,
		true, 5000, "auto", false, "auto",
		policy.Limits{MaxDepth: 3, Threshold: 1, Check: true, Timeout: 10 * time.Second}, 0}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	clearEnvironment(t, map[string]string{
		"AGENT_NAME": "a/b", "LISTEN_ADDR": "0.0.0.0:8787", "INJECT_URL": "ftp://user:hunter2@x", "RELAY_MAX_AGE": "soon",
		"RELAY_BACKEND": "kafka", "DEDUP_SIZE": "-1", "GROUP_POLICY": "loud", "MAX_BOT_REPLY_DEPTH": "three",
		"BOT_REPLY_LLM_CHECK": "maybe", "BOT_REPLY_LLM_ON_ERROR": "panic", "LOG_LEVEL": "shout", "LOG_FORMAT": "xml",
		"MEMBERSHIP_CHECK": "perhaps", "INJECT_CONTEXT": "1000", "GATEWAY_ADDR": "8788", "GATEWAY_TLS": "file", "FEISHU_BASE_URL": "open.feishu.cn",
		"WEBHOOK_ADDR": "127.0.0.1:1", "CONNECTOR": "true", "INJECT_SENDER_TYPE": "person", "INJECT_MENTION": "never", "GATEWAY_SETTLE": "soon",
	})
	_, err := loadConfig()
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"AGENT_NAME", "API_TOKEN", "INJECT_URL", "RELAY_MAX_AGE", "RELAY_BACKEND", "DEDUP_SIZE",
		"GROUP_POLICY", "MAX_BOT_REPLY_DEPTH", "BOT_REPLY_LLM_CHECK", "BOT_REPLY_LLM_ON_ERROR", "LOG_LEVEL", "LOG_FORMAT",
		"MEMBERSHIP_CHECK", "INJECT_CONTEXT", "GATEWAY_ADDR", "GATEWAY_CERT_FILE", "FEISHU_BASE_URL", "BOT_WEBHOOK_URL",
		"CONNECTOR, GATEWAY_ADDR", "INJECT_SENDER_TYPE", "INJECT_MENTION", "GATEWAY_SETTLE"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows a password:\n%v", err)
	}
}

func TestSingleMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		set  map[string]string
		want string // in the error; "" for none
	}{
		"name is required":                 {map[string]string{}, "AGENT_NAME: required"},
		"name in Chinese":                  {map[string]string{"AGENT_NAME": "小明"}, ""},
		"name with a space":                {map[string]string{"AGENT_NAME": "a b"}, "AGENT_NAME"},
		"redis without a URL":              {map[string]string{"AGENT_NAME": "a", "RELAY_BACKEND": "redis"}, "REDIS_URL: required"},
		"a URL chooses redis":              {map[string]string{"AGENT_NAME": "a", "REDIS_URL": "redis://127.0.0.1:1"}, ""},
		"the file backend beside a URL":    {map[string]string{"AGENT_NAME": "a", "REDIS_URL": "redis://h", "RELAY_BACKEND": "file"}, ""},
		"not a Redis URL":                  {map[string]string{"AGENT_NAME": "a", "REDIS_URL": "http://secret@x"}, "REDIS_URL"},
		"beyond loopback with a token":     {map[string]string{"AGENT_NAME": "a", "LISTEN_ADDR": ":8787", "API_TOKEN": "sixteen letters."}, ""},
		"beyond loopback, a short token":   {map[string]string{"AGENT_NAME": "a", "LISTEN_ADDR": ":8787", "API_TOKEN": "fifteen letters"}, "API_TOKEN: want at least 16"},
		"a short token on an open gateway": {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": ":8788", "FEISHU_APP_ID": "cli_a", "API_TOKEN": "fifteen letters"}, "API_TOKEN: want at least 16"},
		"a token for people alone":         {map[string]string{"AGENT_NAME": "a", "ADMIN_TOKEN": "t"}, "API_TOKEN: required by ADMIN_TOKEN"},
		"the bot's token for people":       {map[string]string{"AGENT_NAME": "a", "API_TOKEN": "t", "ADMIN_TOKEN": "t"}, "API_TOKEN: required by ADMIN_TOKEN"},
		"a token with a line end":          {map[string]string{"AGENT_NAME": "a", "API_TOKEN": "sixteen letters.\n"}, "API_TOKEN: has a space or a line end"},
		"a short token on loopback":        {map[string]string{"AGENT_NAME": "a", "API_TOKEN": "t"}, ""},
		"an allowed host without a port":   {map[string]string{"AGENT_NAME": "a", "GATEWAY_CONNECT_ALLOW": "h:1, localhost"}, "GATEWAY_CONNECT_ALLOW"},
		"a short secret for posts":         {map[string]string{"AGENT_NAME": "a", "INJECT_SECRET": "secret789012345"}, "INJECT_SECRET: want at least 16"},
		"a secret for posts":               {map[string]string{"AGENT_NAME": "a", "INJECT_URL": "http://bot/", "INJECT_SECRET": "0123456789012345"}, ""},
		"nothing to sign":                  {map[string]string{"AGENT_NAME": "a", "INJECT_SECRET": "sixteen letters."}, "INJECT_URL: required"},
		"beyond loopback without":          {map[string]string{"AGENT_NAME": "a", "LISTEN_ADDR": ":8787"}, "API_TOKEN"},
		"loopback by name":                 {map[string]string{"AGENT_NAME": "a", "LISTEN_ADDR": "localhost:1"}, ""},
		"loopback of IPv6":                 {map[string]string{"AGENT_NAME": "a", "LISTEN_ADDR": "[::1]:1"}, ""},
		"no port":                          {map[string]string{"AGENT_NAME": "a", "LISTEN_ADDR": "127.0.0.1"}, "LISTEN_ADDR"},
		"a gateway on the API's address":   {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": "127.0.0.1:8787"}, "GATEWAY_ADDR: is the same"},
		"a gateway":                        {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": ":8788", "FEISHU_APP_ID": "cli_a"}, ""},
		"a gateway for any app":            {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": "10.0.0.1:8788"}, "FEISHU_APP_ID: required since GATEWAY_ADDR=10.0.0.1:8788"},
		"a gateway on loopback":            {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": "127.0.0.1:8788"}, ""},
		"a webhook anybody could post to":  {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": "127.0.0.1:1", "BOT_WEBHOOK_URL": "http://b"}, "FEISHU_ENCRYPT_KEY"},
		"a webhook on an open gateway":     {map[string]string{"AGENT_NAME": "a", "GATEWAY_ADDR": ":1", "BOT_WEBHOOK_URL": "http://b", "FEISHU_ENCRYPT_KEY": "k"}, "WEBHOOK_ADDR: required"},
		"a webhook without a gateway":      {map[string]string{"AGENT_NAME": "a", "BOT_WEBHOOK_URL": "http://b", "FEISHU_ENCRYPT_KEY": "k"}, "GATEWAY_ADDR: required"},
		"a base URL with a path":           {map[string]string{"AGENT_NAME": "a", "FEISHU_BASE_URL": "https://h/x"}, "FEISHU_BASE_URL"},
		"a connector without an app":       {map[string]string{"AGENT_NAME": "a", "CONNECTOR": "true"}, "FEISHU_APP_ID"},
		"a connector that is switched off": {map[string]string{"AGENT_NAME": "a", "CONNECTOR": "false"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t, tt.set)
			_, err := loadConfig()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	clearEnvironment(t, nil)
	for name, tt := range map[string]struct {
		args   []string
		status int
		out    string // in stdout
		errOut string // in stderr
	}{
		"help":                        {[]string{"--help"}, 0, "Available commands:", ""},
		"help of a command":           {[]string{"run", "--help"}, 0, "MAX_BOT_REPLY_DEPTH", ""},
		"version":                     {[]string{"version"}, 0, "feishu-relay ", ""},
		"version as a flag":           {[]string{"--version"}, 0, "feishu-relay ", ""},
		"no such command":             {[]string{"fly"}, 2, "", "no command fly"},
		"no such flag":                {[]string{"version", "--loud"}, 2, "", "unknown flag"},
		"an argument too many":        {[]string{"version", "now"}, 2, "", "unexpected argument"},
		"run without a configuration": {[]string{"run"}, 1, "", "AGENT_NAME: required"},
		"nothing is run":              {nil, 1, "", "AGENT_NAME: required"},
		"health of nobody":            {[]string{"health", "--addr", "127.0.0.1:1"}, 1, "", "no sidecar answers"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := run(context.Background(), tt.args, &stdout, &stderr)
			if status != tt.status || !strings.Contains(stdout.String(), tt.out) || !strings.Contains(stderr.String(), tt.errOut) {
				t.Errorf("status %d, stdout %q, stderr %q; want %d, %q, %q", status, stdout.String(), stderr.String(), tt.status, tt.out, tt.errOut)
			}
		})
	}
}

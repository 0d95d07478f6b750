package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
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

func TestSingleMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		set  map[string]string
		want string // in the error; "" for none
	}{
		"name is required":                 {map[string]string{"AGENT_NAME": ""}, "AGENT_NAME: required"},
		"name in Chinese":                  {map[string]string{"AGENT_NAME": "小明"}, ""},
		"name with a space":                {map[string]string{"AGENT_NAME": "a b"}, "AGENT_NAME"},
		"redis without a URL":              {map[string]string{"RELAY_BACKEND": "redis"}, "REDIS_URL: required"},
		"a URL chooses redis":              {map[string]string{"REDIS_URL": "redis://127.0.0.1:1"}, ""},
		"the file backend beside a URL":    {map[string]string{"REDIS_URL": "redis://h", "RELAY_BACKEND": "file"}, ""},
		"not a Redis URL":                  {map[string]string{"REDIS_URL": "http://secret@x"}, "REDIS_URL"},
		"beyond loopback with a token":     {map[string]string{"LISTEN_ADDR": ":8787", "API_TOKEN": "sixteen letters."}, ""},
		"beyond loopback, a short token":   {map[string]string{"LISTEN_ADDR": ":8787", "API_TOKEN": "fifteen letters"}, "API_TOKEN: want at least 16"},
		"a short token on an open gateway": {map[string]string{"GATEWAY_ADDR": ":8788", "FEISHU_APP_ID": "cli_a", "API_TOKEN": "fifteen letters"}, "API_TOKEN: want at least 16"},
		"a token for people alone":         {map[string]string{"ADMIN_TOKEN": "t"}, "API_TOKEN: required by ADMIN_TOKEN"},
		"the bot's token for people":       {map[string]string{"API_TOKEN": "t", "ADMIN_TOKEN": "t"}, "API_TOKEN: required by ADMIN_TOKEN"},
		"a token with a line end":          {map[string]string{"API_TOKEN": "sixteen letters.\n"}, "API_TOKEN: has a space or a line end"},
		"a short token on loopback":        {map[string]string{"API_TOKEN": "t"}, ""},
		"an allowed host without a port":   {map[string]string{"GATEWAY_CONNECT_ALLOW": "h:1, localhost"}, "GATEWAY_CONNECT_ALLOW"},
		"a short secret for posts":         {map[string]string{"INJECT_SECRET": "secret789012345"}, "INJECT_SECRET: want at least 16"},
		"a secret for posts":               {map[string]string{"INJECT_URL": "http://bot/", "INJECT_SECRET": "0123456789012345"}, ""},
		"nothing to sign":                  {map[string]string{"INJECT_SECRET": "sixteen letters."}, "INJECT_URL: required"},
		"beyond loopback without":          {map[string]string{"LISTEN_ADDR": ":8787"}, "API_TOKEN"},
		"loopback by name":                 {map[string]string{"LISTEN_ADDR": "localhost:1"}, ""},
		"loopback of IPv6":                 {map[string]string{"LISTEN_ADDR": "[::1]:1"}, ""},
		"no port":                          {map[string]string{"LISTEN_ADDR": "127.0.0.1"}, "LISTEN_ADDR"},
		"a gateway on the API's address":   {map[string]string{"GATEWAY_ADDR": "127.0.0.1:8787"}, "GATEWAY_ADDR: is the same"},
		"a gateway":                        {map[string]string{"GATEWAY_ADDR": ":8788", "FEISHU_APP_ID": "cli_a"}, ""},
		"a gateway for any app":            {map[string]string{"GATEWAY_ADDR": "10.0.0.1:8788"}, "FEISHU_APP_ID: required since GATEWAY_ADDR=10.0.0.1:8788"},
		"a gateway on loopback":            {map[string]string{"GATEWAY_ADDR": "127.0.0.1:8788"}, ""},
		"a webhook anybody could post to":  {map[string]string{"GATEWAY_ADDR": "127.0.0.1:1", "BOT_WEBHOOK_URL": "http://b"}, "FEISHU_ENCRYPT_KEY"},
		"a webhook on an open gateway":     {map[string]string{"GATEWAY_ADDR": ":1", "BOT_WEBHOOK_URL": "http://b", "FEISHU_ENCRYPT_KEY": "k"}, "WEBHOOK_ADDR: required"},
		"a webhook without a gateway":      {map[string]string{"BOT_WEBHOOK_URL": "http://b", "FEISHU_ENCRYPT_KEY": "k"}, "GATEWAY_ADDR: required"},
		"a base URL with a path":           {map[string]string{"FEISHU_BASE_URL": "https://h/x"}, "FEISHU_BASE_URL"},
		"a connector without an app":       {map[string]string{"CONNECTOR": "true"}, "FEISHU_APP_ID"},
		"a connector that is switched off": {map[string]string{"CONNECTOR": "false"}, ""},
		"neither on nor off":               {map[string]string{"MAILBOX": "perhaps"}, "MAILBOX: want"},
		"nobody and somebody":              {map[string]string{"ALLOW_FROM": "a,none"}, "ALLOW_FROM: want none alone"},
		"no name at all":                   {map[string]string{"ALLOWED_DELEGATES": " , "}, "ALLOWED_DELEGATES: want names"},
		"a name that is none":              {map[string]string{"ALLOW_FROM": "*,a/b"}, "ALLOW_FROM: an agent's name"},
		"a path":                           {map[string]string{"ALLOWED_DELEGATES": ".."}, "ALLOWED_DELEGATES: "},
		"a star in the middle":             {map[string]string{"ALLOWED_DELEGATES": "r*s"}, "ALLOWED_DELEGATES: an agent's name"},
		"two stars":                        {map[string]string{"ALLOW_FROM": "r**"}, "ALLOW_FROM: an agent's name"},
		"a star behind no name":            {map[string]string{"ALLOW_FROM": "../*"}, "ALLOW_FROM: an agent's name"},
		"tasks below none":                 {map[string]string{"MAX_CONCURRENT_TASKS": "-1"}, "MAX_CONCURRENT_TASKS: want a whole number"},
		"no tasks":                         {map[string]string{"MAX_CONCURRENT_TASKS": "0"}, ""},
		"no heartbeat":                     {map[string]string{"HEARTBEAT_INTERVAL": "0"}, "HEARTBEAT_INTERVAL: want a duration"},
		"offline between heartbeats":       {map[string]string{"HEARTBEAT_INTERVAL": "20s", "HEARTBEAT_TIMEOUT": "20s"}, "HEARTBEAT_TIMEOUT: want more than HEARTBEAT_INTERVAL=20s, such as 1m0s"},
		"no time to acknowledge":           {map[string]string{"ACK_TIMEOUT": "0s"}, "ACK_TIMEOUT: want a duration"},
		"no pause":                         {map[string]string{"RETRY_BASE": "0s"}, "RETRY_BASE: want a duration"},
		"too often":                        {map[string]string{"MAX_RETRIES": "11"}, "MAX_RETRIES: want a whole number from 0 to 10"},
		"no limit of exchanges":            {map[string]string{"PEER_MAX_EXCHANGES": "0"}, ""},
		"a negative limit":                 {map[string]string{"PEER_MAX_EXCHANGES": "-1"}, "PEER_MAX_EXCHANGES: want"},
		"private chats without it":         {map[string]string{"MAILBOX": "off", "MAILBOX_GATEWAY": "on"}, "MAILBOX_GATEWAY: on needs the mailbox, and MAILBOX is off: set"},
		"no name of a folder":              {map[string]string{"AGENT_NAME": "a:b"}, "AGENT_NAME: an agent's name has none of"},
		"a name for the relay alone":       {map[string]string{"AGENT_NAME": "a:b", "MAILBOX": "off"}, ""},
		"hidden":                           {map[string]string{"AGENT_NAME": ".a"}, "or set MAILBOX=off"},
		"the registry's":                   {map[string]string{"AGENT_NAME": "_registry"}, "AGENT_NAME"},
		"oneself":                          {map[string]string{"AGENT_NAME": "self"}, `AGENT_NAME: "self" is not a name`},
		"bad for both, told once":          {map[string]string{"AGENT_NAME": "a/b"}, "AGENT_NAME: want at most 64 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t, map[string]string{"AGENT_NAME": "a"})
			for name, value := range tt.set {
				t.Setenv(name, value)
			}
			_, err := loadConfig()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a password: %v", err)
			}
			if err != nil && strings.Count(err.Error(), "AGENT_NAME: ") > 1 {
				t.Errorf("told more than once: %v", err)
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

func TestMailboxAgents(t *testing.T) {
	for value, want := range map[string][]mailbox.AgentID{
		"":          nil, // the default
		"*":         nil,
		"a, *":      nil,
		"none":      {},
		" none ":    {},
		"a":         {"a"},
		"res*, a":   {"res*", "a"},
		" a ,, 小明 ": {"a", "小明"},
	} {
		clearEnvironment(t, map[string]string{"AGENT_NAME": "a", "ALLOW_FROM": value, "ALLOWED_DELEGATES": value})
		c, err := loadConfig()
		if diff := cmp.Diff([2][]mailbox.AgentID{want, want}, [2][]mailbox.AgentID{c.Mailbox.AllowFrom, c.Mailbox.Delegates}); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", value, err, diff)
		}
	}
}

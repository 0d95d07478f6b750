package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
	"feishu-relay/sidecar"
)

func TestMailboxDefaults(t *testing.T) {
	home := t.TempDir()
	clearEnvironment(t, map[string]string{"AGENT_NAME": "agent_a", "HOME": home})
	c, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	want := sidecar.MailboxConfig{
		On: true, Dir: filepath.Join(home, ".nanobot/mailboxes"), MaxTasks: 3,
		Heartbeat: 30 * time.Second, HeartbeatTimeout: 90 * time.Second,
		AckTimeout: 30 * time.Second, RetryBase: time.Second, MaxRetries: 3, MaxExchanges: 10,
	}
	if diff := cmp.Diff(want, c.Mailbox); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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

func TestMailboxMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		set  map[string]string
		want string // in the error; "" for none
	}{
		"neither on nor off":         {map[string]string{"MAILBOX": "perhaps"}, "MAILBOX: want"},
		"nobody and somebody":        {map[string]string{"ALLOW_FROM": "a,none"}, "ALLOW_FROM: want none alone"},
		"no name at all":             {map[string]string{"ALLOWED_DELEGATES": " , "}, "ALLOWED_DELEGATES: want names"},
		"a name that is none":        {map[string]string{"ALLOW_FROM": "*,a/b"}, "ALLOW_FROM: an agent's name"},
		"a path":                     {map[string]string{"ALLOWED_DELEGATES": ".."}, "ALLOWED_DELEGATES: "},
		"a star in the middle":       {map[string]string{"ALLOWED_DELEGATES": "r*s"}, "ALLOWED_DELEGATES: an agent's name"},
		"two stars":                  {map[string]string{"ALLOW_FROM": "r**"}, "ALLOW_FROM: an agent's name"},
		"a star behind no name":      {map[string]string{"ALLOW_FROM": "../*"}, "ALLOW_FROM: an agent's name"},
		"tasks below none":           {map[string]string{"MAX_CONCURRENT_TASKS": "-1"}, "MAX_CONCURRENT_TASKS: want a whole number"},
		"no tasks":                   {map[string]string{"MAX_CONCURRENT_TASKS": "0"}, ""},
		"no heartbeat":               {map[string]string{"HEARTBEAT_INTERVAL": "0"}, "HEARTBEAT_INTERVAL: want a duration"},
		"offline between heartbeats": {map[string]string{"HEARTBEAT_INTERVAL": "20s", "HEARTBEAT_TIMEOUT": "20s"}, "HEARTBEAT_TIMEOUT: want more than HEARTBEAT_INTERVAL=20s, such as 1m0s"},
		"no time to acknowledge":     {map[string]string{"ACK_TIMEOUT": "0s"}, "ACK_TIMEOUT: want a duration"},
		"no pause":                   {map[string]string{"RETRY_BASE": "0s"}, "RETRY_BASE: want a duration"},
		"too often":                  {map[string]string{"MAX_RETRIES": "11"}, "MAX_RETRIES: want a whole number from 0 to 10"},
		"no limit of exchanges":      {map[string]string{"PEER_MAX_EXCHANGES": "0"}, ""},
		"a negative limit":           {map[string]string{"PEER_MAX_EXCHANGES": "-1"}, "PEER_MAX_EXCHANGES: want"},
		"private chats without it":   {map[string]string{"MAILBOX": "off", "MAILBOX_GATEWAY": "on"}, "MAILBOX_GATEWAY: on needs the mailbox, and MAILBOX is off: set"},
		"no name of a folder":        {map[string]string{"AGENT_NAME": "a:b"}, "AGENT_NAME: an agent's name has none of"},
		"a name for the relay alone": {map[string]string{"AGENT_NAME": "a:b", "MAILBOX": "off"}, ""},
		"hidden":                     {map[string]string{"AGENT_NAME": ".a"}, "or set MAILBOX=off"},
		"the registry's":             {map[string]string{"AGENT_NAME": "_registry"}, "AGENT_NAME"},
		"oneself":                    {map[string]string{"AGENT_NAME": "self"}, `AGENT_NAME: "self" is not a name`},
		"bad for both, told once":    {map[string]string{"AGENT_NAME": "a/b"}, "AGENT_NAME: want at most 64 bytes"},
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
			if err != nil && strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("told more than once: %v", err)
			}
		})
	}
}

package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// registers writes cards into the registry: each agent's is what this environment's sidecar would
// write, as change has it.
func registers(t *testing.T, data string, change map[string]func(*mailbox.Card)) {
	t.Helper()
	entries := map[string]json.RawMessage{}
	for agent, change := range change {
		cfg, err := loadConfig()
		if err != nil {
			t.Fatal(err)
		}
		c := mailbox.Card{AgentID: mailbox.AgentID(agent), LastHeartbeat: time.Now().UTC(), Sidecar: cfg.Shared(versionText())}
		change(&c)
		if entries[agent], err = mailbox.EncodeCard(c, nil); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, "mailboxes", "_registry.json"), string(text))
}

func asIs(*mailbox.Card) {}

func TestCheckSecrets(t *testing.T) {
	data := configured(t)
	t.Setenv("RELAY_SECRET", "the secret of agent_a")
	another := func(c *mailbox.Card) { c.Sidecar.Secret = "01234567" }
	for _, tt := range []struct {
		name   string
		change map[string]func(*mailbox.Card)
		want   status // "": nothing is found
		part   string
	}{
		{"the same", map[string]func(*mailbox.Card){"agent_a": asIs, "agent_b": asIs}, statusOK, "the same at agent_b"},
		{"another", map[string]func(*mailbox.Card){"agent_b": another}, statusFail, "agent_b has another RELAY_SECRET (fingerprint 01234567"},
		{"none", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) { c.Sidecar.Secret = "" }}, statusFail,
			"agent_b has no RELAY_SECRET"},
		{"offline", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) { another(c); c.Status = mailbox.Offline }},
			statusWarn, "agent_b, which is offline"},
		{"another queue", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) {
			another(c)
			c.Sidecar.Backend, c.Sidecar.RelayChannel = "redis", "other"
		}}, statusWarn, "refuse each other's mail"},
		{"own, not restarted", map[string]func(*mailbox.Card){"agent_a": another}, statusWarn, "restart it"},
		{"an old version", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) { c.Sidecar = nil }}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registers(t, data, tt.change)
			code, found := checked(t)
			if tt.want == "" && found["secrets"] != nil {
				t.Errorf("got %+v", found["secrets"])
			} else if tt.want != "" {
				wants(t, found, "secrets", tt.want, tt.part)
			}
			if (code == 1) != (tt.want == statusFail) {
				t.Errorf("status %d", code)
			}
		})
	}
	t.Setenv("RELAY_SECRET", "")
	t.Setenv("MAILBOX", "off")
	registers(t, data, map[string]func(*mailbox.Card){"agent_b": another})
	_, found := checked(t)
	wants(t, found, "secrets", statusFail, "there is none here")
}

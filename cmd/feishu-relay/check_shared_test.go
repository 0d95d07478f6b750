package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/selftest"
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
		want   selftest.Status // "": nothing is found
		part   string
	}{
		{"the same", map[string]func(*mailbox.Card){"agent_a": asIs, "agent_b": asIs}, selftest.OK, "the same at agent_b"},
		{"another", map[string]func(*mailbox.Card){"agent_b": another}, selftest.Fail, "agent_b has another RELAY_SECRET (fingerprint 01234567"},
		{"none", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) { c.Sidecar.Secret = "" }}, selftest.Fail,
			"agent_b has no RELAY_SECRET"},
		{"offline", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) { another(c); c.Status = mailbox.Offline }}, "", ""},
		{"another queue", map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) {
			another(c)
			c.Sidecar.Backend, c.Sidecar.RelayChannel = "redis", "other"
		}}, selftest.Warn, "refuse each other's mail"},
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
			if (code == 1) != (tt.want == selftest.Fail) {
				t.Errorf("status %d", code)
			}
		})
	}
	t.Setenv("RELAY_SECRET", "")
	t.Setenv("MAILBOX", "off")
	registers(t, data, map[string]func(*mailbox.Card){"agent_b": another})
	_, found := checked(t)
	wants(t, found, "secrets", selftest.Fail, "this sidecar has none")
	renamed := func(c *mailbox.Card) { c.BotName, c.Status = "BotA", mailbox.Offline }
	registers(t, data, map[string]func(*mailbox.Card){"agent_a": renamed, "agent_b": renamed})
	_, found = checked(t)
	wants(t, found, "peers", selftest.Warn, "agent_b, which is offline, has the same bot name")
}

func TestCheckPeerSettings(t *testing.T) {
	data := configured(t)
	write(t, filepath.Join(data, "relay", "x"), "")
	write(t, filepath.Join(data, "elsewhere", "x"), "")
	set := func(change func(*mailbox.Settings)) func(*mailbox.Card) {
		return func(c *mailbox.Card) { change(c.Sidecar) }
	}
	for _, tt := range []struct {
		name   string
		change func(*mailbox.Card)
		want   selftest.Status
		part   string
	}{
		{"alike", asIs, selftest.OK, "the same at the 1"},
		{"the same folder by another path", set(func(s *mailbox.Settings) { s.RelayDir.Path = "/data/relay" }), selftest.OK, "the same"},
		{"another folder by the same path", set(func(s *mailbox.Settings) { s.RelayDir.ID = "01234567" }), selftest.Warn, "RELAY_DIR is"},
		{"another transcript folder", set(func(s *mailbox.Settings) { s.Transcripts = mailbox.Folder{Path: "/t", ID: "01234567"} }),
			selftest.Warn, "/t (01234567) at agent_b"},
		{"another backend", set(func(s *mailbox.Settings) { s.Backend, s.RelayDir = "redis", mailbox.Folder{} }), selftest.Warn,
			"RELAY_BACKEND is file here, and redis at agent_b"},
		{"another version", set(func(s *mailbox.Settings) { s.Version = "v0.0.1" }), selftest.Warn, "v0.0.1 at agent_b"},
		{"another limit", set(func(s *mailbox.Settings) { s.MaxDepth = 9 }), selftest.Warn,
			"MAX_BOT_REPLY_DEPTH is 3 here, and 9 at agent_b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registers(t, data, map[string]func(*mailbox.Card){"agent_b": tt.change})
			code, found := checked(t)
			wants(t, found, "peer settings", tt.want, tt.part)
			if code != 0 || len(found["peer settings"]) != 1 {
				t.Errorf("status %d, %+v", code, found["peer settings"])
			}
		})
	}
}

// With --quiet only what is not fine is printed: nothing where all is.
func TestCheckQuiet(t *testing.T) {
	data := configured(t)
	t.Setenv("MEMBERSHIP_CHECK", "off")
	_, loud, _ := program(t, "check")
	code, quiet, _ := program(t, "check", "--quiet")
	if want := "? peers: no other agent has been seen yet"; code != 0 || strings.Contains(quiet, "✓") ||
		!strings.Contains(quiet, want) || !strings.Contains(loud, want) {
		t.Errorf("status %d, %s", code, quiet)
	}
	write(t, filepath.Join(data, "groups.json"), "{")
	code, quiet, _ = program(t, "check", "--quiet")
	if code != 1 || !strings.Contains(quiet, "✗ groups file") {
		t.Errorf("status %d, %s", code, quiet)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
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
	wants(t, found, "secrets", statusFail, "this sidecar has none")
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
		want   status
		part   string
	}{
		{"alike", asIs, statusOK, "the same at agent_b"},
		{"the same folder by another path", set(func(s *mailbox.Settings) { s.RelayDir.Path = "/data/relay" }), statusOK, "the same"},
		{"another folder by the same path", set(func(s *mailbox.Settings) { s.RelayDir.ID = "01234567" }), statusWarn, "RELAY_DIR is"},
		{"another transcript folder", set(func(s *mailbox.Settings) { s.Transcripts = mailbox.Folder{Path: "/t", ID: "01234567"} }),
			statusWarn, "another folder, /t at agent_b"},
		{"another backend", set(func(s *mailbox.Settings) { s.Backend, s.RelayDir = "redis", mailbox.Folder{} }), statusWarn,
			"RELAY_BACKEND is file here, and redis at agent_b"},
		{"another version", set(func(s *mailbox.Settings) { s.Version = "v0.0.1" }), statusWarn, "v0.0.1 at agent_b"},
		{"another limit", set(func(s *mailbox.Settings) { s.MaxDepth = 9 }), statusWarn,
			"MAX_BOT_REPLY_DEPTH is 3 here, and 9 at agent_b"},
		{"an old version", func(c *mailbox.Card) { c.Sidecar, c.Protocol = nil, "1.1" }, statusUnknown, "agent_b"},
		{"offline", func(c *mailbox.Card) { c.Sidecar.MaxDepth, c.Status = 9, mailbox.Offline }, statusUnknown, "no other agent is online"},
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
	registers(t, data, map[string]func(*mailbox.Card){"agent_a": func(c *mailbox.Card) { c.Sidecar.MaxDepth = 9 }})
	_, found := checked(t)
	wants(t, found, "peer settings", statusWarn, "the running sidecar of agent_a has another MAX_BOT_REPLY_DEPTH")

	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	registers(t, data, map[string]func(*mailbox.Card){"agent_b": func(c *mailbox.Card) { c.Sidecar.RelayChannel = "other" }})
	cfg, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	s := newSubject(t.Context(), &cfg)
	s.cards = func() ([]mailbox.Card, []finding) { return readRegistry(&cfg) } // in place of those in Redis
	found = map[string][]finding{"peer settings": checkPeerSettings(t.Context(), s)}
	wants(t, found, "peer settings", statusWarn, "RELAY_CHANNEL is nanobot:feishu:outbound here, and other at agent_b")
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
	var b bytes.Buffer
	out := newFindings(&b, false, false)
	out.quiet = true
	out.add("Files", well("fine", "")...)
	if err := out.end(); err != nil || b.Len() > 0 {
		t.Errorf("%v, %q", err, b.String())
	}
}

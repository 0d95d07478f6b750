package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCheckPeers(t *testing.T) {
	data := configured(t)
	write(t, filepath.Join(data, "relay", "offsets", "agent_a.lock"), "")
	_, found := checked(t)
	wants(t, found, "peers", statusUnknown, "no other agent has been seen yet")

	offsets := filepath.Join(data, "relay", "offsets")
	write(t, filepath.Join(offsets, "%E5%B0%8FB.lock"), "")
	write(t, filepath.Join(offsets, "%E5%B0%8FB.outbound.json"), "")
	for name, ago := range map[string]time.Duration{"%E5%B0%8FB.lock": 3 * time.Hour, "%E5%B0%8FB.outbound.json": 2 * time.Hour} {
		at := time.Now().Add(-ago)
		if err := os.Chtimes(filepath.Join(offsets, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	heard := time.Now().Add(-90 * time.Minute).UTC().Format(time.RFC3339)
	write(t, filepath.Join(data, "mailboxes", "_registry.json"), `{"agent_a":{"agent_id":"agent_a"},"agent_c":{"agent_id":"agent_c","last_heartbeat":"`+heard+`"}}`)
	_, found = checked(t)
	wants(t, found, "peers", statusOK, "2 other agents were seen: agent_c (1 hour ago), 小B (2 hours ago)")
	wants(t, found, "peer settings", statusUnknown, "no other agent is online")

	t.Setenv("BOT_NAME", "小明")
	write(t, filepath.Join(data, "groups.json"), `{"agents":{"agent_a":{"name":"小明"},"agent_b":{"name":"小B","aliases":["小明"]}}}`)
	_, found = checked(t)
	wants(t, found, "peers", statusWarn, "agent_b is called 小明 as well")
	write(t, filepath.Join(data, "groups.json"), `[{"name":"小明"}]`) // a flat list knows an agent by its display name
	_, found = checked(t)
	for _, f := range found["peers"] {
		if f.Status != statusOK {
			t.Errorf("got %+v", f)
		}
	}
}

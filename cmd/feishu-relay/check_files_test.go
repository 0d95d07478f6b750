package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/selftest"
)

func mkdir(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil { // past the umask
		t.Fatal(err)
	}
}

func TestCheckGroups(t *testing.T) {
	const agents = `"agents":{"agent_a":{"name":"BotA"},"agent_b":{"name":"BotB","feishu_open_id":"ou_b"}}`
	tests := []struct {
		name, text string
		env        map[string]string
		status     selftest.Status
		says       string
	}{
		{"no member", `{` + agents + `,"groups":{"oc_y":{"members":["agent_b"]}}}`, nil, selftest.Warn, "in none of the groups"},
		{"no groups", `{` + agents + `}`, nil, selftest.Warn, "hears every chat"},
		{"no groups, and none wanted", `{` + agents + `}`, map[string]string{"MEMBERSHIP_CHECK": "off"}, selftest.OK, "2 agents"},
		{"not listed", `{` + agents + `}`, map[string]string{"AGENT_NAME": "agent_c"}, selftest.Warn, "not among the agents"},
		{"listed by the bot's name", `[{"name":"小C","feishu_open_id":"ou_c"}]`, map[string]string{"AGENT_NAME": "agent_c", "BOT_NAME": "小C"}, selftest.OK, "1 agents"},
		{"too long", strings.Repeat(" ", 1<<20+1), nil, selftest.Fail, "at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(configured(t), "groups.json")
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			write(t, path, tt.text)
			_, found := checked(t)
			wants(t, found, "groups file", tt.status, tt.says)
			if listedHere := tt.status == selftest.OK && tt.says != "not among the agents"; listedHere {
				for _, f := range found["groups file"] {
					if strings.Contains(f.Detail, "not among") {
						t.Errorf("got %+v", f)
					}
				}
			}
		})
	}
}

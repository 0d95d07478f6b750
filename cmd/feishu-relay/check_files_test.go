package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/selftest"
)

func TestCheckFolders(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		status  selftest.Status
		says    string
	}{
		{"private", func(t *testing.T, dir string) { mkdir(t, dir, 0o700) }, selftest.OK, "locks work"},
		{"of a group", func(t *testing.T, dir string) { mkdir(t, dir, 0o770) }, selftest.OK, "locks work"},
		{"open to all", func(t *testing.T, dir string) { mkdir(t, dir, 0o755) }, selftest.Warn, "chmod o-rwx"},
		{"a file", func(t *testing.T, dir string) { write(t, dir, "") }, selftest.Fail, "is a file"},
		{"below a file", func(t *testing.T, dir string) { write(t, filepath.Dir(dir), "") }, selftest.Fail, "set RELAY_DIR"},
		{"missing", func(*testing.T, string) {}, selftest.OK, "can be made"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(configured(t), "deep", "relay")
			t.Setenv("RELAY_DIR", dir)
			tt.prepare(t, dir)
			_, found := checked(t)
			wants(t, found, "relay folder", tt.status, tt.says)
			if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
				t.Errorf("the check left %v", left)
			}
		})
	}
}

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
		{"member", `{` + agents + `,"groups":{"oc_x":{"members":["agent_a"]},"oc_y":{"members":["agent_b"]}}}`, nil, selftest.OK, "2 agents, 2 groups, agent_a is in 1"},
		{"no member", `{` + agents + `,"groups":{"oc_y":{"members":["agent_b"]}}}`, nil, selftest.Warn, "in none of the groups"},
		{"no groups", `{` + agents + `}`, nil, selftest.Warn, "hears every chat"},
		{"no groups, and none wanted", `{` + agents + `}`, map[string]string{"MEMBERSHIP_CHECK": "off"}, selftest.OK, "2 agents"},
		{"not listed", `{` + agents + `}`, map[string]string{"AGENT_NAME": "agent_c"}, selftest.Warn, "not among the agents"},
		{"listed by the bot's name", `[{"name":"小C","feishu_open_id":"ou_c"}]`, map[string]string{"AGENT_NAME": "agent_c", "BOT_NAME": "小C"}, selftest.OK, "1 agents"},
		{"broken", `{"agents":`, nil, selftest.Fail, "line 1"},
		{"two mistakes", `{"agents":{"a":{"name":1}},"groups":{"oc_x":{"group_policy":"loud"}}}`, nil, selftest.Fail, "group_policy"},
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

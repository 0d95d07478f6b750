package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/safefile"
)

func TestCheckFolders(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		status  status
		says    string
	}{
		{"private", func(t *testing.T, dir string) { mkdir(t, dir, 0o700) }, statusOK, "locks work"},
		{"of a group", func(t *testing.T, dir string) { mkdir(t, dir, 0o770) }, statusOK, "locks work"},
		{"open to all", func(t *testing.T, dir string) { mkdir(t, dir, 0o755) }, statusWarn, "chmod o-rwx"},
		{"a file", func(t *testing.T, dir string) { write(t, dir, "") }, statusFail, "is a file"},
		{"below a file", func(t *testing.T, dir string) { write(t, filepath.Dir(dir), "") }, statusFail, "set RELAY_DIR"},
		{"missing", func(*testing.T, string) {}, statusOK, "can be made"},
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

func TestCheckSeesTheRunningAgent(t *testing.T) {
	data := configured(t)
	lock := filepath.Join(data, "relay", "offsets", "agent_a.lock")
	write(t, lock, "")
	_, found := checked(t)
	wants(t, found, "this agent", statusOK, "no sidecar of agent_a is running")
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := safefile.TryLock(f); !ok || err != nil {
		t.Fatal("the check kept the lock:", err)
	}
	code, found := checked(t)
	wants(t, found, "this agent", statusOK, "a sidecar of agent_a is running")
	if code != 0 {
		t.Errorf("beside a running sidecar: status %d, want 0", code)
	}
}

func TestCheckGroups(t *testing.T) {
	const agents = `"agents":{"agent_a":{"name":"BotA"},"agent_b":{"name":"BotB","feishu_open_id":"ou_b"}}`
	tests := []struct {
		name, text string
		env        map[string]string
		status     status
		says       string
	}{
		{"member", `{` + agents + `,"groups":{"oc_x":{"members":["agent_a"]},"oc_y":{"members":["agent_b"]}}}`, nil, statusOK, "2 agents, 2 groups, agent_a is in 1"},
		{"no member", `{` + agents + `,"groups":{"oc_y":{"members":["agent_b"]}}}`, nil, statusWarn, "in none of the groups"},
		{"no groups", `{` + agents + `}`, nil, statusWarn, "hears every chat"},
		{"no groups, and none wanted", `{` + agents + `}`, map[string]string{"MEMBERSHIP_CHECK": "off"}, statusOK, "2 agents"},
		{"not listed", `{` + agents + `}`, map[string]string{"AGENT_NAME": "agent_c"}, statusWarn, "not among the agents"},
		{"listed by the bot's name", `[{"name":"小C","feishu_open_id":"ou_c"}]`, map[string]string{"AGENT_NAME": "agent_c", "BOT_NAME": "小C"}, statusOK, "1 agents"},
		{"broken", `{"agents":`, nil, statusFail, "line 1"},
		{"two mistakes", `{"agents":{"a":{"name":1}},"groups":{"oc_x":{"group_policy":"loud"}}}`, nil, statusFail, "group_policy"},
		{"too long", strings.Repeat(" ", 1<<20+1), nil, statusFail, "at most"},
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
			if listedHere := tt.status == statusOK && tt.says != "not among the agents"; listedHere {
				for _, f := range found["groups file"] {
					if strings.Contains(f.Detail.en, "not among") {
						t.Errorf("got %+v", f)
					}
				}
			}
		})
	}
}

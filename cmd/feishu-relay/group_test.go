package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The commands of a group, by nothing but the program, at the one sidecar; the other one has
// what they change.
func TestGroupCommandOfRealSidecars(t *testing.T) {
	clearEnvironment(t, nil)
	data := t.TempDir()
	groups := filepath.Join(data, "groups.json")
	err := os.WriteFile(groups, []byte(`{"groups":{
		"oc_dev":{"name":"研发群","members":["agent_a","agent_b"]},"oc_fixed":{"members":["agent_a"],"locked":true}}}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GROUPS_FILE", groups)
	t.Setenv("API_TOKEN", "0123456789abcdef")
	a := startSidecar(t, "agent_a", data)
	t.Setenv("BOT_NAME", "Code_Bot")
	b := startSidecar(t, "agent_b", data)
	call := func(addr, line string) (int, string, string) {
		return program(t, append([]string{"group", "--addr", addr}, strings.Fields(line)...)...)
	}
	until := func(addr, line, want string) {
		t.Helper()
		re, late := regexp.MustCompile(want), time.Now().Add(30*time.Second)
		for {
			code, stdout, stderr := call(addr, line)
			if code == 0 && re.MatchString(stdout) {
				return
			}
			if time.Now().After(late) {
				t.Fatalf("%q: status %d, no %q in\n%s%s", line, code, want, stdout, stderr)
			}
		}
	}
	until(a, "", `(?m)^研发群 +oc_dev +2/2 +all +0/3 +- +-$`)
	until(a, "oc_d", `(?m)^研发群 +oc_dev +2/2 +all +0/3 +- +-\nOnline \(2\): agent_a, Code_Bot\n`)
	t.Setenv("LC_ALL", "zh_CN.UTF-8")
	until(a, "oc_d", `在线.*agent_a`)
	t.Setenv("LC_ALL", "en_US.UTF-8")
	for _, tt := range []struct {
		line   string
		code   int
		want   string // of what is printed
		status string // at the other sidecar, then
	}{
		{"oc_dev pause 90m", 0, "paused", "paused"},
		{"oc_dev resume", 0, "judge on\n$", ""},
		{"oc_dev mute Code_Bot", 0, `Muted \(1\): Code_Bot\n`, `Muted \(1\): Code_Bot`},
		{"oc_dev unmute agent_b", 0, "judge on\n$", ""},
		{"oc_dev mute agent_a agent_b 2h", 0, `Muted \(2\): agent_a, Code_Bot\n`, `Muted \(2\)`},
		{"oc_dev limit 2", 0, "limit 2", "limit 2, threshold 1"},
		{"oc_dev threshold 0", 0, "threshold 0", "threshold 0, judge on"},
		{"oc_dev judge off", 0, "judge off", "judge off"},
		{"oc_dev budget 100", 0, "Budget: 100", "Budget: 100 bots"},
		{"oc_dev budget 0", 0, "judge off", ""},
		{"oc_dev answer code_bot", 0, "default Code_Bot", "default Code_Bot"},
		{"oc_dev answer one", 0, "2/2 +one", ""},
		{"oc_dev pause", 0, "paused", ""},
		{"oc_dev stop", 0, "^Stopped", ""},
		{"oc_dev continue agent_b", 1, "paused. Resume them first", ""},
		{"oc_dev resume", 0, "Online", ""},
		{"oc_dev continue agent_b", 0, "^The bots continue", ""},
		{"oc_dev forget", 0, "are removed(?s:.*)2/2 +all", "2/2 +all"},
		{"研发群", 0, `Online \(2\)`, ""},
		{"研发", 1, `there is no group "研发"`, ""},
		{"oc_dev --json", 0, `^\{"channel":"feishu","chat_id":"oc_dev","name":"研发群",`, ""},
		{"--json", 0, `^\{"groups":\[\{"channel"`, ""},
		{"--help", 0, "feishu-relay \\[OPTIONS\\] group", ""},
		{"oc_dev pasue", 2, "did you mean pause", ""},
		{"oc_dev limit many", 1, "limit: “limit” takes a whole number from 1 to 10", ""},
		{"oc_dev limit", 1, "limit: “limit” takes a whole number from 1 to 10", ""},
		{"oc_dev budget none", 1, "budget: “budget” takes a whole number from 0 to", ""},
		{"oc_dev mute agent_c", 2, "which bot\\? Here are agent_a, Code_Bot", ""},
		{"oc_dev status now", 2, `status: unexpected "now"`, ""},
		{"oc_dev limit agent_a", 1, "takes a whole number from 1 to 10", ""},
		{"oc_dev judge maybe", 1, "judge: ", ""},
		{"oc_dev pause 8d", 1, "paused", ""},
		{"oc_dev limit 11", 1, "limit: “limit” takes a whole number from 1 to 10", ""},
		{"oc_dev threshold 4", 1, "takes a whole number from 0 to 3", ""},
		{"oc_fixed pause", 1, "locked", ""},
		{"oc_", 1, `names several groups: 研发群 \(oc_dev\), oc_fixed`, ""},
		{"oc_none", 1, `there is no group "oc_none"; known: 研发群 \(oc_dev\), oc_fixed`, ""},
		{"--colour", 2, "unknown flag", ""},
	} {
		code, stdout, stderr := call(a, tt.line)
		if code != tt.code || !regexp.MustCompile(tt.want).MatchString(stdout+stderr) || code == 0 != (stderr == "") {
			t.Errorf("%q: status %d, got\n%s%s\nwant %d, %q", tt.line, code, stdout, stderr, tt.code, tt.want)
		}
		if tt.status != "" {
			until(b, "oc_dev", tt.status)
		}
	}
	t.Setenv("API_TOKEN", "wrong")
	if code, _, stderr := call(a, ""); code != 1 || !strings.Contains(stderr, "API_TOKEN") {
		t.Errorf("with a wrong token: status %d, %s", code, stderr)
	}
	if code, _, stderr := call("127.0.0.1:1", ""); code != 1 || !strings.Contains(stderr, "no sidecar answers") {
		t.Errorf("without a sidecar: status %d, %s", code, stderr)
	}
}

func serveHTTP(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

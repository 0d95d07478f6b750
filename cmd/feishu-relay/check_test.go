package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
)

// configured gives agent_a a folder of its own and returns it.
func configured(t *testing.T) (data string) {
	t.Helper()
	clearEnvironment(t, nil)
	data = filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENT_NAME", "agent_a")
	t.Setenv("DATA_DIR", data)
	t.Setenv("LISTEN_ADDR", "127.0.0.1:0")
	return data
}

// checked runs check --json and returns its findings by name.
func checked(t *testing.T) (code int, found map[string][]selftest.Finding) {
	t.Helper()
	code, stdout, stderr := program(t, "check", "--json")
	var list []selftest.Finding
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || stderr != "" {
		t.Fatalf("status %d, %v in %q, stderr %q", code, err, stdout, stderr)
	}
	found, fails := map[string][]selftest.Finding{}, 0
	for _, f := range list {
		found[f.Name] = append(found[f.Name], f)
		if (f.Status == selftest.OK) != (f.Mend == "") {
			t.Errorf("%s is %s and its mend is %q", f.Name, f.Status, f.Mend)
		}
		if f.Status == selftest.Fail {
			fails++
		}
	}
	if (fails > 0) != (code == 1) || code > 1 {
		t.Errorf("status %d with %d failures", code, fails)
	}
	return code, found
}

// wants looks for a finding with the status and a part of its detail or mend.
func wants(t *testing.T, found map[string][]selftest.Finding, name string, s selftest.Status, part string) {
	t.Helper()
	for _, f := range found[name] {
		if f.Status == s && strings.Contains(f.Detail+"\n"+f.Mend, part) {
			return
		}
	}
	t.Errorf("%s: want %s with %q, got %+v", name, s, part, found[name])
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheckOfAFreshInstallation(t *testing.T) {
	data := configured(t)
	code, stdout, _ := program(t, "check")
	golden(t, "check/fresh.txt", steady(stdout, data, "DATA")+"exit status "+strconv.Itoa(code)+"\n")
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("the check left %v (%v)", left, err)
	}
}

func TestCheckUsage(t *testing.T) {
	configured(t)
	if code, stdout, stderr := program(t, "check", "--help"); code != 0 || !strings.Contains(stdout, "feishu-relay [OPTIONS] check [check-OPTIONS]") || stderr != "" {
		t.Errorf("--help: status %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, stdout, stderr := program(t, "check", "all"); code != 2 || stdout != "" || !strings.Contains(stderr, "unexpected argument") {
		t.Errorf("an argument: status %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := program(t, "check", "--only", "Bot,feishu"); code == 0 || !strings.Contains(stderr, `no area "feishu"`) {
		t.Errorf("an unknown area: status %d, stderr %q", code, stderr)
	}
}

func TestCheckEndsWhenInterrupted(t *testing.T) {
	configured(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	if code := run(ctx, []string{"check"}, &out, &errOut); code != 1 || strings.Contains(out.String(), "no problems found") {
		t.Errorf("status %d, %q", code, out.String())
	}
}

// What stands in a file or comes from a server can be hostile, too.
func TestCheckNeutralises(t *testing.T) {
	var out bytes.Buffer
	newFindings(&out, false, words.Words{}).show(selftest.Finding{Name: "n\x1b", Status: selftest.Fail, Detail: "d\x9b", Mend: "m\n✓ forged"})
	if want := "✗ n␛: d\ufffd\n    m␊✓ forged\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestCheckShowsNoSecret(t *testing.T) {
	configured(t)
	secrets := map[string]string{
		"AGENT_NAME": "agent_a",
		"API_TOKEN":  "hidden-token", "RELAY_SECRET": "hidden-secret", "OPENAI_API_KEY": "hidden-key",
		"REDIS_URL": "redis://hidden-user:hidden-word@127.0.0.1:1/0", "INJECT_URL": "http://hidden-a:hidden-b@127.0.0.1:1/hidden-c",
		"OPENAI_BASE_URL": "http://hidden-d:hidden-e@127.0.0.1:1/v1?hidden-f",
	}
	for name, value := range secrets {
		t.Setenv(name, value)
	}
	// Then each with a mistake in it.
	broken := []map[string]string{nil, {"REDIS_URL": "hidden:1"}, {"REDIS_URL": "redis://u:hidden#@h"}, {"INJECT_URL": "hidden"}, {"OPENAI_BASE_URL": "ftp://hidden"}, {"AGENT_NAME": ""}}
	for _, more := range broken {
		for name, value := range more {
			t.Setenv(name, value)
		}
		for _, args := range [][]string{{"check"}, {"check", "--json"}} {
			_, stdout, stderr := program(t, args...)
			if strings.Contains(stdout+stderr, "hidden") {
				t.Errorf("%v with %v shows a secret:\n%s%s", args, more, stdout, stderr)
			}
		}
		for name := range more {
			t.Setenv(name, secrets[name])
		}
	}
}

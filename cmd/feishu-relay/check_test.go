package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/policy"
	"feishu-relay/sidecar"
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
func checked(t *testing.T) (code int, found map[string][]finding) {
	t.Helper()
	code, stdout, stderr := program(t, "check", "--json")
	var list []shownFinding
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || stderr != "" {
		t.Fatalf("status %d, %v in %q, stderr %q", code, err, stdout, stderr)
	}
	found, fails := map[string][]finding{}, 0
	for _, f := range list {
		found[f.Name] = append(found[f.Name], finding{f.Name, f.Status, alike(f.Detail), alike(f.Mend)})
		if (f.Status == statusOK) != (f.Mend == "") {
			t.Errorf("%s is %s and its mend is %q", f.Name, f.Status, f.Mend)
		}
		if f.Status == statusFail {
			fails++
		}
	}
	if (fails > 0) != (code == 1) || code > 1 {
		t.Errorf("status %d with %d failures", code, fails)
	}
	return code, found
}

// wants looks for a finding with the status and a part of its detail or mend.
func wants(t *testing.T, found map[string][]finding, name string, s status, part string) {
	t.Helper()
	for _, f := range found[name] {
		if f.Status == s && strings.Contains(f.Detail.en+"\n"+f.Mend.en, part) {
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
	want := []string{
		"Configuration",
		"✓ configuration: AGENT_NAME is agent_a, RELAY_BACKEND is file",
		"",
		"Files",
		"✓ data folder: this is user " + userName().en + ", home " + homeDir().en + "; DATA_DIR is " + data,
		"✓ relay folder: " + data + "/relay does not exist yet, and can be made",
		"✓ transcript folder: " + data + "/transcripts does not exist yet, and can be made",
		"✓ disk space: SPACE are left for " + data + "/relay",
		"! groups file: there is no " + data + "/groups.json: the bot hears every chat on the relay",
		`    list the groups with their members under "groups" in ` + data + "/groups.json, or set MEMBERSHIP_CHECK=off if that is meant",
		"",
		"Relay",
		"✓ file queue: nothing has been sent in " + data + "/relay yet",
		"✓ this agent: agent_a has not run in " + data + "/relay yet",
		"? peers: no other agent has been seen yet",
		"    start the others, and check again; all sidecars share one RELAY_DIR, or one REDIS_URL and RELAY_CHANNEL",
		"",
		"Mailbox",
		"✓ mailbox folder: " + data + "/mailboxes does not exist yet, and can be made",
		"",
		"Bot",
		"? bot: reads /v1/stream; whether it is connected cannot be seen, since no sidecar of this agent answers",
		"    start the sidecar and the bot, and check again",
		"",
		"Judge",
		"✓ judge: built-in rules (no OPENAI_API_KEY)",
		"",
		"Sidecar",
		"✓ local API: 127.0.0.1:0 is free",
		"",
		"works; 1 to know of, 2 not seen: peers, bot",
		"",
	}
	stdout = regexp.MustCompile(`space: \S+ [KMGT]iB`).ReplaceAllString(stdout, "space: SPACE")
	if diff := cmp.Diff(strings.Join(want, "\n"), stdout); diff != "" || code != 0 {
		t.Errorf("status %d (-want +got):\n%s", code, diff)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("the check left %v (%v)", left, err)
	}
}

func TestCheckNamesAllMistakes(t *testing.T) {
	configured(t)
	for name, value := range map[string]string{"AGENT_NAME": "", "LOG_LEVEL": "loud", "DEDUP_SIZE": "many", "CONNECTOR": "true",
		"RELAY_BACKEND": "redis"} {
		t.Setenv(name, value)
	}
	code, found := checked(t)
	if code != 1 {
		t.Errorf("status %d, want 1", code)
	}
	wants(t, found, "AGENT_NAME", statusFail, "required")
	wants(t, found, "LOG_LEVEL", statusFail, "debug, info, warn")
	wants(t, found, "DEDUP_SIZE", statusFail, "message ids that are remembered")
	wants(t, found, "FEISHU_APP_ID, FEISHU_APP_SECRET", statusFail, "")
	wants(t, found, "REDIS_URL", statusFail, "redis://127.0.0.1:6379/0")
	wants(t, found, "everything else", statusUnknown, "check again")
	if len(found) != 6 {
		t.Errorf("got %d findings, want 6: %v", len(found), found)
	}
}

func TestCheckUsage(t *testing.T) {
	configured(t)
	if code, stdout, stderr := program(t, "check", "--help"); code != 0 || !strings.Contains(stdout, "Usage: feishu-relay check [--json]") || stderr != "" {
		t.Errorf("--help: status %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := program(t, "check", "bots.yaml"); code != 2 || !strings.Contains(stderr, "up --try bots.yaml") {
		t.Errorf("a file of bots: status %d, %s", code, stderr)
	}
	if code, stdout, stderr := program(t, "check", "all"); code != 2 || stdout != "" || !strings.Contains(stderr, "unexpected argument") {
		t.Errorf("an argument: status %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// A try that hangs where nothing can end it costs its time and not the check.
func TestCheckLeavesAHangingTryBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		c := probe{name: "slow disk", limit: tryLimit, run: func(context.Context, *subject) []finding {
			<-over
			return nil
		}}
		got := c.try(t.Context(), &subject{})
		want := []finding{{"slow disk", statusFail, say("no result within 5s", "5s 内没有结果"),
			text{"look what its disk or its network is waiting for", "检查磁盘或网络为什么没有响应"}}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(text{})); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
}

// All together end in time, however long the judge may think.
func TestCheckEndsInTime(t *testing.T) {
	for _, c := range probes(&config{Config: sidecar.Config{Limits: policy.Limits{Timeout: 5 * time.Minute}}}) {
		if most := c.limit + c.limit/10; most >= 15*time.Second {
			t.Errorf("%s may take %s", c.name, most)
		}
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
	newFindings(&out, false, false).show(finding{"n\x1b", statusFail, alike("d\x9b"), alike("m\n✓ forged")})
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

// However slow what a probe needs is, all of them end within the 15 seconds that the
// usage names.
func TestCheckEndsInTimeBehindSlowProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		slow := func(context.Context, *subject) []finding {
			time.Sleep(tryLimit - 1)
			return nil
		}
		hangs := func(context.Context, *subject) []finding {
			<-over
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), longLimit)
		defer cancel()
		began := time.Now()
		results := start(ctx, []probe{
			{name: "a", limit: tryLimit, run: slow}, {name: "b", limit: tryLimit, run: slow, needs: []string{"a"}},
			{name: "c", limit: longLimit, run: hangs, needs: []string{"b"}},
			{name: "d", limit: tryLimit, run: slow, needs: []string{"c"}},
			{name: "e", limit: tryLimit, run: slow, needs: []string{"not in the table"}},
		}, &subject{})
		var got [][]finding
		for _, result := range results {
			got = append(got, <-result)
		}
		late := finding{"c", statusFail, say("no result within 12s", "12s 内没有结果"),
			text{"look what its disk or its network is waiting for", "检查磁盘或网络为什么没有响应"}}
		if diff := cmp.Diff([][]finding{nil, nil, {late}, nil, nil}, got, cmp.AllowUnexported(text{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if took := time.Since(began); took >= 15*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

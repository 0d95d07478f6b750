package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/sse"
	"feishu-relay/internal/test/redistest"
)

// host is a folder that the sidecars of a test share.
type redactHost struct {
	t    *testing.T
	data string
}

// lives runs sidecars for the time of live, which gets their addresses.
func (h *redactHost) lives(name string, agents []string, live func(h *redactHost, addr map[string]string)) {
	h.t.Helper()
	if !h.t.Run(name, func(t *testing.T) {
		addr := map[string]string{}
		for _, agent := range agents {
			addr[agent] = startSidecar(t, agent, h.data)
		}
		live(&redactHost{t, h.data}, addr)
	}) {
		h.t.FailNow()
	}
}

func (h *redactHost) post(addr, route string, body map[string]any) {
	h.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+route, "application/json", bytes.NewReader(data))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		h.t.Fatalf("%s: %s", data, resp.Status)
	}
}

// says is a bot's message.
func (h *redactHost) says(addr, id, text string) {
	h.t.Helper()
	h.post(addr, "/v1/outbound", map[string]any{"chat_id": "oc_x", "content": text, "message_id": id, "ts": time.Now().UnixMilli()})
}

// waits waits for what a sidecar answers to hold want: it looks at each of the sidecar's events.
func (h *redactHost) waits(addr, route, want string) {
	h.t.Helper()
	ctx, end := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/events", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer events.Body.Close()
	if strings.Contains(h.get("http://"+addr+route), want) {
		return
	}
	for _, err := range sse.Read(events.Body) {
		if strings.Contains(h.get("http://"+addr+route), want) {
			return
		}
		if err != nil {
			h.t.Fatalf("%v; no %q in %s", err, want, h.get("http://"+addr+route))
		}
	}
}

func (h *redactHost) get(url string) string {
	h.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err = body.ReadFrom(resp.Body); err != nil {
		h.t.Fatal(err)
	}
	return body.String()
}

// lines are all lines of all files, by file.
func (h *redactHost) lines() map[string][]string {
	h.t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(h.data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // a running sidecar has just replaced it
			return nil
		}
		all[strings.TrimPrefix(path, h.data)] = strings.SplitAfter(string(data), "\n")
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// redacted are the files that the command cleans.
var redacted = regexp.MustCompile(`^/transcripts/|^/relay/(outbound|inbound|side/side)\.`)

// having lists the redacted files that have a text.
func (h *redactHost) having(text string) (files []string) {
	h.t.Helper()
	for file, lines := range h.lines() {
		if !redacted.MatchString(file) {
			continue
		}
		if strings.Contains(strings.Join(lines, ""), text) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files
}

// redact runs the built command.
func (h *redactHost) redact(id string) string {
	h.t.Helper()
	p := exec.Command("feishu-relay", "transcript", "redact", "oc_x", id) // this test binary: see TestMain
	out, err := p.CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// redactEnvironment is a group of three bots on a host, and how its sidecars are configured.
func redactEnvironment(t *testing.T, set map[string]string) *redactHost {
	t.Helper()
	h := &redactHost{t, t.TempDir()}
	groups := filepath.Join(h.data, "groups.json")
	if err := os.WriteFile(groups, []byte(`{"groups":{"oc_x":{"members":["agent_a","agent_b","agent_c"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	clearEnvironment(t, map[string]string{"GROUPS_FILE": groups, "DATA_DIR": h.data, "MAX_BOT_REPLY_DEPTH": "3",
		"BOT_REPLY_LLM_THRESHOLD": "9", "GORACE": "atexit_sleep_ms=0"})
	for name, value := range set {
		t.Setenv(name, value)
	}
	return h
}

// The command takes a text out of the transcripts and queues of stopped and running sidecars, and changes
// nothing else; the sidecars go on as before, without it.
func TestRedactByCommand(t *testing.T) {
	const transcript = "/v1/transcripts/feishu/oc_x"
	for name, set := range map[string]map[string]string{
		"files": {"RELAY_SECRET": "0123456789abcdef0123456789abcdef"},
		"redis": {"RELAY_SECRET": "0123456789abcdef0123456789abcdef", "REDIS_URL": "start"},
	} {
		t.Run(name, func(t *testing.T) {
			if set["REDIS_URL"] != "" {
				set["REDIS_URL"] = redistest.Start(t).URL()
			}
			h := redactEnvironment(t, set)
			both := []string{"agent_a", "agent_b"}
			h.lives("said", both, func(h *redactHost, addr map[string]string) {
				a, b := addr["agent_a"], addr["agent_b"]
				h.post(a, "/v1/inbound", map[string]any{"chat_id": "oc_x", "content": "papaya please", "sender": "Tom", "message_id": "om_0",
					"ts": time.Now().UnixMilli()})
				h.says(a, "om_1", "hello")
				h.says(a, "om_2", "the kiwi is ripe")
				h.says(a, "om_3", "the mango stops")
				h.says(a, "om_4", "about kiwis, in reply to om_2")
				h.waits(b, transcript, "in reply to om_2")
			})
			before := h.lines()
			for id, word := range map[string]string{"om_0": "papaya", "om_2": "kiwi is", "om_3": "mango"} {
				if h.having(word) == nil {
					t.Fatalf("%s is in no file", word)
				}
				out := h.redact(id)
				if files := h.having(word); files != nil {
					t.Errorf("%s is in %q after\n%s", word, files, out)
				}
				if !strings.Contains(out, "transcript: 1 line\n") || strings.Contains(out, "bound.jsonl: ") == strings.Contains(out, "redis ") ||
					strings.Contains(out, "redis ") != (set["REDIS_URL"] != "") {
					t.Errorf("it printed\n%s", out)
				}
				if out := h.redact(id); !strings.HasPrefix(out, "No text of "+id+" was found") {
					t.Errorf("again it printed\n%s", out)
				}
			}
			if set["REDIS_URL"] == "" {
				h.unchanged(before, "papaya", "kiwi is", "mango")
			}
			h.lives("after", both, func(h *redactHost, addr map[string]string) {
				a, b := addr["agent_a"], addr["agent_b"]
				h.says(a, "om_6", "the last")
				h.waits(b, transcript, "the last")
				if all := h.get("http://"+b+transcript) + h.get("http://"+a+transcript); strings.Contains(all, "kiwi is") {
					t.Errorf("it is shown: %s", all)
				}
				// While they run.
				h.says(a, "om_7", "an orange")
				h.waits(b, transcript, "an orange")
				h.redact("om_7")
				for _, addr := range addr {
					h.waits(addr, transcript, `"content":"","sender":"agent_a","message_id":"om_7"`)
				}
				if files := h.having("orange"); files != nil {
					t.Errorf("it is in %q", files)
				}
				h.says(a, "om_8", "the end")
				h.waits(b, transcript, "the end")
			})
		})
	}
}

// unchanged fails where a line that has none of some words is not as it was.
func (h *redactHost) unchanged(before map[string][]string, words ...string) {
	h.t.Helper()
	after := h.lines()
	for _, file := range slices.Sorted(maps.Keys(before)) {
		if strings.Contains(file, "/side/side.") || strings.HasSuffix(file, ".lock") {
			continue // the command writes there
		}
		for i, line := range before[file] {
			if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
				if len(after[file][i]) != len(line) {
					h.t.Errorf("%s: line %d has another length", file, i+1)
				}
				continue
			}
			if len(after[file]) <= i || after[file][i] != line {
				h.t.Errorf("%s: line %d was changed: %s", file, i+1, line)
			}
		}
	}
}

// A place that cannot be cleaned is named, and the others are cleaned.
func TestRedactReports(t *testing.T) {
	h := redactEnvironment(t, map[string]string{"AGENT_NAME": "agent_a"})
	if code, _, stderr := program(t, "transcript", "redact", "oc_x", "om_1"); code != 1 || !strings.Contains(stderr, "RELAY_DIR") {
		t.Errorf("without a folder: status %d, %s", code, stderr)
	}
	relay := filepath.Join(h.data, "relay")
	line := `{"relay_msg_id":"om_1","channel":"feishu","chat_id":"oc_x","content":"the kiwi","sender_agent_name":"agent_a","ts":1}` + "\n"
	for name, content := range map[string]string{
		"outbound.jsonl":                      line + `{"relay_msg_id":"om_1","content":"the kiwi` + line[:20] + `om_2","content":"stays","chat_id":"oc_x"}` + "\n",
		"outbound.00000000000000000001.jsonl": line + line,
		"side/side.jsonl": `{"channel":"feishu","chat_id":"oc_x","agent":"agent_a","records":[{"id":"command/om_1","kind":"command",` +
			`"message_id":"om_1","of":"om_1","text":"/relay limit 5 the kiwi","ts":1}]}` + "\n",
	} {
		path := filepath.Join(relay, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unreadable := []string{filepath.Join(relay, "inbound.jsonl"), filepath.Join(relay, "side", "side.2.jsonl")} // also for root
	if err := errors.Join(os.Symlink("/nowhere", unreadable[0]), os.Symlink("/nowhere", unreadable[1])); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := program(t, "transcript", "redact", "oc_x", "om_1")
	if code != 1 || !strings.Contains(stderr, "inbound.jsonl: ") || !strings.Contains(stderr, "side/side.2.jsonl: ") ||
		!strings.Contains(stdout, "outbound.00000000000000000001.jsonl: 2 lines\n") {
		t.Errorf("status %d, %s\n%s", code, stdout, stderr)
	}
	if err := errors.Join(os.Remove(unreadable[0]), os.Remove(unreadable[1])); err != nil {
		t.Fatal(err)
	}
	if files := h.having("kiwi"); files != nil {
		t.Errorf("it is in %q after\n%s%s", files, stdout, stderr)
	}
	if files := h.having("om_2"); len(files) != 1 {
		t.Errorf("the other message is in %q", files)
	}
	code, stdout, stderr = program(t, "transcript", "redact", "oc_x", "om_1")
	if code != 0 || !strings.HasPrefix(stdout, "No text of om_1 was found in ") || stderr != "" {
		t.Errorf("again: status %d, %s%s", code, stdout, stderr)
	}
	t.Setenv("RELAY_MAX_AGE", "soon")
	if code, _, stderr := program(t, "transcript", "redact", "oc_x", "om_1"); code != 1 || !strings.Contains(stderr, "RELAY_MAX_AGE") {
		t.Errorf("with a mistake in a setting: status %d, %s", code, stderr)
	}
	t.Setenv("RELAY_MAX_AGE", "")
	t.Setenv("AGENT_NAME", "")
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	code, _, stderr = program(t, "transcript", "redact", "oc_x", "om_1")
	if code != 1 || !strings.Contains(stderr, "the sidecars are not told: ") || !strings.Contains(stderr, "redis outbound: ") {
		t.Errorf("without Redis: status %d, %s", code, stderr)
	}
	for _, args := range [][]string{{"oc_x"}, {"oc_x", ""}, {"oc_x", "om_1", "om_2"}, {"--bogus", "oc_x", "om_1"}} {
		if code, _, stderr := program(t, append([]string{"transcript", "redact"}, args...)...); code != 2 || stderr == "" {
			t.Errorf("%q: status %d, %q", args, code, stderr)
		}
	}
}

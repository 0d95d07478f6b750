//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/sidecar"
)

// steeredAPI is config of a sidecar without Feishu, in a folder whose groups file says who is where.
func (n *tenant) steeredAPI(agent, redis string) sidecar.Config {
	cfg := n.steered(agent)
	cfg.Gateway, cfg.RelaySecret = sidecar.GatewayConfig{}, "0123456789abcdef0123456789abcdef"
	if redis != "" {
		cfg.Backend, cfg.RedisURL, cfg.RelayChannel = "redis", sidecar.Secret(redis), "nanobot:feishu:outbound"
		cfg.RelayDir = filepath.Join(n.dir, agent, "relay")
		cfg.TranscriptDir = filepath.Join(n.dir, agent, "transcripts")
	}
	return cfg
}

const steeredGroups = `{"groups":{
	"oc_x":{"name":"R&D","members":["agent_a","agent_b"],"group_budget":50,"max_bot_reply_depth":4},
	"oc_fixed":{"members":["agent_a","agent_b"],"locked":true},
	"oc_other":{"members":["agent_c"]}}}`

// twoOverHTTP starts two sidecars without Feishu.
func twoOverHTTP(t *testing.T, redis string) (n *tenant, a, b *running) {
	t.Helper()
	n, _ = newTenant(t, feishusim.Options{})
	must(t, os.WriteFile(filepath.Join(n.dir, "groups.json"), []byte(steeredGroups), 0o600))
	a, b = n.start(n.steeredAPI("agent_a", redis)), n.start(n.steeredAPI("agent_b", redis))
	for _, s := range []*running{a, b} {
		n.until("both know each other", func() bool { return len(n.group(s, "oc_x").Bots) == 2 })
	}
	return n, a, b
}

// asks makes a request and checks the answer by docs/openapi.yaml.
func (n *tenant) asks(s *running, method, path, body string) (status int, answer []byte) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+s.Addr().String()+path, strings.NewReader(body))
	must(n.t, err)
	resp, err := http.DefaultClient.Do(req)
	must(n.t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	must(n.t, err)
	asDescribed(n.t, method, path, body, resp, answer)
	return resp.StatusCode, answer
}

// shownGroup is what the tests read of a group.
type shownGroup struct {
	Name, Version string
	Locked        bool
	Depth         int
	Settings      struct {
		Answer                   string
		DefaultBot               string `json:"default_bot"`
		Limit, Threshold, Budget int
		Judge                    bool
		Paused                   *struct{ Until *int64 }
		Muted                    map[string]struct{ Until *int64 }
	}
	Sources map[string]string
	Bots    []struct {
		Agent, Name string
		Online      bool
	}
	LastStop *struct {
		MessageID string `json:"message_id"`
		Reason    string
		Bots      []string
	} `json:"last_stop"`
}

// group reads a group; zero: it is not there.
func (n *tenant) group(s *running, chat string) (g shownGroup) {
	n.t.Helper()
	if status, body := n.asks(s, "GET", "/v1/groups/"+chat, ""); status == http.StatusOK {
		must(n.t, json.Unmarshal(body, &g))
	}
	return g
}

// changes makes a request that has to succeed, and waits until the other sidecar has the same.
func (n *tenant) changes(s, other *running, method, path, body string) (g shownGroup) {
	n.t.Helper()
	status, answer := n.asks(s, method, path, body)
	if status != http.StatusOK {
		n.t.Fatalf("%s %s %s: %d %s", method, path, body, status, answer)
	}
	must(n.t, json.Unmarshal(answer, &g))
	chat := strings.Split(path, "/")[3]
	n.until("the other sidecar has the change", func() bool { return n.group(other, chat).Version == g.Version })
	return g
}

func TestGroupsOverHTTP(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]func() string{
		"files": func() string { return "" },
		"redis": func() string { return redistest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) { groupsOverHTTP(t, redis()) })
	}
}

func groupsOverHTTP(t *testing.T, redis string) {
	n, a, b := twoOverHTTP(t, redis)
	before := n.group(a, "oc_x")
	if before.Name != "R&D" || before.Settings.Limit != 4 || before.Sources["limit"] != "file" || before.Sources["answer"] != "env" ||
		before.Settings.Paused != nil || before.Version == "" || before.Version != n.group(b, "oc_x").Version {
		t.Errorf("the group begins as %+v", before)
	}
	status, list := n.asks(a, "GET", "/v1/groups", "")
	var groups struct {
		Groups []struct {
			ChatID string `json:"chat_id"`
		}
	}
	must(t, json.Unmarshal(list, &groups))
	if status != 200 || len(groups.Groups) != 2 || groups.Groups[1].ChatID != "oc_x" {
		t.Errorf("the groups are %d %s", status, list)
	}

	g := n.changes(a, b, "PATCH", "/v1/groups/oc_x", fmt.Sprintf(`{"version":%q,"answer":"one","limit":5,"threshold":2,"judge":false,
		"budget":20,"paused":"30m","muted":{"agent_b":true}}`, before.Version))
	there := n.group(b, "oc_x")
	for _, g := range []shownGroup{g, there} {
		s := g.Settings
		if s.Answer != "one" || s.Limit != 5 || s.Threshold != 2 || s.Judge || s.Budget != 20 || s.Paused == nil || s.Paused.Until == nil ||
			len(s.Muted) != 1 || g.Sources["limit"] != "record" || g.Sources["muted"] != "record" || g.Sources["default_bot"] != "env" {
			t.Errorf("after the change the group is %+v", g)
		}
		if muted, ok := s.Muted["agent_b"]; !ok || muted.Until != nil {
			t.Errorf("agent_b is muted until %v", muted.Until)
		}
	}
	if *g.Settings.Paused.Until != *there.Settings.Paused.Until {
		t.Error("the pause ends at two times")
	}
	if until := time.UnixMilli(*g.Settings.Paused.Until); time.Until(until) > 30*time.Minute {
		t.Errorf("paused until %v", until)
	}
	for body, field := range map[string]string{`{"limit":11}`: "limit", `{"muted":{"agent_c":true}}`: "muted.agent_c", `{"version":5}`: "version",
		`{"limit":6,"budget":-1}`: "budget", ``: "", `{`: "", "\xff": ""} {
		status, answer := n.asks(b, "PATCH", "/v1/groups/oc_x", body)
		if status != 400 || !strings.Contains(string(answer), `"code":"invalid_request"`) ||
			field != "" && !strings.Contains(string(answer), `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, answer := n.asks(b, "PATCH", "/v1/groups/oc_x", `{"version":"`+before.Version+`","limit":6}`); status != 409 {
		t.Errorf("a change of an older version: %d %s", status, answer)
	}
	if now := n.group(b, "oc_x"); now.Version != g.Version {
		t.Error("a request that was refused has changed something")
	}
	for path, want := range map[string]int{
		"PATCH /v1/groups/oc_fixed": 403, "DELETE /v1/groups/oc_fixed/settings": 403, "POST /v1/groups/oc_fixed/stop": 403,
		"POST /v1/groups/oc_fixed/continue": 403, "GET /v1/groups/oc_fixed": 200,
		"GET /v1/groups/oc_other": 404, "PATCH /v1/groups/oc_other": 404, "DELETE /v1/groups/oc_none/settings": 404,
		"POST /v1/groups/oc_none/stop": 404, "GET /v1/groups/oc_x?channel=slack": 404, "GET /v1/groups/oc_%00": 400,
	} {
		method, path, _ := strings.Cut(path, " ")
		body := ""
		if method == "PATCH" {
			body = `{"limit":2}`
		}
		if status, answer := n.asks(a, method, path, body); status != want {
			t.Errorf("%s %s: %d %s, want %d", method, path, status, answer, want)
		}
	}
	if status, answer := n.asks(a, "PATCH", "/v1/groups/oc_x", strings.Repeat(" ", 4<<20)+`{"limit":2}`); status != 413 {
		t.Errorf("a body that is too large: %d %s", status, answer)
	}
	for body, want := range map[string]int{`{"bots":["agent_c"]}`: 400, `{"bots":"agent_b"}`: 400, `{`: 400} {
		if status, answer := n.asks(a, "POST", "/v1/groups/oc_x/continue", body); status != want {
			t.Errorf("continue %s: %d %s, want %d", body, status, answer, want)
		}
	}

	// The later of two changes at once holds, key by key.
	n.changes(b, a, "PATCH", "/v1/groups/oc_x", `{"paused":false,"muted":{"agent_b":false}}`)
	g = n.group(a, "oc_x")
	if g.Settings.Paused != nil || len(g.Settings.Muted) != 0 || g.Settings.Limit != 5 {
		t.Errorf("after the pause the group is %+v", g)
	}
	g = n.changes(b, a, "DELETE", "/v1/groups/oc_x/settings", "")
	if g.Settings.Limit != 4 || g.Settings.Budget != 50 || g.Sources["limit"] != "file" || g.Settings.Answer != "all" {
		t.Errorf("after DELETE the group is %+v", g)
	}
	stopped := n.changes(a, b, "POST", "/v1/groups/oc_x/stop", "")
	if goes := n.changes(b, a, "POST", "/v1/groups/oc_x/continue", `{"bots":["agent_a"]}`); goes.Version == stopped.Version {
		t.Error("continue has changed nothing")
	}
	n.noticesOf(a, "set", "set", "set", "stop", "continue")
	n.noticesOf(b, "set", "set", "set", "stop", "continue")

	// It survives a restart.
	g = n.changes(a, b, "PATCH", "/v1/groups/oc_x", `{"limit":2}`)
	a.stop()
	a = n.start(n.steeredAPI("agent_a", redis))
	if again := n.group(a, "oc_x"); again.Version != g.Version || again.Settings.Limit != 2 {
		t.Errorf("after a restart the group is %+v", again)
	}
}

// noticesOf waits for what the transcript has of notices in oc_x.
func (n *tenant) noticesOf(s *running, acts ...string) {
	n.t.Helper()
	var got []string
	n.until(fmt.Sprintf("the transcript has the notices %q", acts), func() bool {
		status, body := n.asks(s, "GET", "/v1/transcripts/feishu/oc_x", "")
		if status != 200 {
			n.t.Fatalf("%d %s", status, body)
		}
		var page struct {
			Entries []struct{ Role, Kind, Act, By string }
		}
		must(n.t, json.Unmarshal(body, &page))
		got = nil
		for _, e := range page.Entries {
			if e.Role == "notice" && e.Kind == "command" && e.By == "api" {
				got = append(got, e.Act)
			}
		}
		return len(got) >= len(acts)
	})
	if strings.Join(got, " ") != strings.Join(acts, " ") {
		n.t.Errorf("the notices are %q, want %q", got, acts)
	}
}

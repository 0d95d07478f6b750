//go:build unix

package sidecar_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"feishu-relay/group"
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

func (n *tenant) steeredGroup(s *running) (g group.Group) {
	n.t.Helper()
	body := n.get(s, "/v1/groups/"+n.chat)
	if err := json.Unmarshal([]byte(body), &g); err != nil {
		n.t.Fatalf("GET /v1/groups: %v: %s", err, body)
	}
	return g
}

// patch changes settings over the API.
func (n *tenant) patch(s *running, body string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodPatch, "http://"+s.Addr().String()+"/v1/groups/"+n.chat,
		strings.NewReader(body))
	must(n.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(n.t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		n.t.Fatalf("PATCH %s answered %d", body, resp.StatusCode)
	}
}

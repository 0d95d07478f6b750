//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/npmtest"
)

// Every route of a running sidecar, called through Prism, which answers in its place where a request or an answer is
// not as docs/openapi.yaml says. Streams, WebSockets and redirects do not pass through Prism.
func TestForeignOpenAPI(t *testing.T) {
	if os.Getenv("FOREIGN") == "" {
		t.Skip("make foreign runs it")
	}
	clearEnvironment(t, nil)
	feishu := feishusim.New(feishusim.Options{})
	t.Cleanup(func() { _ = feishu.Close() })
	base, err := feishu.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := feishu.Build(feishusim.Scenario{Apps: []feishusim.App{{Name: "Coder"}}, Users: []string{"Ann"},
		Groups: []feishusim.Group{{Name: "Lab", Members: []string{"Ann", "Coder"}}}}); err != nil {
		t.Fatal(err)
	}
	world := feishu.State()
	app, lab := world.Apps[0], world.Groups[0].ID
	data := t.TempDir()
	tester := startSidecar(t, "tester", data)
	t.Setenv("CONNECTOR", "true")
	t.Setenv("FEISHU_APP_ID", app.ID)
	t.Setenv("FEISHU_APP_SECRET", app.Secret)
	t.Setenv("FEISHU_BASE_URL", base)
	coder := startSidecar(t, "coder", data)
	waitUntil(t, "the connector is ready", func() bool {
		return strings.Contains(get(t, coder, "/v1/status"), `"connected":true`) && strings.Contains(get(t, coder, "/v1/transcripts"), `[`)
	})

	p := prism(npmtest.Prism(t, filepath.Join("..", ".."), "http://"+coder))
	called := map[string]bool{"GET /v1/stream": true, "GET /v1/events": true, "GET /v1/mailbox/ws": true,
		"POST /sign-in": true, "POST /sign-out": true}
	const group = "/v1/groups/{chat}"
	do := func(route, body string, want int, with ...string) map[string]any {
		t.Helper()
		method, path, _ := strings.Cut(route, " ")
		pattern, _, _ := strings.Cut(route, "?")
		called[pattern] = true
		return p.call(t, method, strings.NewReplacer(append(with, "{chat}", lab, "{channel}", "feishu", "{chat_id}", lab)...).Replace(path), body, want)
	}
	do("GET /v1", "", 200)
	do("GET /v1/status", "", 200)
	sent := do("POST /v1/send", `{"chat_id":"`+lab+`","content":"hello"}`, 200)
	message := sent["message_ids"].([]any)[0].(string)
	do("POST /v1/send", `{"chat_id":"oc_unknown","content":"hello"}`, 502)
	do("POST /v1/outbound", `{"chat_id":"`+lab+`","content":"hi","metadata":{"chat_type":"group"}}`, 202)
	do("POST /v1/inbound", `{"chat_id":"`+lab+`","content":"hi","sender":"Ann","message_id":"om_1","chat_type":"group"}`, 202)
	do("POST /v1/decide", `{"chat_id":"`+lab+`","content":"hi?","sender_agent_name":"tester"}`, 200)
	do("GET /v1/transcripts", "", 200)
	do("GET /v1/transcripts/{channel}/{chat_id}?limit=5", "", 200)
	do("GET /v1/messages/{message_id}/files/{key}", "", 404, "{message_id}", message, "{key}", "file_1")
	do("GET /v1/outcomes?chat_id={chat_id}", "", 200)
	do("GET /v1/groups", "", 200)
	do("GET "+group, "", 200)
	do("PATCH "+group, `{"limit":5}`, 200)
	do("POST "+group+"/stop", "", 200)
	do("POST "+group+"/continue", "{}", 200)
	do("DELETE "+group+"/settings", "", 200)
	do("GET /v1/deliveries", "", 200)
	do("POST /v1/deliveries/{relay_msg_id}", `{"state":"delivered"}`, 404, "{relay_msg_id}", "om_unknown")

	do("GET /v1/peers", "", 200)
	do("POST /v1/peers/{agent}/messages", `{"message":"hello"}`, 200, "{agent}", "tester")
	do("POST /v1/peers/{agent}/messages", `{"message":"hello"}`, 400, "{agent}", "coder")
	do("GET /v1/peers/self/goals", "", 200)
	do("POST /v1/peers/self/goals", `{"goal_id":"g1"}`, 201)
	do("DELETE /v1/peers/self/goals/{goal_id}", "", 200, "{goal_id}", "g1")
	do("GET /v1/mailbox/agents", "", 200)
	do("GET /v1/mailbox/agents/{agent}", "", 200, "{agent}", "tester")
	do("GET /v1/mailbox/agents/{agent}", "", 404, "{agent}", "ghost")
	do("POST /v1/mailbox/messages", `{"to":"tester","type":"question","content":{"parts":[{"type":"text","text":"which?"}]}}`, 202)
	given := do("POST /v1/mailbox/tasks", `{"to":"tester","text":"test it"}`, 202)
	do("GET /v1/mailbox/tasks", "", 200)
	do("GET /v1/mailbox/tasks/{id}", "", 200, "{id}", given["task_id"].(string))
	do("GET /v1/mailbox/schemas", "", 200)
	do("GET /v1/mailbox/schemas/{name}", "", 200, "{name}", "envelope")

	// What the tester sends.
	send := func(route, body string) map[string]any {
		t.Helper()
		status, answer, _ := exchange(t, "POST", "http://"+tester+route, body)
		if status != http.StatusAccepted {
			t.Fatalf("POST %s: %d %s", route, status, answer)
		}
		var v map[string]any
		if err := json.Unmarshal(answer, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	asked := send("/v1/mailbox/messages", `{"to":"coder","type":"question","text":"which?"}`)["id"].(string)
	refused := send("/v1/mailbox/messages", `{"to":"coder","type":"question","text":"what?"}`)["id"].(string)
	task := send("/v1/mailbox/tasks", `{"to":"coder","text":"write it"}`)["task_id"].(string)
	waitUntil(t, "the tester's mail is here", func() bool { return strings.Contains(get(t, coder, "/v1/mailbox/tasks"), task) })
	do("GET /v1/mailbox/inbox", "", 200)
	do("POST /v1/mailbox/messages/{id}/ack", "", 200, "{id}", asked)
	do("POST /v1/mailbox/messages/{id}/nack", `{"code":"AGENT_BUSY","message":"later"}`, 200, "{id}", refused)
	do("POST /v1/mailbox/tasks/{id}", `{"state":"completed","text":"done"}`, 200, "{id}", task)
	do("POST /v1/mailbox/tasks/{id}", `{"state":"completed","text":"done"}`, 404, "{id}", "task_unknown")
	do("POST /v1/mailbox/inbox/drain", "", 200)
	do("GET /v1/mailbox/dead-letters", "", 200)
	do("POST /v1/mailbox/dead-letters/{id}/replay", "", 404, "{id}", "msg_unknown")

	do("POST /mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},`+
		`"clientInfo":{"name":"test","version":"1"}}}`, 200)
	do("GET /ca.pem", "", 404)
	do("GET /metrics", "", 200)
	do("GET /healthz", "", 200)
	do("GET /readyz", "", 200)
	do("GET /", "", 200)
	do("GET /viewer/{file}", "", 200, "{file}", "app.js")
	for _, route := range regexp.MustCompile(`(?m)^(\w+) +(/\S*)$`).FindAllStringSubmatch(get(t, coder, "/v1"), -1) {
		if !called[route[1]+" "+route[2]] {
			t.Errorf("%s %s was not called", route[1], route[2])
		}
	}
}

// prism is the address of Prism in front of a sidecar.
type prism string

// call makes a request, and compares the status of the answer.
func (p prism) call(t *testing.T, method, path, body string, want int) (answer map[string]any) {
	t.Helper()
	status, data, kind := exchange(t, method, "http://"+string(p)+path, body)
	if strings.HasPrefix(kind, "application/problem+json") || status != want {
		t.Errorf("%s %s: %d, want %d: %.2000s", method, path, status, want, data)
	}
	_ = json.Unmarshal(data, &answer) // stays empty for what is not JSON
	return answer
}

// exchange makes a request.
func exchange(t *testing.T, method, url, body string) (status int, answer []byte, kind string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "*/*, application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer, resp.Header.Get("Content-Type")
}

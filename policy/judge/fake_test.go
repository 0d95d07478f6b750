package judge_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

const testKey = "sk-test-4f1c"

// asked is a request as the endpoint sees it.
type asked struct {
	Model               string
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	Temperature         *float64
	Messages            []struct{ Role, Content string }

	auth string
	req  *http.Request
}

// endpoint is an OpenAI-compatible one made of a function that is handed the
// number of the call, from 1. As an [http.RoundTripper] it needs no network, so
// that it can be used under a fake clock.
type endpoint struct {
	reply func(n int, a asked) (status int, body string)

	mu    sync.Mutex
	calls []asked // guarded by mu
}

func (e *endpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	var a asked
	if err := json.NewDecoder(req.Body).Decode(&a); err != nil {
		return nil, err
	}
	a.auth, a.req = req.Header.Get("Authorization"), req
	e.mu.Lock()
	e.calls = append(e.calls, a)
	n := len(e.calls)
	e.mu.Unlock()
	status, body := e.reply(n, a)
	if status == 0 {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	res, err := e.RoundTrip(req)
	if err != nil {
		return
	}
	w.WriteHeader(res.StatusCode)
	w.(http.Flusher).Flush() // without a Content-Length: the end must be read
	io.Copy(w, res.Body)
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls)
}

func (e *endpoint) last() asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[len(e.calls)-1]
}

// completion is the body of an answer.
func completion(text, finish string) string {
	b, err := json.Marshal(map[string]any{"choices": []any{map[string]any{
		"message": map[string]any{"role": "assistant", "content": text}, "finish_reason": finish}}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func answers(text string) *endpoint {
	return &endpoint{reply: func(int, asked) (int, string) { return 200, completion(text, "stop") }}
}

// refusal is an error's body.
func refusal(message string) string {
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error"}})
	return string(b)
}

// newLLM returns a judge that asks e without a network.
func newLLM(t testing.TB, e *endpoint, change ...func(*judge.Options)) *judge.LLM {
	t.Helper()
	o := judge.Options{APIKey: testKey, BaseURL: "http://endpoint.test/v1", HTTPClient: &http.Client{Transport: e}}
	for _, f := range change {
		f(&o)
	}
	l, err := judge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ask(text string) policy.Question {
	return policy.Question{
		AgentName: "agent_c", AgentRole: "writes code", BotName: "BotC",
		Transcript: []policy.Entry{{Role: policy.RoleUser, Sender: "Ann", SenderName: "Ann Lee", MessageID: "om_1", Content: "how far are we?"}},
		Message:    policy.Entry{Role: policy.RoleAssistant, Sender: "agent_b", SenderName: "BotB", MessageID: "om_2", Content: text},
	}
}

package mailapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailapi"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

func TestMailRequestsThatAreRefused(t *testing.T) {
	long := strings.Repeat("x", 201)
	tooMuch := strings.Repeat("x", 65_537)
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code, field, says        string
	}{
		{"a hostile agent", "POST", "/v1/peers/..%2Fx/messages", `{"message":"hi"}`, 400, "INVALID_MESSAGE", "agent", ""},
		{"a hostile agent's card", "GET", "/v1/mailbox/agents/..%2F..%2Fetc", "", 400, "INVALID_MESSAGE", "agent", ""},
		{"an unknown agent's card", "GET", "/v1/mailbox/agents/ghost", "", 404, "not_found", "", "lists them"},
		{"an invalid peer message", "POST", "/v1/peers/agent_b/messages", `{"message":7}`, 400, "INVALID_MESSAGE", "message", "want a string, got number"},
		{"a peer message in a list", "POST", "/v1/peers/agent_b/messages", `[]`, 400, "INVALID_MESSAGE", "", "not a JSON object"},
		{"an over-long goal", "POST", "/v1/peers/self/goals", `{"goal_id":"` + long + `"}`, 400, "INVALID_MESSAGE", "goal_id", "201 bytes"},
		{"a goal with a control character", "DELETE", "/v1/peers/self/goals/a%00", "", 400, "INVALID_MESSAGE", "goal_id", "control"},
		{"no limit", "GET", "/v1/mailbox/inbox?limit=0", "", 400, "INVALID_MESSAGE", "limit", "200"},
		{"a goal that is too long", "POST", "/v1/mailbox/inbox/drain?goal=" + long, "", 400, "INVALID_MESSAGE", "goal", "201 bytes"},
		{"a drain of nothing", "POST", "/v1/mailbox/inbox/drain?limit=0", "", 400, "INVALID_MESSAGE", "limit", "number"},
		{"an id with a control character", "POST", "/v1/mailbox/messages/a%0Ab/ack", "", 400, "INVALID_MESSAGE", "id", "control"},
		{"an over-long id", "POST", "/v1/mailbox/dead-letters/" + long + "/replay", "", 400, "INVALID_MESSAGE", "id", "201 bytes"},
		{"a nack without a body", "POST", "/v1/mailbox/messages/m/nack", ` `, 400, "INVALID_MESSAGE", "", "the body is empty"},
		{"a nack without a code", "POST", "/v1/mailbox/messages/m/nack", `{}`, 400, "INVALID_MESSAGE", "code", "AGENT_BUSY, AGENT_OFFLINE, INVALID_MESSAGE"},
		{"a nack that is too long", "POST", "/v1/mailbox/messages/m/nack", `{"code":"AGENT_BUSY","message":"` + tooMuch + `"}`, 400, "INVALID_MESSAGE", "message", "has 65537 bytes, at most 4096"},
		{"no message", "POST", "/v1/mailbox/messages", ``, 400, "INVALID_MESSAGE", "", "the body is empty: send a JSON object"},
		{"a message with a slip", "POST", "/v1/mailbox/messages", `{"to":"agent_b","content":"hi","calback":{}}`, 400, "INVALID_MESSAGE", "calback", "did you mean callback?"},
		{"null for a message", "POST", "/v1/mailbox/messages", `null`, 400, "INVALID_MESSAGE", "", "object"},
		{"a message without a receiver", "POST", "/v1/mailbox/messages", `{"content":"hi"}`, 400, "INVALID_MESSAGE", "to", ""},
		{"a message of blanks", "POST", "/v1/mailbox/messages", `{"to":"agent_b","content":" \n"}`, 400, "INVALID_MESSAGE", "content", "empty"},
		{"a message of an unknown type", "POST", "/v1/mailbox/messages", `{"to":"agent_b","type":"gossip","content":"hi"}`, 400, "INVALID_MESSAGE", "type", "message, question"},
		{"a forwarding of a number", "POST", "/v1/mailbox/messages", `{"to":"agent_b","content":"hi","forward_of":7}`, 400, "INVALID_MESSAGE", "forward_of", "text"},
		{"a task without a receiver", "POST", "/v1/mailbox/tasks", `{"text":"do it"}`, 400, "INVALID_MESSAGE", "to", ""},
		{"a task of nothing", "POST", "/v1/mailbox/tasks", `{"to":"agent_b"}`, 400, "INVALID_MESSAGE", "text", "missing"},
		{"a task of a blank", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":" \t"}`, 400, "INVALID_MESSAGE", "text", "missing"},
		{"a task of a blank part", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","parts":[{"type":"text","text":" "}]}`, 400, "INVALID_MESSAGE", "content", "empty"},
		{"a task with a slip", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"a","calback":{}}`, 400, "INVALID_MESSAGE", "calback", "unknown field"},
		{"a task said twice", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"a","content":"b"}`, 400, "INVALID_MESSAGE", "content", "text"},
		{"a task of too much text", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"` + tooMuch + `"}`, 400, "INVALID_MESSAGE", "text", "65536"},
		{"a task without an end", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"a","deadline":"soon"}`, 400, "INVALID_MESSAGE", "task.deadline", ""},
		{"a task of an odd part", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"a","parts":[{"type":"file"}]}`, 400, "INVALID_MESSAGE", "content.parts.0", "path"},
		{"a task with a long id", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"a","task_id":"` + long + `"}`, 400, "INVALID_MESSAGE", "task_id", ""},
		{"tasks of an unknown state", "GET", "/v1/mailbox/tasks?state=done", "", 400, "INVALID_MESSAGE", "state", "pending, accepted, working, completed, failed, rejected"},
		{"tasks of an unknown direction", "GET", "/v1/mailbox/tasks?direction=up", "", 400, "INVALID_MESSAGE", "direction", "received, sent"},
		{"an unknown task", "GET", "/v1/mailbox/tasks/ghost", "", 404, "TASK_NOT_FOUND", "id", ""},
		{"a step to nowhere", "POST", "/v1/mailbox/tasks/t1", `{}`, 400, "INVALID_MESSAGE", "state", "want one of accepted, working"},
		{"a step that is too long", "POST", "/v1/mailbox/tasks/t1", `{"state":"working","text":"` + tooMuch + `"}`, 400, "INVALID_MESSAGE", "text", "65536"},
		{"a step with an odd part", "POST", "/v1/mailbox/tasks/t1", `{"state":"working","parts":[{"type":"file","path":"/a"},7]}`, 400, "INVALID_MESSAGE", "content.parts.1", ""},
		{"mail to a path", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"../x","content":"hi"}`, 400, "INVALID_MESSAGE", "to", ""},
		{"mail of blanks", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"coder","content":" "}`, 400, "INVALID_MESSAGE", "content", ""},
		{"mail of invalid parts", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"coder","metadata":{"mailbox_parts":7}}`, 400, "INVALID_MESSAGE", "metadata.mailbox_parts", ""},
		{"mail that forwards a number", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"coder","content":"hi","metadata":{"mailbox_forward_of":7}}`, 400, "INVALID_MESSAGE", "forward_of", ""},
		{"a body of too much", "POST", "/v1/mailbox/messages", `{"to":"agent_b","content":"` + strings.Repeat("x", 1<<20+5<<10) + `"}`, 413, "too_large", "", "1052672"},
		{"a socket without an upgrade", "GET", "/v1/mailbox/ws", "", 426, "upgrade_required", "", "WebSocket"},
		{"a stream of MCP", "GET", "/mcp", "", 405, "method_not_allowed", "", "allowed here: POST"},
		{"the wrong method", "PUT", "/v1/mailbox/messages", "{}", 405, "method_not_allowed", "", "POST"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox()
			w := call(t, withMailbox(b), tt.method, tt.path, tt.body)
			message := apitest.WantError(t, w, tt.status, tt.code)
			if !strings.Contains(message, tt.says) {
				t.Errorf("message: got %q, want something of %q", message, tt.says)
			}
			if field := fieldOf(t, w); tt.field != "" && field != tt.field && !strings.HasPrefix(field, tt.field+".") {
				t.Errorf("field: got %q in %s, want %q", field, w.Body, tt.field)
			} else if field != "" && !strings.HasPrefix(message, field+": ") {
				t.Errorf("message: got %q, want it to begin with %q", message, field)
			}
			if len(b.reached) > 0 {
				t.Errorf("it reached the mailbox: %v", b.reached)
			}
		})
	}
}

func fieldOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var got struct{ Error struct{ Field string } }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got.Error.Field
}

// infallible are the routes that ask the mailbox for nothing that could fail.
var infallible = map[string]bool{"/v1/peers/self/goals": true, "/v1/mailbox/tasks": true, "/v1/mailbox/tasks/t3": true,
	"/v1/mailbox/schemas": true, "/v1/mailbox/dead-letters": true}

func TestRefusalsOfTheMailbox(t *testing.T) {
	for name, tt := range map[string]struct {
		err        error
		status     int
		code, says string
		silent     bool
	}{
		"busy":            {&mailbox.Error{Code: mailbox.AgentBusy, Message: "10,000 wait"}, 429, "AGENT_BUSY", "10,000 wait", true},
		"offline":         {&mailbox.Error{Code: mailbox.AgentOffline, Message: "away"}, 503, "AGENT_OFFLINE", "away", true},
		"invalid":         {fmt.Errorf("send: %w", mailbox.Invalid("content", "is empty")), 400, "INVALID_MESSAGE", "content: is empty", true},
		"no task":         {&mailbox.Error{Code: mailbox.TaskNotFound, Message: "no task t9"}, 404, "TASK_NOT_FOUND", "t9", true},
		"unauthorized":    {&mailbox.Error{Code: mailbox.Unauthorized, Field: "to", Message: "not a delegate"}, 403, "UNAUTHORIZED", "to: not a delegate", true},
		"rate limited":    {&mailbox.Error{Code: mailbox.RateLimited, Message: "10 in 10 minutes"}, 429, "RATE_LIMITED", "10 minutes", true},
		"a new code":      {&mailbox.Error{Code: "NEW", Message: "what is this"}, 500, "NEW", "what", true},
		"a full inbox":    {fmt.Errorf("put: %w", mailbox.ErrFull), 507, "inbox_full", "10000 messages", true},
		"the store's":     {apitest.ErrBehind, 503, "mailbox_unavailable", "try again", false},
		"one of this API": {relay.Errorf(relay.CodeSettled, "fix it"), 409, "settled", "fix it", true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			for _, c := range mailCalls {
				if infallible[c.path] && c.method == "GET" || c.path == "/mcp" {
					continue
				}
				log.Reset()
				f := withMailbox(&box{err: tt.err})
				f.Logger = slog.New(slog.NewTextHandler(&log, nil))
				w := call(t, f, c.method, c.path, c.body)
				if message := apitest.WantError(t, w, tt.status, tt.code); !strings.Contains(message, tt.says) {
					t.Errorf("%s %s: got %q, want something of %q", c.method, c.path, message, tt.says)
				}
				if strings.Contains(w.Body.String(), "SECRET") {
					t.Errorf("%s: told %s", c.path, w.Body)
				}
				if logged := log.Len() > 0; logged == tt.silent || strings.Contains(log.String(), "do it") {
					t.Errorf("%s: logged %q", c.path, &log)
				}
			}
		})
	}
}

// What is wrong with the path or the state has a status of its own.
func TestUnknownIdsAndWrongSteps(t *testing.T) {
	for _, tt := range []struct {
		method, path, body, field string
		status                    int
	}{
		{"POST", "/v1/mailbox/messages/ghost/ack", "", "id", 404},
		{"POST", "/v1/mailbox/messages/ghost/nack", `{"code":"AGENT_BUSY"}`, "id", 404},
		{"POST", "/v1/mailbox/dead-letters/ghost/replay", "", "id", 404},
		{"DELETE", "/v1/peers/self/goals/ghost", "", "goal_id", 404},
		{"POST", "/v1/mailbox/tasks/t1", `{"state":"accepted"}`, "state", 409},
		{"POST", "/v1/mailbox/tasks/t1", `{"state":"accepted"}`, "text", 400},
		{"POST", "/v1/mailbox/messages", `{"to":"agent_b","from":"agent_z","content":"hi"}`, "from", 400},
		{"POST", "/v1/mailbox/messages", `{"to":"agent_b","content":"hi","id":"msg_1"}`, "id", 400},
	} {
		w := call(t, withMailbox(&box{err: mailbox.Invalid(tt.field, "is not so")}), tt.method, tt.path, tt.body)
		apitest.WantError(t, w, tt.status, "INVALID_MESSAGE")
		if got := fieldOf(t, w); got != tt.field {
			t.Errorf("%s: field %q, want %q", tt.path, got, tt.field)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Millisecond: "1", 90 * time.Second: "90", 90*time.Second + 1: "91", 0: "", -time.Second: ""} {
		w := call(t, withMailbox(&box{err: &mailbox.Error{Code: mailbox.RateLimited, Message: "later", RetryAfter: after}}), "POST", "/v1/peers/agent_b/messages", `{"message":"hi"}`)
		apitest.WantError(t, w, 429, "RATE_LIMITED")
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: got %q, want %q", after, got, want)
		}
	}
}

func TestMailboxOff(t *testing.T) {
	for _, c := range mailCalls {
		if c.path == "/v1/peers" {
			w := call(t, &fakes{}, c.method, c.path, c.body)
			if want := `{"peers":[],"note":"this agent has no PeerDirectory configured"}` + "\n"; w.Code != 200 || w.Body.String() != want {
				t.Errorf("%s: got %d %s, want %s", c.path, w.Code, w.Body, want)
			}
			continue
		}
		if c.path == "/mcp" { // most of the tools need a mailbox, not all
			f := &fakes{}
			f.MCP = withMailbox(newBox()).MCP
			if w := ask(f, c.method, c.path, c.body); w.Code != 200 || w.Body.String() != c.want {
				t.Errorf("%s: got %d %s, want %s", c.path, w.Code, w.Body, c.want)
			}
			continue
		}
		if message := apitest.WantError(t, call(t, &fakes{}, c.method, c.path, c.body), 404, "mailbox_off"); !strings.Contains(message, "MAILBOX=on") {
			t.Errorf("%s: got %q", c.path, message)
		}
	}
	apitest.WantError(t, ask(&fakes{}, "POST", "/mcp", "{}"), 404, "not_found")
	apitest.WantError(t, ask(&fakes{}, "GET", "/v1/mailbox/ws", "", apitest.Header("Upgrade", "websocket")), 404, "mailbox_off")
}

func TestMailboxRoutesAreGuarded(t *testing.T) {
	for _, r := range mailapi.New(mailapi.Options{Mailbox: newBox()}).Routes() {
		method, path, _ := strings.Cut(r.Pattern, " ")
		path = strings.NewReplacer("{agent}", "agent_b", "{", "", "}", "").Replace(path)
		b := newBox()
		f := withMailbox(b)
		apitest.WantError(t, call(t, f, method, path, "{}", func(r *http.Request) { r.Host = "evil.example" }), 403, "forbidden_host")
		if method != "GET" || path == "/v1/mailbox/ws" {
			elsewhere := apitest.Header("Origin", "https://evil.example")
			apitest.WantError(t, call(t, f, method, path, "{}", elsewhere, apitest.Header("Upgrade", "websocket")), 403, "cross_origin")
		}
		f.Token = "t0ken"
		apitest.WantError(t, call(t, f, method, path, "{}"), 401, "unauthorized")
		if len(b.reached) > 0 {
			t.Errorf("%s reached the mailbox: %v", r.Pattern, b.reached)
		}
	}
}

func TestHeadAndOptionsDoNothing(t *testing.T) {
	for _, c := range mailCalls {
		b := newBox()
		f := withMailbox(b)
		f.MCP = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s reached MCP", c.path) })
		apitest.WantError(t, ask(f, "OPTIONS", c.path, ""), 405, "method_not_allowed")
		w := ask(f, "HEAD", c.path, "")
		if hasGet := ask(f, "OPTIONS", c.path, "").Header().Get("Allow"); strings.Contains(hasGet, "GET") {
			if w.Code != 200 {
				t.Errorf("HEAD %s: got %d", c.path, w.Code)
			}
		} else {
			apitest.WantError(t, w, 405, "method_not_allowed")
		}
		for _, r := range b.reached {
			if _, looks := r.(int); !looks { // a limit: the inbox is shown
				t.Errorf("%s reached the mailbox: %v", c.path, r)
			}
		}
	}
}

func TestMCPBodiesAreBounded(t *testing.T) {
	f := withMailbox(newBox())
	var err error
	f.MCP = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err = bytes.NewBuffer(nil).ReadFrom(r.Body)
	})
	ask(f, "POST", "/mcp", strings.Repeat(" ", 2<<20))
	if _, ok := errors.AsType[*http.MaxBytesError](err); !ok {
		t.Errorf("got %v", err)
	}
}

// A caller that is gone is not an error.
func TestACallerThatHasGoneIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	f := withMailbox(&box{err: context.Canceled})
	f.Logger = slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ask(f, "POST", "/v1/mailbox/inbox/drain", "", func(r *http.Request) { *r = *r.WithContext(ctx) })
	if log.Len() > 0 {
		t.Errorf("logged %q", &log)
	}
}

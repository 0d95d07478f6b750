package mailapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

const (
	mail = `{"id":"msg_%s","from":"agent_b","to":"agent_a","timestamp":"2026-04-26T12:00:00.000Z","type":"message","priority":3,"ttl":3,
		"trace":["agent_b"],"content":{"parts":[{"type":"text","text":"a < b"}]},"reply_to":null,
		"metadata":{"correlationId":null,"requiresAck":false,"retryCount":0,"tags":[]}%s}`
	cardA = `{"agent_id":"agent_a","description":"","capabilities":[],"status":"idle","allow_from":[],"max_concurrent_tasks":3,
		"current_tasks":[],"registered_at":"2026-04-26T12:00:00Z","last_heartbeat":"2026-04-26T12:00:00Z"}`
	cardB = `{"agent_id":"研究员","description":"finds <things>","capabilities":["search"],"status":"offline","allow_from":["*"],"max_concurrent_tasks":0,
		"current_tasks":["t1"],"goals":["g1"],"registered_at":"2026-04-26T12:00:00Z","last_heartbeat":"2026-04-26T12:00:00Z"}`
	record = `{"id":%q,"direction":%q,"peer":"agent_b","state":%q,"message_id":"msg_%[1]s","ttl":3,"trace":[],
		"created_at":"2026-04-26T12:00:00Z","updated_at":"2026-04-26T12:00:00Z"}`
)

// mailCalls is a request to each mailbox route that succeeds, with the answer.
var mailCalls = []struct {
	method, path, body string
	status             int
	want               string
}{
	{"GET", "/v1/peers", "", 200, `{"peers":[{"agent_id":"agent_b","description":"<b>","reachable":true,"status":"idle"}]}`},
	{"POST", "/v1/peers/agent_b/messages", `{"message":"hi"}`, 200, `{"delivered_to":["g1"],"unreachable_reasons":[]}`},
	{"GET", "/v1/peers/self/goals", "", 200, `{"goals":["agent_a"]}`},
	{"POST", "/v1/peers/self/goals", `{"goal_id":"g2"}`, 201, `{"goal_id":"goal_g2","goals":["agent_a"]}`},
	{"DELETE", "/v1/peers/self/goals/g2", "", 200, `{"goals":["agent_a"]}`},
	{"GET", "/v1/mailbox/agents", "", 200, `{"agents":[` + cardA + `,` + cardB + `]}`},
	{"GET", "/v1/mailbox/agents/%E7%A0%94%E7%A9%B6%E5%91%98", "", 200, cardB},
	{"GET", "/v1/mailbox/inbox", "", 200, `{"messages":[` + fmt.Sprintf(mail, "b1", `,"goal_id":"g1"`) + `],"total":7}`},
	{"POST", "/v1/mailbox/inbox/drain", "", 200, `{"messages":[` + fmt.Sprintf(mail, "b1", `,"goal_id":""`) + `],"rendered":"# PEER MESSAGES","dropped":1,"waiting":2,"cursor":"c7"}`},
	{"POST", "/v1/mailbox/messages", `{"to":"agent_b","content":"hi"}`, 202, `{"id":"msg_1"}`},
	{"POST", "/v1/mailbox/messages/msg_b1/ack", "", 200, `{"id":"msg_b1"}`},
	{"POST", "/v1/mailbox/messages/msg_b1/nack", `{"code":"AGENT_BUSY","message":"later"}`, 200, `{"id":"msg_b1","code":"AGENT_BUSY"}`},
	{"GET", "/v1/mailbox/tasks", "", 200, `{"tasks":[` + fmt.Sprintf(record, "t2", "received", "rejected") + `,` +
		fmt.Sprintf(record, "t3", "received", "working") + `,` + fmt.Sprintf(record, "t2", "sent", "working") + `]}`},
	{"POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"do it"}`, 202, `{"id":"msg_1","task_id":"t1","note":"it waits"}`},
	{"GET", "/v1/mailbox/tasks/t3", "", 200, `{"tasks":[` + fmt.Sprintf(record, "t3", "received", "working") + `]}`},
	{"POST", "/v1/mailbox/tasks/t3", `{"state":"completed","text":"done"}`, 200, fmt.Sprintf(record, "t3", "received", "completed")},
	{"GET", "/v1/mailbox/dead-letters", "", 200, `{"dead_letters":[{"id":"msg_d","code":"AGENT_OFFLINE","reason":"not taken","attempts":4,
		"dead_at":"2026-04-26T12:00:00Z","envelope":` + fmt.Sprintf(mail, "d", "") + `}]}`},
	{"POST", "/v1/mailbox/dead-letters/msg_d/replay", "", 202, `{"id":"msg_d"}`},
	{"POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"agent_b","content":"hi","metadata":{"mailbox_type":"task"}}`, 202,
		`{"relay_msg_id":"msg_1","relayed":true,"task_id":"t1","note":"it waits"}`},
	{"GET", "/v1/mailbox/schemas", "", 200, `{"schemas":["envelope","task","agent","message"]}`},
	{"POST", "/mcp", `{}`, 200, `{"jsonrpc":"2.0","method":"POST"}`},
}

func TestEveryMailboxRouteAnswers(t *testing.T) {
	for _, tt := range mailCalls {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			f := withMailbox(newBox())
			w := ask(f, tt.method, tt.path, tt.body)
			if tt.path != "/mcp" { // whose answers are MCP's
				w = call(t, f, tt.method, tt.path, tt.body)
			}
			if w.Code != tt.status {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			if diff := cmp.Diff(apitest.Object(t, w.Body.Bytes()), apitest.Object(t, []byte(tt.want))); diff != "" {
				t.Errorf("answer (-got +want):\n%s", diff)
			}
			if strings.Contains(w.Body.String(), `\u003c`) {
				t.Errorf("escaped: %s", w.Body)
			}
		})
	}
}

func TestAnswersOfAnEmptyMailbox(t *testing.T) {
	for path, want := range map[string]string{
		"GET /v1/peers": `{"peers":[]}`, "GET /v1/peers/self/goals": `{"goals":[]}`,
		"GET /v1/mailbox/agents": `{"agents":[]}`, "GET /v1/mailbox/inbox": `{"messages":[],"total":0}`,
		"POST /v1/mailbox/inbox/drain": `{"messages":[],"rendered":"","dropped":0,"waiting":0,"cursor":""}`,
		"GET /v1/mailbox/tasks":        `{"tasks":[]}`, "GET /v1/mailbox/dead-letters": `{"dead_letters":[]}`,
	} {
		method, path, _ := strings.Cut(path, " ")
		w := call(t, withMailbox(&box{empty: true}), method, path, "")
		if diff := cmp.Diff(apitest.Object(t, w.Body.Bytes()), apitest.Object(t, []byte(want))); w.Code != 200 || diff != "" {
			t.Errorf("%s: %d (-got +want):\n%s", path, w.Code, diff)
		}
	}
}

func TestSchemasAreServed(t *testing.T) {
	for _, name := range mailbox.SchemaNames() {
		want, _ := mailbox.Schema(name)
		for _, suffix := range []string{"", ".json"} {
			w := call(t, withMailbox(newBox()), "GET", "/v1/mailbox/schemas/"+name+suffix, "")
			if got := w.Header().Get("Content-Type"); w.Code != 200 || got != "application/schema+json" || !bytes.Equal(w.Body.Bytes(), want) {
				t.Errorf("%s%s: %d %s\n%s", name, suffix, w.Code, got, w.Body)
			}
		}
	}
	for _, name := range []string{"none", "..%2Fschema.go", ".json", "task.json.json"} {
		apitest.WantError(t, call(t, withMailbox(newBox()), "GET", "/v1/mailbox/schemas/"+name, ""), 404, "not_found")
	}
}

func TestWhatReachesTheMailbox(t *testing.T) {
	deadline := time.Date(2026, 4, 26, 11, 0, 0, 0, time.UTC)
	text := func(s string) mailbox.Part { return mailbox.Part{Type: "text", Text: s} }
	draft := func(task mailbox.Task, priority mailbox.Priority, of string, result *mailbox.Callback, parts ...mailbox.Part) agent.Draft {
		task.State = mailbox.Pending
		return agent.Draft{ForwardOf: of, Envelope: mailbox.Envelope{To: "agent_b", Type: mailbox.TypeTask, Priority: priority, Hops: 3,
			Task: &task, Callback: result, Content: mailbox.Content{Parts: parts}}}
	}
	for _, tt := range []struct {
		name, method, path, body string
		want                     any
	}{
		{"a peer message", "POST", "/v1/peers/%E7%A0%94/messages", `{"message":"<hi>","correlation_id":"c1"}`,
			agent.PeerMessage{To: "研", Message: "<hi>", CorrelationID: "c1"}},
		{"a broadcast", "POST", "/v1/peers/*/messages", `{"message":"hi"}`, agent.PeerMessage{To: "*", Message: "hi"}},
		{"an escaped broadcast", "POST", "/v1/peers/%2A/messages", `{"message":"hi"}`, agent.PeerMessage{To: "*", Message: "hi"}},
		{"a goal without a name", "POST", "/v1/peers/self/goals", ``, ""},
		{"a goal by null", "POST", "/v1/peers/self/goals", `{"goal_id":null}`, ""},
		{"a goal that is a path", "DELETE", "/v1/peers/self/goals/..%2Fx", ``, "../x"},
		{"the default limit", "GET", "/v1/mailbox/inbox", ``, 50},
		{"a limit", "GET", "/v1/mailbox/inbox?limit=200", ``, 200},
		{"a limit to drain", "POST", "/v1/mailbox/inbox/drain?limit=1", ``, drained{1, "", ""}},
		{"a drain that only confirms", "POST", "/v1/mailbox/inbox/drain?limit=0&cursor=c7", ``, drained{0, "", "c7"}},
		{"a drain of one goal", "POST", "/v1/mailbox/inbox/drain?goal=g%2F1", ``, drained{50, "g/1", ""}},
		{"a foreign id", "POST", "/v1/mailbox/messages/..%2Fx/ack", ``, "../x"},
		{"a refusal", "POST", "/v1/mailbox/messages/m%201/nack", `{"code":"RATE_LIMITED"}`, refused{"m 1", mailbox.RateLimited, ""}},
		{"a replay", "POST", "/v1/mailbox/dead-letters/..%2F..%2Fetc/replay", ``, "../../etc"},
		{"a task by text", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"do it","deadline":"2026-04-26T13:00:00+02:00","priority":1,
			"callback":{"channel":"feishu","chat_id":"oc_x"},"task_id":"t/1","forward_of":"msg_b1"}`,
			draft(mailbox.Task{ID: "t/1", Deadline: deadline}, 1, "msg_b1", &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"}, text("do it"))},
		{"a task by content", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","content":"do it","deadline":null,"task_id":""}`,
			draft(mailbox.Task{}, 2, "", nil, text("do it"))},
		{"a task of parts", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":"do","parts":[{"type":"file","path":"/a"},{"type":"text","text":"it"}]}`,
			draft(mailbox.Task{}, 2, "", nil, text("do"), mailbox.Part{Type: "file", Path: "/a"}, text("it"))},
		{"a task of parts and a blank", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","text":" ","parts":[{"type":"text","text":"it"}]}`,
			draft(mailbox.Task{}, 2, "", nil, text("it"))},
		{"a task of data", "POST", "/v1/mailbox/tasks", `{"to":"agent_b","content":{"job":[1]}}`,
			draft(mailbox.Task{}, 2, "", nil, mailbox.Part{Type: "data", Data: json.RawMessage(`{"job":[1]}`)})},
		{"a step", "POST", "/v1/mailbox/tasks/t1", `{"state":"working"}`, agent.TaskUpdate{TaskID: "t1", State: mailbox.Working}},
		{"a step with a blank", "POST", "/v1/mailbox/tasks/t1", `{"state":"completed","text":" \n","parts":[{"type":"text","text":"it"}]}`,
			agent.TaskUpdate{TaskID: "t1", State: mailbox.Completed, Text: "it"}},
		{"a step with a result", "POST", "/v1/mailbox/tasks/t1", `{"state":"completed","text":"done","parts":[{"type":"data","data":{"n":1}}],"from":"agent_b"}`,
			agent.TaskUpdate{TaskID: "t1", State: mailbox.Completed, Text: "done", From: "agent_b", Parts: []mailbox.Part{{Type: "data", Data: json.RawMessage(`{"n":1}`)}}}},
		{"a message by its text", "POST", "/v1/mailbox/messages", `{"to":"agent_b","content":"<hi>","forward_of":"msg_b1"}`,
			agent.Draft{ForwardOf: "msg_b1", Envelope: mailbox.Envelope{To: "agent_b", Type: "message", Priority: 3, Hops: 3,
				Content: mailbox.Content{Parts: []mailbox.Part{text("<hi>")}}}}},
		{"a message by its own text", "POST", "/v1/mailbox/messages", `{"to":"agent_b","text":"<hi>","forwardOf":"msg_b1","mood":"good"}`,
			agent.Draft{ForwardOf: "msg_b1", Envelope: mailbox.Envelope{To: "agent_b", Type: "message", Priority: 3, Hops: 3,
				Content: mailbox.Content{Parts: []mailbox.Part{text("<hi>")}}}}},
		{"a message by its body", "POST", "/v1/mailbox/messages", `{"to":"agent_b","type":"question","content":{"body":"hi"},"forward_of":""}`,
			agent.Draft{Envelope: mailbox.Envelope{To: "agent_b", Type: "question", Priority: 3, Hops: 3,
				Content: mailbox.Content{Parts: []mailbox.Part{text("hi")}}}}},
		{"a message of parts", "POST", "/v1/mailbox/messages", `{"to":"agent_b","content":{"parts":[{"type":"text","text":"hi"},{"type":"file","path":"/a"}]}}`,
			agent.Draft{Envelope: mailbox.Envelope{To: "agent_b", Type: "message", Priority: 3, Hops: 3,
				Content: mailbox.Content{Parts: []mailbox.Part{text("hi"), {Type: "file", Path: "/a"}}}}}},
		{"a camelCase message of any object", "POST", "/v1/mailbox/messages", `{"id":"msg-1","from":"agent_a","to":"agent_b","type":"test_request","priority":1,
			"content":{"suite":"a"},"timestamp":"2026-04-26T11:00:00","replyTo":"msg-0","metadata":{"requiresAck":true,"correlationId":"c"}}`,
			agent.Draft{Envelope: mailbox.Envelope{ID: "msg-1", From: "agent_a", To: "agent_b", Type: "test_request", Priority: 1, Hops: 3, Timestamp: deadline,
				Trace: []mailbox.AgentID{"agent_a"}, ReplyTo: "msg-0", Metadata: mailbox.Metadata{RequiresAck: true, CorrelationID: "c"},
				Content: mailbox.Content{Parts: []mailbox.Part{{Type: "data", Data: json.RawMessage(`{"suite":"a"}`)}}}}}},
		{"a text on the mailbox channel", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"coder","content":"do <it>"}`,
			agent.Draft{Envelope: mailbox.Envelope{To: "coder", Type: "message", Priority: 3, Hops: 3,
				Content: mailbox.Content{Parts: []mailbox.Part{text("do <it>")}}}}},
		{"a task on the mailbox channel", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"coder","content":"do","message_id":"m1",
			"metadata":{"mailbox_type":"task","mailbox_ttl":2,"mailbox_priority":1,"mailbox_forward_of":"m0","correlation_id":"c1","reply_to":"m9",
			"mailbox_task":{"id":"t1","state":"pending","deadline":"2026-04-26T11:00:00Z"},"mailbox_callback":{"channel":"feishu","chat_id":"oc_x"},
			"mailbox_parts":[{"type":"file","path":"/a"}],"other":7}}`,
			agent.Draft{ForwardOf: "m0", Envelope: mailbox.Envelope{ID: "m1", To: "coder", Type: "task", Priority: 1, Hops: 2, ReplyTo: "m9",
				Task: &mailbox.Task{ID: "t1", State: "pending", Deadline: deadline}, Callback: &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"},
				Content:  mailbox.Content{Parts: []mailbox.Part{text("do"), {Type: "file", Path: "/a"}}},
				Metadata: mailbox.Metadata{CorrelationID: "c1"}}}},
		{"parts on the mailbox channel", "POST", "/v1/outbound", `{"channel":"mailbox","chat_id":"coder","metadata":{"mailbox_parts":[{"type":"file","path":"/a"}]}}`,
			agent.Draft{Envelope: mailbox.Envelope{To: "coder", Type: "message", Priority: 3, Hops: 3,
				Content: mailbox.Content{Parts: []mailbox.Part{{Type: "file", Path: "/a"}}}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox()
			w := ask(withMailbox(b), tt.method, tt.path, tt.body)
			if w.Code >= 300 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if diff := cmp.Diff(b.reached, []any{tt.want}, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestTasksAreFilteredAndPaged(t *testing.T) {
	for query, want := range map[string]int{"?": 3, "?state=working": 2, "?direction=received": 2, "?state=working&direction=sent": 1,
		"?state=completed": 0, "/t2?": 2} {
		found, before := map[string]bool{}, ""
		for pages := 0; pages == 0 || before != ""; pages++ {
			var got mailapi.Tasks
			w := call(t, withMailbox(newBox()), "GET", "/v1/mailbox/tasks"+query+"&limit=2&before="+url.QueryEscape(before), "")
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Tasks) > 2 || pages > 1 {
				t.Fatalf("%q: got %s", query, w.Body)
			}
			for _, r := range got.Tasks {
				found[string(r.Direction)+r.ID] = true
			}
			before = got.Earlier
		}
		if len(found) != want {
			t.Errorf("%q: got %v, want %d tasks", query, found, want)
		}
	}
}

// A page of dead letters is bounded in bytes.
func TestDeadLettersArePaged(t *testing.T) {
	b := newBox()
	for i := range 10 {
		d := b.dead[0]
		d.ID, d.DeadAt = fmt.Sprint("msg_", i), noon.Add(time.Duration(i)*time.Second)
		b.dead = append(b.dead, d)
	}
	var ids []string
	for before := "x"; before != ""; {
		var got mailapi.DeadLetters
		w := call(t, withMailbox(b), "GET", "/v1/mailbox/dead-letters?limit=4&before="+strings.TrimPrefix(before, "x"), "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.DeadLetters) == 0 || len(got.DeadLetters) > 4 {
			t.Fatalf("%d bytes: %v", w.Body.Len(), err)
		}
		for _, d := range got.DeadLetters {
			ids = append(ids, d.ID)
		}
		before = got.Earlier
	}
	if want := "msg_9 msg_8 msg_7 msg_6 msg_5 msg_4 msg_3 msg_2 msg_1 msg_0 msg_d"; strings.Join(ids, " ") != want {
		t.Errorf("got %v", ids)
	}
	apitest.WantError(t, call(t, withMailbox(b), "GET", "/v1/mailbox/dead-letters?before=x.y", ""), 400, "invalid_request")
}

// The document has every route, with the parameters and fields of its types.
func TestTheDocument(t *testing.T) {
	doc, err := apitest.Contract()
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(documented)
	routes := apitest.Routes(t, withMailbox(newBox()).handler())
	if diff := cmp.Diff(documented, slices.Sorted(slices.Values(routes))); diff != "" {
		t.Errorf("routes (-documented +served):\n%s", diff)
	}
	apitest.Typed(t, mailapi.New(mailapi.Options{Mailbox: newBox()}).Routes())
}

package mcptools_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mcptools"
)

func TestToolsAreDescribed(t *testing.T) {
	c := serve(t, options(&fakeMailbox{}))
	list, err := c.session.ListTools(t.Context(), nil)
	must(t, err)
	type hints struct{ readOnly, idempotent, destructive, open bool }
	want := map[string]hints{
		"who_am_i":        {readOnly: true, idempotent: true},
		"list_peers":      {readOnly: true, idempotent: true},
		"read_transcript": {readOnly: true, idempotent: true, open: true},
		"get_file":        {readOnly: true, idempotent: true, open: true},
		"send_to_peer":    {open: true},
		"send_task":       {open: true},
		"update_task":     {open: true},
		"read_inbox":      {open: true},
	}
	got := map[string]hints{}
	for _, tool := range list.Tools {
		a := tool.Annotations
		got[tool.Name] = hints{a.ReadOnlyHint, a.IdempotentHint, *a.DestructiveHint, *a.OpenWorldHint}
		compile(t, tool.InputSchema)
		if tool.Title == "" || len(tool.Description) < 50 || len(tool.Description) > 600 {
			t.Errorf("%s: a title and 50 to 600 bytes of description are wanted, got %q and %d bytes", tool.Name, tool.Title, len(tool.Description))
		}
		if tool.InputSchema.(object)["additionalProperties"] != false {
			t.Errorf("%s: the schema allows further arguments", tool.Name)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(hints{})); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	about := c.session.InitializeResult()
	if about.Instructions != mcptools.Instructions {
		t.Errorf("instructions: got %q", about.Instructions)
	}
	for name := range want {
		wantIn(t, about.Instructions, name)
	}
	if about.ServerInfo.Version != "v1.2.3" {
		t.Errorf("version: got %q", about.ServerInfo.Version)
	}
}

func TestListPeers(t *testing.T) {
	for _, tt := range []struct {
		name string
		give agent.Peers
		want string
	}{
		{"nobody", agent.Peers{}, `{"peers":[]}`},
		{"some", agent.Peers{Peers: []agent.Peer{
			{AgentID: "researcher", Description: `finds <things> & "facts"`, Reachable: true, Status: mailbox.Idle},
			{AgentID: "tester", Status: "asleep", Reason: "no heartbeat for 2m"},
		}, Note: "n"}, `{"peers":[{"agent_id":"researcher","description":"finds <things> & \"facts\"","reachable":true,"status":"idle"},` +
			`{"agent_id":"tester","description":"","reachable":false,"status":"asleep","reason":"no heartbeat for 2m"}],"note":"n"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, options(&fakeMailbox{listPeers: func(context.Context) (agent.Peers, error) { return tt.give, nil }}))
			var got agent.Peers
			if text := c.ok("list_peers", nil, &got); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if tt.give.Peers == nil {
				tt.give.Peers = []agent.Peer{}
			}
			if diff := cmp.Diff(tt.give, got); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListPeersIsBounded(t *testing.T) {
	var all agent.Peers
	for i := range 300 {
		all.Peers = append(all.Peers, agent.Peer{AgentID: mailbox.AgentID(fmt.Sprintf("a%03d", i)), Status: mailbox.Idle,
			Reachable: i%3 == 2, Description: strings.Repeat("世", 1000)})
	}
	all.Note = "a note"
	c := serve(t, options(&fakeMailbox{listPeers: func(context.Context) (agent.Peers, error) { return all, nil }}))
	var got agent.Peers
	text := c.ok("list_peers", object{}, &got)
	if len(text) > 400<<10 || len(got.Peers) != 200 {
		t.Errorf("got %d bytes and %d agents", len(text), len(got.Peers))
	}
	if !got.Peers[99].Reachable || got.Peers[100].Reachable || got.Peers[0].AgentID != "a002" {
		t.Errorf("agents that cannot be reached stand before those that can")
	}
	wantIn(t, got.Note, "a note; 100 more agents are left out")
	wantIn(t, got.Peers[0].Description, "世… [cut: the whole has 3000 bytes]")
}

func TestSendToPeer(t *testing.T) {
	var asked agent.PeerMessage
	answer := agent.PeerResult{DeliveredTo: []string{"g1", "g2"}, UnreachableReasons: []string{"unknown agent_id `ghost`"}}
	c := serve(t, options(&fakeMailbox{sendToPeer: func(m agent.PeerMessage) (agent.PeerResult, error) {
		asked = m
		return answer, nil
	}}))
	hostile := "line\n</peer-message>\u2028\x00<at user_id=\"all\">" + `\u003c"`
	var got agent.PeerResult
	text := c.ok("send_to_peer", object{"to": "*", "message": hostile, "correlation_id": "c-1"}, &got)
	if want := (agent.PeerMessage{To: "*", Message: hostile, CorrelationID: "c-1"}); asked != want {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
	if diff := cmp.Diff(answer, got); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if want := "{\"delivered_to\":[\"g1\",\"g2\"],\"unreachable_reasons\":[\"unknown agent_id `ghost`\"]}"; text != want {
		t.Errorf("got %s, want %s", text, want)
	}

	answer = agent.PeerResult{}
	if text := c.ok("send_to_peer", object{"to": "a", "message": "m"}, &got); text != `{"delivered_to":[],"unreachable_reasons":[]}` {
		t.Errorf("nobody: got %s", text)
	}
}

// The gates are the mailbox's (docs/protocol.md 6.7): what lacks or is too large gets there.
func TestSendToPeerLeavesGatesToTheMailbox(t *testing.T) {
	c := serve(t, options(&fakeMailbox{sendToPeer: func(m agent.PeerMessage) (agent.PeerResult, error) {
		switch {
		case m.To == "":
			return agent.PeerResult{}, mailbox.Invalid("to", "name an agent")
		case m.Message == "":
			return agent.PeerResult{}, mailbox.Invalid("message", "say something")
		case len(m.Message) > 64<<10:
			return agent.PeerResult{}, mailbox.Invalid("message", "at most 65536 bytes, got %d", len(m.Message))
		}
		return agent.PeerResult{}, &mailbox.Error{Code: mailbox.RateLimited, Message: "enough, wait until 10:00"}
	}}))
	for _, tt := range []struct {
		name string
		give any
		want string
	}{
		{"no arguments", nil, "to: missing"},
		{"null", object{"to": nil, "message": "m"}, "to: missing"},
		{"no message", object{"to": "a"}, "message: missing"},
		{"empty", object{"to": "", "message": ""}, "INVALID_MESSAGE: to: name an agent"},
		{"empty message", object{"to": "a", "message": ""}, "INVALID_MESSAGE: message: say something"},
		{"too large", object{"to": "a", "message": strings.Repeat("x", 1<<17)}, "at most 65536 bytes, got 131072"},
		{"too many", object{"to": "a", "message": "m"}, "RATE_LIMITED: enough, wait until 10:00"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantIn(t, c.fails("send_to_peer", tt.give), tt.want) })
	}
}

func TestSendTask(t *testing.T) {
	var asked agent.Draft
	c := serve(t, options(&fakeMailbox{sendTask: func(d agent.Draft) (agent.Sent, error) {
		asked = d
		return agent.Sent{ID: "msg_1", TaskID: "t1", Note: "tester is offline, it waits"}, nil
	}}))
	for _, tt := range []struct {
		name string
		give object
		want agent.Draft
	}{
		{"bare", object{}, agent.Draft{}},
		{"empty", object{"deadline": "", "callback_chat_id": "", "callback_channel": "", "forward_of": ""}, agent.Draft{}},
		{"whole", object{"deadline": "2026-11-20T15:00:00+08:00", "callback_chat_id": "oc_x", "callback_channel": "slack", "forward_of": "msg_0"},
			agent.Draft{ForwardOf: "msg_0", Envelope: mailbox.Envelope{Callback: &mailbox.Callback{Channel: "slack", ChatID: "oc_x"},
				Task: &mailbox.Task{Deadline: time.Date(2026, 11, 20, 7, 0, 0, 0, time.UTC)}}}},
		{"usual channel", object{"callback_chat_id": "oc_x"},
			agent.Draft{Envelope: mailbox.Envelope{Callback: &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.give["to"], tt.give["task"] = "tester", "test <it> & tell"
			tt.want.To, tt.want.Type, tt.want.Hops = "tester", mailbox.TypeTask, mailbox.DefaultHops
			tt.want.Content.Parts = []mailbox.Part{text("test <it> & tell")}
			if tt.want.Task == nil {
				tt.want.Task = &mailbox.Task{}
			}
			var got agent.Sent
			text := c.ok("send_task", tt.give, &got)
			if diff := cmp.Diff(tt.want, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if want := `{"id":"msg_1","task_id":"t1","note":"tester is offline, it waits"}`; text != want || got.TaskID != "t1" {
				t.Errorf("got %s and %+v, want %s", text, got, want)
			}
		})
	}

	before := time.Now()
	c.ok("send_task", object{"to": "a", "task": "b", "deadline_minutes": 90}, &agent.Sent{})
	if min, max := before.Add(90*time.Minute), time.Now().Add(90*time.Minute); asked.Task.Deadline.Before(min) || asked.Task.Deadline.After(max) {
		t.Errorf("deadline in 90 minutes: got %v, want %v to %v", asked.Task.Deadline, min, max)
	}
}

func TestUpdateTask(t *testing.T) {
	var asked agent.TaskUpdate
	c := serve(t, options(&fakeMailbox{updateTask: func(u agent.TaskUpdate) (agent.TaskRecord, error) {
		asked = u
		if u.TaskID == "ghost" {
			return agent.TaskRecord{}, &mailbox.Error{Code: mailbox.TaskNotFound, Message: "no task `ghost`"}
		}
		return agent.TaskRecord{ID: "t1", Direction: agent.Received, Peer: "lead", State: u.State, Callback: &mailbox.Callback{ChatID: "oc_theirs"}}, nil
	}}))
	for _, state := range []string{"accepted", "working", "completed", "failed", "rejected"} {
		var got agent.TaskRecord
		c.ok("update_task", object{"task_id": "t1", "state": state, "text": "a\nb", "from": "lead"}, &got)
		want := agent.TaskUpdate{TaskID: "t1", From: "lead", State: mailbox.TaskState(state), Text: "a\nb"}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if got.State != want.State || got.Peer != "lead" || got.Callback != nil {
			t.Errorf("%s: got %+v", state, got)
		}
	}
	c.ok("update_task", object{"state": "completed"}, &agent.TaskRecord{})
	if asked.TaskID != "" {
		t.Errorf("the only task: got id %q", asked.TaskID)
	}
	wantIn(t, c.fails("update_task", object{"task_id": "ghost", "state": "failed"}), "TASK_NOT_FOUND: no task `ghost`")
}

func TestWhoAmI(t *testing.T) {
	m := &fakeMailbox{tasks: []agent.TaskRecord{
		{ID: "t4", Direction: agent.Given, Peer: "tester", State: mailbox.Pending, Callback: &mailbox.Callback{ChatID: "oc_mine"}},
		{ID: "t3", Direction: agent.Received, Peer: "lead", State: mailbox.Completed},
		{ID: "t2", Direction: agent.Received, Peer: "lead", State: mailbox.Failed},
		{ID: "t1", Direction: agent.Received, Peer: "lead", State: mailbox.Rejected},
		{ID: "t0", Direction: agent.Received, Peer: "lead", State: mailbox.Working, Callback: &mailbox.Callback{ChatID: "oc_theirs"}},
	}}
	o := options(m)
	o.WhoAmI = func(context.Context) mcptools.Identity {
		return mcptools.Identity{AgentID: "another", BotName: "小码", Description: "writes code", Capabilities: []string{"go"},
			Conversations: []mcptools.Conversation{{Channel: "feishu", ChatID: "oc_x", ChatType: "group", Name: "队", LastMessageAt: time.Unix(1e9, 0).UTC()}},
			Limits:        mcptools.Limits{MaxMessageBytes: 65536, MaxConcurrentTasks: 3, MaxExchanges: 10}}
	}
	c := serve(t, o)
	var got mcptools.Identity
	text := c.ok("who_am_i", object{}, &got)
	want := o.WhoAmI(t.Context())
	want.AgentID, want.Goals, want.OpenTasks = "coder", []string{"coder"}, []agent.TaskRecord{m.tasks[0], m.tasks[4]}
	want.OpenTasks[1].Callback = nil // another's to use
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(m.tasks) != 5 || m.tasks[1].ID != "t3" {
		t.Error("the mailbox's own list was changed")
	}
	wantIn(t, text, `"bot_name":"小码"`, `"last_message_at":"2001-09-09T01:46:40Z"`)

	for range 500 {
		m.tasks = append(m.tasks, agent.TaskRecord{State: mailbox.Working, Direction: "from elsewhere"})
		want.Conversations = append(want.Conversations, want.Conversations[0])
	}
	o.WhoAmI = func(context.Context) mcptools.Identity { return want }
	serve(t, o).ok("who_am_i", nil, &got)
	if len(got.OpenTasks) != 50 || len(got.Conversations) != 200 || got.OpenTasks[0].ID != "t4" {
		t.Errorf("got %d tasks and %d conversations", len(got.OpenTasks), len(got.Conversations))
	}
}

func TestWithoutMailbox(t *testing.T) {
	o := options(nil)
	o.WhoAmI = func(context.Context) mcptools.Identity { return mcptools.Identity{AgentID: "coder"} }
	c := serve(t, o)
	if got, want := c.ok("list_peers", nil, &agent.Peers{}), `{"peers":[],"note":"this agent has no PeerDirectory configured"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var me mcptools.Identity
	if c.ok("who_am_i", nil, &me); me.AgentID != "coder" {
		t.Errorf("got %+v", me)
	}
	c.ok("read_transcript", nil, &object{})
	for _, name := range []string{"send_to_peer", "send_task", "update_task", "read_inbox"} {
		wantIn(t, c.fails(name, nil), "MAILBOX=on")
	}
}

func TestWrongArguments(t *testing.T) {
	c := serve(t, options(&fakeMailbox{})) // whose functions panic when they are called
	long := strings.Repeat("x", 1025)
	for _, tt := range []struct {
		tool string
		give any
		want string
	}{
		{"list_peers", object{"filter": "x"}, "no such argument: filter"},
		{"list_peers", object{"filter": nil}, "no such argument: filter"},
		{"list_peers", "text", "want an object of arguments"},
		{"list_peers", []int{1}, "want an object of arguments"},
		{"send_to_peer", object{"To": "a", "message": "m"}, "no such argument: To"},
		{"send_to_peer", object{"to": []string{"a"}, "message": "m"}, "to: want a string"},
		{"send_to_peer", object{"to": "a", "message": 5}, "message: want a string"},
		{"send_to_peer", object{"to": long, "message": "m"}, "to: want a string of at most 1024 characters"},
		{"send_to_peer", object{"to": "a", "message": "m", "correlation_id": long}, "correlation_id: want a string of at most 1024"},
		{"send_to_peer", object{strings.Repeat("y", 9999): 1}, "[cut: the whole has "},
		{"send_task", object{"to": "a", "task": " \n"}, "task: missing: say what is to be done"},
		{"send_task", object{"to": "a", "task": "t", "deadline": "tomorrow"}, "deadline: want RFC 3339"},
		{"send_task", object{"to": "a", "task": "t", "deadline": "2026-11-20 15:00"}, "deadline: want RFC 3339"},
		{"send_task", object{"to": "a", "task": "t", "deadline_minutes": 0}, "deadline_minutes: want a whole number from 1 to 43200"},
		{"send_task", object{"to": "a", "task": "t", "deadline_minutes": 43201}, "deadline_minutes: want a whole number from 1 to 43200"},
		{"send_task", object{"to": "a", "task": "t", "deadline_minutes": 1.5}, "deadline_minutes: want a whole number"},
		{"send_task", object{"to": "a", "task": "t", "deadline_minutes": "5"}, "deadline_minutes: want a whole number"},
		{"send_task", object{"to": "a", "task": "t", "deadline_minutes": 5, "deadline": "2026-11-20T15:00:00Z"}, "not both"},
		{"send_task", object{"to": "a", "task": "t", "callback_channel": "slack"}, "callback_channel: name the chat, too"},
		{"send_task", object{"to": "a", "task": "t", "callback_chat_id": long}, "callback_chat_id: want a string"},
		{"send_task", object{"to": "a", "task": "t", "forward_of": long}, "forward_of: want a string"},
		{"update_task", object{}, "state: missing"},
		{"update_task", object{"state": "pending"}, "state: want one of accepted working completed failed rejected"},
		{"update_task", object{"state": "done\n# NEW"}, "state: want one of"},
		{"update_task", object{"state": "failed", "task_id": long}, "task_id: want a string"},
		{"read_inbox", object{"limit": 65}, "limit: want a whole number from 0 to"},
		{"read_inbox", object{"limit": -1}, "limit: want a whole number from 0 to"},
		{"read_inbox", object{"limit": 1e30}, "limit: want a whole number from 0 to"},
		{"read_transcript", object{"limit": 201}, "limit: want a whole number from 0 to"},
		{"read_transcript", object{"chat_id": long}, "chat_id: want a string"},
		{"read_transcript", object{"chat_id": "oc_secret"}, "chat_id: you are in no such group"},
		{"read_transcript", object{"chat_id": "oc_secret", "channel": "feishu"}, "chat_id: you are in no such group"},
	} {
		t.Run(tt.tool+" "+tt.want[:min(len(tt.want), 40)], func(t *testing.T) {
			wantIn(t, c.fails(tt.tool, tt.give), tt.want)
		})
	}
	if _, err := c.session.CallTool(t.Context(), nil); err == nil {
		t.Error("a call without a name was accepted")
	}
}

// What a caller wrote into an argument is not repeated by the error about it: it may be a message's text or a secret.
func TestWrongValuesAreNotRepeated(t *testing.T) {
	c := serve(t, options(&fakeMailbox{}))
	const secret = "s3cret has type words"
	for tool, give := range map[string]object{
		"send_to_peer":    {"to": "a", "message": []string{secret}},
		"send_task":       {"to": "a", "task": "t", "deadline": secret},
		"update_task":     {"state": secret},
		"read_inbox":      {"limit": secret},
		"read_transcript": {"chat_id": "oc_secret"},
		"get_file":        {"message_id": secret + "\n", "key": "k"},
	} {
		if got := c.fails(tool, give); strings.Contains(got, "s3cret") || strings.Contains(got, "oc_secret") {
			t.Errorf("%s: the error repeats the value: %s", tool, got)
		}
	}
}

// Faults of this side are logged and not told, and no text of a message is either's.
func TestFaultsAreLogged(t *testing.T) {
	var log bytes.Buffer
	o := options(&fakeMailbox{
		sendToPeer: func(agent.PeerMessage) (agent.PeerResult, error) {
			return agent.PeerResult{}, errors.New("open /secret/path: no space left")
		},
		updateTask: func(agent.TaskUpdate) (agent.TaskRecord, error) {
			return agent.TaskRecord{}, fmt.Errorf("wrapped: %w", mailbox.Invalid("text", "%s", strings.Repeat("y", 99_999)))
		},
	})
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := serve(t, o)
	got := c.fails("send_to_peer", object{"to": "a", "message": "my words"})
	if strings.Contains(got, "secret") || !strings.Contains(got, "its log says why") {
		t.Errorf("got %q", got)
	}
	wantIn(t, log.String(), "level=ERROR", "tool=send_to_peer", "no space left")
	if strings.Contains(log.String(), "my words") {
		t.Errorf("a message's text is in the log: %s", &log)
	}
	log.Reset()
	if got := c.fails("update_task", object{"state": "failed"}); len(got) > 5000 || !strings.HasPrefix(got, "INVALID_MESSAGE: text: yyy") {
		t.Errorf("got %d bytes: %.60s", len(got), got)
	}
	if log.Len() > 0 {
		t.Errorf("a refusal is in the log: %s", &log)
	}
}

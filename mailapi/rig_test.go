package mailapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// box is a mailbox of functions that a test may replace. It notes what reaches it.
type box struct {
	mailapi.Mailbox // what a test does not set must not be called
	agents          func() ([]mailbox.Card, error)
	listPeers       func() (agent.Peers, error)
	sendToPeer      func(agent.PeerMessage) (agent.PeerResult, error)
	goals           []string
	addGoal         func(string) (string, error)
	removeGoal      func(string) error
	send            func(agent.Draft) (agent.Sent, error)
	inbox           func(int) ([]agent.Mail, int, error)
	drain           func(int) (agent.Drained, error)
	ack             func(string) error
	nack            func(string, mailbox.Code, string) error
	sendTask        func(agent.TaskDraft) (agent.Sent, error)
	updateTask      func(agent.TaskUpdate) (agent.TaskRecord, error)
	records         []agent.TaskRecord
	deadLetters     func() ([]agent.DeadLetter, error)
	replay          func(string) error
	attach          func(agent.Send) agent.Line
	reached         []any
}

func (b *box) Self() mailbox.AgentID { return "agent_a" }

func (b *box) Agents(context.Context) ([]mailbox.Card, error) { return b.agents() }

func (b *box) ListPeers(context.Context) (agent.Peers, error) { return b.listPeers() }

func (b *box) SendToPeer(_ context.Context, m agent.PeerMessage) (agent.PeerResult, error) {
	b.reached = append(b.reached, m)
	return b.sendToPeer(m)
}

func (b *box) Goals() []string { return b.goals }

func (b *box) AddGoal(_ context.Context, goal string) (string, error) {
	b.reached = append(b.reached, goal)
	return b.addGoal(goal)
}

func (b *box) RemoveGoal(_ context.Context, goal string) error {
	b.reached = append(b.reached, goal)
	return b.removeGoal(goal)
}

func (b *box) Send(_ context.Context, d agent.Draft) (agent.Sent, error) {
	b.reached = append(b.reached, d)
	return b.send(d)
}

func (b *box) Inbox(_ context.Context, limit int) ([]agent.Mail, int, error) {
	b.reached = append(b.reached, limit)
	return b.inbox(limit)
}

// drained is what a drain was asked for.
type drained struct {
	Limit  int
	Goal   string
	Cursor string
}

func (b *box) Drain(_ context.Context, limit int, goal, cursor string) (agent.Drained, error) {
	b.reached = append(b.reached, drained{limit, goal, cursor})
	return b.drain(limit)
}

func (b *box) Ack(_ context.Context, id string) error {
	b.reached = append(b.reached, id)
	return b.ack(id)
}

// refusal is what Nack was given.
type refusal struct {
	ID      string
	Code    mailbox.Code
	Message string
}

func (b *box) Nack(_ context.Context, id string, code mailbox.Code, message string) error {
	b.reached = append(b.reached, refusal{id, code, message})
	return b.nack(id, code, message)
}

func (b *box) SendTask(_ context.Context, d agent.TaskDraft) (agent.Sent, error) {
	b.reached = append(b.reached, d)
	return b.sendTask(d)
}

func (b *box) UpdateTask(_ context.Context, u agent.TaskUpdate) (agent.TaskRecord, error) {
	b.reached = append(b.reached, u)
	return b.updateTask(u)
}

func (b *box) Tasks() []agent.TaskRecord { return b.records }

func (b *box) Task(id string) (found []agent.TaskRecord) {
	for _, r := range b.records {
		if r.ID == id {
			found = append(found, r)
		}
	}
	return found
}

func (b *box) DeadLetters() ([]agent.DeadLetter, error) { return b.deadLetters() }

func (b *box) Replay(_ context.Context, id string) error {
	b.reached = append(b.reached, id)
	return b.replay(id)
}

func (b *box) Attach(send agent.Send) agent.Line { return b.attach(send) }

var noon = time.Date(2026, 4, 26, 12, 0, 0, 0, time.UTC)

// letter is an envelope to this agent.
func letter(id string) mailbox.Envelope {
	return mailbox.Envelope{ID: id, From: "agent_b", To: "agent_a", Timestamp: noon, Type: mailbox.TypeMessage, Priority: 3,
		Hops: 3, Trace: []mailbox.AgentID{"agent_b"}, Content: mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: "a < b"}}}}
}

func task(id string, direction agent.Direction, state mailbox.TaskState) agent.TaskRecord {
	return agent.TaskRecord{ID: id, Direction: direction, Peer: "agent_b", State: state, MessageID: "msg_" + id, Hops: 3,
		CreatedAt: noon, UpdatedAt: noon}
}

// newBox is a mailbox in which everything succeeds.
func newBox() *box {
	return &box{
		goals: []string{"agent_a"},
		agents: func() ([]mailbox.Card, error) {
			return []mailbox.Card{{AgentID: "agent_a", Status: mailbox.Idle, MaxTasks: 3, RegisteredAt: noon, LastHeartbeat: noon},
				{AgentID: "研究员", Description: "finds <things>", Capabilities: []string{"search"}, Status: mailbox.Offline,
					AllowFrom: []mailbox.AgentID{"*"}, CurrentTasks: []string{"t1"}, Goals: []string{"g1"}, RegisteredAt: noon, LastHeartbeat: noon}}, nil
		},
		listPeers: func() (agent.Peers, error) {
			return agent.Peers{Peers: []agent.Peer{{AgentID: "agent_b", Description: "<b>", Reachable: true, Status: mailbox.Idle}}}, nil
		},
		sendToPeer: func(agent.PeerMessage) (agent.PeerResult, error) {
			return agent.PeerResult{DeliveredTo: []string{"g1"}}, nil
		},
		addGoal:    func(goal string) (string, error) { return "goal_" + goal, nil },
		removeGoal: func(string) error { return nil },
		send:       func(agent.Draft) (agent.Sent, error) { return agent.Sent{ID: "msg_1"}, nil },
		inbox: func(int) ([]agent.Mail, int, error) {
			return []agent.Mail{{Envelope: letter("msg_b1"), Goal: "g1"}}, 7, nil
		},
		drain: func(int) (agent.Drained, error) {
			return agent.Drained{Messages: []agent.Mail{{Envelope: letter("msg_b1")}}, Rendered: "# PEER MESSAGES", Dropped: 1, Waiting: 2, Cursor: "c7"}, nil
		},
		ack:  func(string) error { return nil },
		nack: func(string, mailbox.Code, string) error { return nil },
		sendTask: func(agent.TaskDraft) (agent.Sent, error) {
			return agent.Sent{ID: "msg_1", TaskID: "t1", Note: "it waits"}, nil
		},
		updateTask: func(u agent.TaskUpdate) (agent.TaskRecord, error) {
			return task(u.TaskID, agent.Received, u.State), nil
		},
		records: []agent.TaskRecord{task("t3", agent.Received, mailbox.Working), task("t2", agent.Given, mailbox.Working),
			task("t2", agent.Received, mailbox.Rejected)},
		deadLetters: func() ([]agent.DeadLetter, error) {
			return []agent.DeadLetter{{ID: "msg_d", Code: mailbox.AgentOffline, Reason: "not taken", Attempts: 4, DeadAt: noon, Envelope: letter("msg_d")}}, nil
		},
		replay: func(string) error { return nil },
	}
}

// fakes is what is behind the API: a mailbox, and what a test may replace.
type fakes struct {
	mailapi.Options
	Token string
	sent  []relay.Outbound
}

func newFakes() *fakes { return &fakes{} }

func withMailbox(b *box) *fakes {
	f := newFakes()
	f.Mailbox = b
	f.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"jsonrpc":"2.0","method":"` + r.Method + `"}`))
	})
	return f
}

// handler is the whole local API.
func (f *fakes) handler() http.Handler {
	return httpapi.New(httpapi.Options{
		Token: f.Token,
		Mail:  mailapi.New(f.Options),
		Send: func(_ context.Context, out relay.Outbound) (relay.Sent, error) {
			f.sent = append(f.sent, out)
			return relay.Sent{RelayMsgID: "r1", Relayed: true}, nil
		},
		Events: &httpapi.Events{},
		Logger: f.Logger,
	})
}

func routes(t *testing.T) []string { return apitest.Routes(t, newFakes().handler()) }

func ask(f *fakes, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return apitest.Ask(f.handler(), method, path, body, change...)
}

func call(t *testing.T, f *fakes, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	return apitest.Call(t, f.handler(), method, path, body, change...)
}

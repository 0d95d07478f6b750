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

// box is a mailbox in which everything succeeds, or fails with an error. It notes what reaches it.
type box struct {
	err     error
	empty   bool // there is nothing in it
	records []agent.TaskRecord
	dead    []agent.DeadLetter
	attach  func(agent.Send) agent.Line
	reached []any
}

type drained struct {
	Limit        int
	Goal, Cursor string
}

type refused struct {
	ID      string
	Code    mailbox.Code
	Message string
}

// answer notes what reached b, and is its answer.
func answer[T any](b *box, reached any, full T) (out T, err error) {
	if reached != nil {
		b.reached = append(b.reached, reached)
	}
	if b.empty || b.err != nil {
		return out, b.err
	}
	return full, nil
}

var noon = time.Date(2026, 4, 26, 12, 0, 0, 0, time.UTC)

// letter is an envelope to this agent.
func letter(id string) mailbox.Envelope {
	return mailbox.Envelope{ID: id, From: "agent_b", To: "agent_a", Timestamp: noon, Type: mailbox.TypeMessage, Priority: 3,
		Hops: 3, Trace: []mailbox.AgentID{"agent_b"}, Content: mailbox.Content{Parts: []mailbox.Part{mailbox.TextPart("a < b")}}}
}

func task(id string, direction agent.Direction, state mailbox.TaskState) agent.TaskRecord {
	return agent.TaskRecord{ID: id, Direction: direction, Peer: "agent_b", State: state, MessageID: "msg_" + id, Hops: 3,
		CreatedAt: noon, UpdatedAt: noon}
}

func (b *box) Self() mailbox.AgentID { return "agent_a" }

func (b *box) Agents(context.Context) ([]mailbox.Card, error) {
	return answer(b, nil, []mailbox.Card{
		{AgentID: "agent_a", Status: mailbox.Idle, MaxTasks: 3, RegisteredAt: noon, LastHeartbeat: noon},
		{AgentID: "研究员", Description: "finds <things>", Capabilities: []string{"search"}, Status: mailbox.Offline,
			AllowFrom: []mailbox.AgentID{"*"}, CurrentTasks: []string{"t1"}, Goals: []string{"g1"}, RegisteredAt: noon,
			LastHeartbeat: noon}})
}

func (b *box) ListPeers(context.Context) (agent.Peers, error) {
	return answer(b, nil, agent.Peers{Peers: []agent.Peer{{AgentID: "agent_b", Description: "<b>", Reachable: true, Status: "idle"}}})
}

func (b *box) SendToPeer(_ context.Context, m agent.PeerMessage) (agent.PeerResult, error) {
	return answer(b, m, agent.PeerResult{DeliveredTo: []string{"g1"}})
}

func (b *box) Goals() (goals []string) {
	goals, _ = answer(b, nil, []string{"agent_a"})
	return goals
}

func (b *box) AddGoal(_ context.Context, goal string) (string, error) {
	return answer(b, goal, "goal_"+goal)
}

func (b *box) RemoveGoal(_ context.Context, goal string) error {
	_, err := answer(b, goal, 0)
	return err
}

func (b *box) Send(_ context.Context, d agent.Draft) (agent.Sent, error) {
	sent := agent.Sent{ID: "msg_1"}
	if d.Type == mailbox.TypeTask {
		sent.TaskID, sent.Note = "t1", "it waits"
	}
	return answer(b, d, sent)
}

func (b *box) Inbox(_ context.Context, limit int) ([]agent.Mail, int, error) {
	mail, err := answer(b, limit, []agent.Mail{{Envelope: letter("msg_b1"), Goal: "g1"}})
	return mail, len(mail) * 7, err
}

func (b *box) Drain(_ context.Context, limit int, goal, cursor string) (agent.Drained, error) {
	return answer(b, drained{limit, goal, cursor}, agent.Drained{Messages: []agent.Mail{{Envelope: letter("msg_b1")}},
		Rendered: "# PEER MESSAGES", Dropped: 1, Waiting: 2, Cursor: "c7"})
}

func (b *box) Ack(ctx context.Context, id string) error    { return b.RemoveGoal(ctx, id) }
func (b *box) Replay(ctx context.Context, id string) error { return b.RemoveGoal(ctx, id) }

func (b *box) Nack(_ context.Context, id string, code mailbox.Code, message string) error {
	_, err := answer(b, refused{id, code, message}, 0)
	return err
}

func (b *box) UpdateTask(_ context.Context, u agent.TaskUpdate) (agent.TaskRecord, error) {
	return answer(b, u, task(u.TaskID, agent.Received, u.State))
}

func (b *box) Tasks() []agent.TaskRecord { return b.records }

func (b *box) DeadLetters() []agent.DeadLetter { return b.dead }

func (b *box) Attach(send agent.Send) agent.Line { return b.attach(send) }

func newBox() *box {
	return &box{records: []agent.TaskRecord{task("t3", agent.Received, mailbox.Working), task("t2", agent.Given, mailbox.Working),
		task("t2", agent.Received, mailbox.Rejected)},
		dead: []agent.DeadLetter{{ID: "msg_d", Code: mailbox.AgentOffline, Reason: "not taken", Attempts: 4, DeadAt: noon,
			Envelope: letter("msg_d")}}}
}

// fakes is what is behind the API: a mailbox, and what a test may replace.
type fakes struct {
	mailapi.Options
	Token string
}

func withMailbox(b *box) *fakes {
	f := &fakes{}
	f.Mailbox = b
	f.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"jsonrpc":"2.0","method":"` + r.Method + `"}`))
	})
	return f
}

// handler is the whole local API, of which nothing but mail works.
func (f *fakes) handler() http.Handler {
	return httpapi.New(httpapi.Options{Token: f.Token, Mail: mailapi.New(f.Options), Events: &httpapi.Events{}, Logger: f.Logger,
		Send: func(context.Context, relay.Outbound) (relay.Sent, error) { panic("it went to the group, too") }})
}

func ask(f *fakes, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return apitest.Ask(f.handler(), method, path, body, change...)
}

func call(t *testing.T, f *fakes, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	return apitest.Call(t, f.handler(), method, path, body, change...)
}

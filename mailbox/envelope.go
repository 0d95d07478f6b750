package mailbox

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Type says what an envelope is for (docs/protocol.md 6.2).
type Type string

// The types.
const (
	TypeMessage           Type = "message"
	TypeQuestion          Type = "question"
	TypeAnswer            Type = "answer"
	TypeNotification      Type = "notification"
	TypeTask              Type = "task"
	TypeTaskUpdate        Type = "task_update"
	TypeTaskAssign        Type = "task_assign"
	TypeTaskComplete      Type = "task_complete"
	TypeTaskFailed        Type = "task_failed"
	TypeCodeReviewRequest Type = "code_review_request"
	TypeCodeReviewResult  Type = "code_review_result"
	TypeTestRequest       Type = "test_request"
	TypeTestResult        Type = "test_result"
	TypeStatusReport      Type = "status_report"
	TypeHeartbeat         Type = "heartbeat"
	TypeError             Type = "error"
	TypeAck               Type = "ack"
	TypeNack              Type = "nack"
	TypePing              Type = "ping"
	TypePong              Type = "pong"
	TypeRegister          Type = "handshake.register"
	TypeRegistered        Type = "handshake.ack"
)

// Envelope is one message between two agents.
type Envelope struct {
	ID        string    `json:"id"`
	From      AgentID   `json:"from"`
	To        AgentID   `json:"to"`
	Timestamp time.Time `json:"timestamp"` // RFC 3339, UTC, milliseconds
	Type      Type      `json:"type"`
	Priority  Priority  `json:"priority"`
	Hops      int       `json:"ttl"`   // forwardings left
	Trace     []AgentID `json:"trace"` // who sent and who forwarded it
	Task      *Task     `json:"task,omitempty"`
	Content   Content   `json:"content"`
	Callback  *Callback `json:"callback,omitempty"`
	ReplyTo   string    `json:"reply_to,omitempty"` // id of the envelope that this answers
	Metadata  Metadata  `json:"metadata"`
}

// Priority is 1 (critical) to 5 (background); a lower number goes first.
type Priority int

// Task is the piece of work that an envelope is about.
type Task struct {
	ID       string    `json:"id"`
	State    TaskState `json:"state,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`
}

// TaskState is a step of a task's life cycle.
type TaskState string

// The states. A task goes pending → accepted → working → completed or failed, or
// it ends as rejected.
const (
	Pending   TaskState = "pending"
	Accepted  TaskState = "accepted"
	Working   TaskState = "working"
	Completed TaskState = "completed"
	Failed    TaskState = "failed"
	Rejected  TaskState = "rejected"
)

// Content is what an envelope says, in parts.
type Content struct {
	Parts []Part `json:"parts"`
}

// The types of parts.
const (
	PartText = "text"
	PartData = "data"
	PartFile = "file"
)

// Part is a text, a piece of data or the path of a file.
type Part struct {
	Type string          `json:"type"` // PartText, PartData or PartFile
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"` // any JSON value
	Path string          `json:"path,omitempty"`
}

// Callback is the conversation that a task's results belong in.
type Callback struct {
	Channel   string `json:"channel"`
	ChatID    string `json:"chat_id,omitempty"`
	SessionID string `json:"session_id,omitempty"`
}

// Metadata is the rest. Fields of other programs are kept in Extra.
type Metadata struct {
	CorrelationID string
	TTL           *int // life in seconds; 0: no limit; nil: until a task's deadline, else DefaultTTL
	RequiresAck   bool
	RetryCount    int
	MaxRetries    *int // nil: MAX_RETRIES of the sender
	Tags          []string
	Goal          string // goal_id: the session of the receiver that it is for
	Extra         map[string]json.RawMessage
}

// New returns an envelope without content, with an id of its own.
func New(typ Type, from, to AgentID, now time.Time) Envelope {
	return Envelope{ID: NewID(from, now), From: from, To: to, Timestamp: now.UTC().Truncate(time.Millisecond), Type: typ,
		Priority: typ.DefaultPriority(), Hops: DefaultHops, Trace: []AgentID{from}}
}

// TextPart is a part of a content.
func TextPart(text string) Part { return Part{Type: PartText, Text: text} }

// Text is the text parts of e, joined by newlines.
func (e *Envelope) Text() string {
	var texts []string
	for _, p := range e.Content.Parts {
		if p.Type == PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Expires is when e's life ends; zero: never. A task that names a deadline and no
// life lives until its deadline.
func (e *Envelope) Expires() time.Time {
	if e.Metadata.TTL == nil && e.Type.GivesTask() && e.Task != nil && !e.Task.Deadline.IsZero() {
		return e.Task.Deadline
	}
	life := DefaultTTL
	if e.Metadata.TTL != nil {
		life = *e.Metadata.TTL
	}
	if life == 0 {
		return time.Time{}
	}
	return e.Timestamp.Add(time.Duration(life) * time.Second)
}

// Chat is the chat that c names: ChatID, else the part of SessionID behind the
// channel, else "" (docs/protocol.md 6.1). c may be nil.
func (c *Callback) Chat() string {
	if c == nil {
		return ""
	}
	if c.ChatID != "" {
		return c.ChatID
	}
	chat, _ := strings.CutPrefix(c.SessionID, c.Channel+":")
	if chat == c.SessionID {
		return ""
	}
	return chat
}

// The kinds of types, as bits.
const (
	hasContent = 1 << iota // it must have content
	asks                   // see [Type.Asks]
	answers                // see [Type.Answers]
	givesTask              // see [Type.GivesTask]
	taskStep               // see [Type.TaskStep]
	control                // see [Type.Control]
)

// typeInfo is what is known of a type (docs/protocol.md 6.2).
type typeInfo struct {
	name     Type
	priority Priority  // of an envelope that has none
	state    TaskState // of a task that the type means by itself; "": any, or it is about no task
	kinds    int
}

// types are all types.
var types = []typeInfo{
	{TypeMessage, 3, "", hasContent},
	{TypeQuestion, 3, "", hasContent | asks},
	{TypeAnswer, 3, "", hasContent | answers},
	{TypeNotification, 3, "", hasContent},
	{TypeTask, 2, Pending, givesTask | asks},
	{TypeTaskUpdate, 3, "", taskStep | answers},
	{TypeTaskAssign, 2, Pending, givesTask | asks},
	{TypeTaskComplete, 2, Completed, taskStep | answers},
	{TypeTaskFailed, 2, Failed, taskStep | answers},
	{TypeCodeReviewRequest, 3, "", asks},
	{TypeCodeReviewResult, 3, "", answers},
	{TypeTestRequest, 3, "", asks},
	{TypeTestResult, 3, "", answers},
	{TypeStatusReport, 4, "", 0},
	{TypeHeartbeat, 5, "", control},
	{TypeError, 1, "", 0},
	{TypeAck, 3, "", control | answers},
	{TypeNack, 3, "", control | answers},
	{TypePing, 5, "", control},
	{TypePong, 5, "", control | answers},
	{TypeRegister, 3, "", control},
	{TypeRegistered, 3, "", control | answers},
}

// typeNames are the names of all types.
var typeNames = func() (names []Type) {
	for _, t := range types {
		names = append(names, t.name)
	}
	return names
}()

// info is what is known of t; an unknown type has no kind.
func (t Type) info() typeInfo {
	if i := slices.Index(typeNames, t); i >= 0 {
		return types[i]
	}
	return typeInfo{priority: 3}
}

// Known reports whether t is one of the types.
func (t Type) Known() bool { return t.info().name != "" }

func (t Type) is(kind int) bool { return t.info().kinds&kind != 0 }

// DefaultPriority is the priority of an envelope of t that has none.
func (t Type) DefaultPriority() Priority { return t.info().priority }

// State is the state of a task that t means by itself; "": any, or t is about no task.
func (t Type) State() TaskState { return t.info().state }

// Asks reports whether t may be answered by one result.
func (t Type) Asks() bool { return t.is(asks) }

// Answers reports whether t answers something: then it is no forwarding.
func (t Type) Answers() bool { return t.is(answers) }

// Result reports whether a callback is honoured on t.
func (t Type) Result() bool { return t == TypeAnswer || t.TaskStep() }

// Control reports whether t is dealt with by mailboxes themselves, whose bots and
// models do not see it.
func (t Type) Control() bool { return t.is(control) }

// GivesTask reports whether t gives a task.
func (t Type) GivesTask() bool { return t.is(givesTask) }

// TaskStep reports whether t is a step of a task.
func (t Type) TaskStep() bool { return t.is(taskStep) }

// AboutTask reports whether t gives a task or is a step of one. Such an envelope is
// acknowledged when the receiver's mailbox has recorded it, any other when the bot has it.
func (t Type) AboutTask() bool { return t.is(givesTask | taskStep) }

// taskStates lists all states, in the order of a task's life.
var taskStates = []TaskState{Pending, Accepted, Working, Completed, Failed, Rejected}

// TaskStates returns all states, in the order of a task's life.
func TaskStates() []TaskState { return slices.Clone(taskStates) }

// Ended reports whether a task in that state has ended.
func (s TaskState) Ended() bool { return s == Completed || s == Failed || s == Rejected }

// Known reports whether s is one of the states.
func (s TaskState) Known() bool { return slices.Contains(taskStates, s) }

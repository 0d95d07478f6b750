package mailbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

// Bounds of an envelope. What is over one is refused with INVALID_MESSAGE, by
// [Decode] where it was received, by [Signing.Seal] where it is to be sent.
const (
	// MaxEnvelope is the most bytes of an encoded envelope.
	MaxEnvelope = 1 << 20
	// MaxBody is the most bytes that the text parts of a message have together.
	MaxBody = 64 << 10
	// MaxID is the most bytes of the id of a message, a task, a goal or a correlation.
	MaxID = 200
	// MaxAgentID is the most bytes of an agent's name.
	MaxAgentID = 64
	// MaxParts, MaxTags and MaxTrace are the most entries of these lists.
	MaxParts = 100
	MaxTags  = 50
	MaxTrace = 64
	// MaxFields is the most fields of other programs that metadata has.
	MaxFields = 100
	// MaxHops is the most forwardings that an envelope may have left.
	MaxHops = MaxTrace
	// MaxLife is the most seconds of a life that ends; 0 is one without end.
	MaxLife = 10 * 365 * 24 * 60 * 60

	// maxPath and maxWord are the most bytes of the path of a file, and of an entry of a list
	// of words; maxRetries is the most retries.
	maxPath    = 4096
	maxWord    = 200
	maxRetries = 1000

	// maxDepth is how deep the lists and objects of JSON from others are nested
	// at most; deeper is no message but an attack on the stack.
	maxDepth = 64
)

// Defaults of what an envelope leaves out.
const (
	DefaultHops = 3
	DefaultTTL  = 3600 // life in seconds
)

// reserved is the name that means the agent itself in the local API
// (/v1/peers/self/…).
const reserved = "self"

// CheckAgent reports why id cannot name an agent, as an [*Error] without a
// field. A name becomes that of a folder and a part of keys, beside
// _registry.json and hidden files: 1 to 64 bytes of printed characters without
// spaces and without / \ @ < > " ' * : | ?, not beginning with a dot or an
// underscore, and not "self".
func CheckAgent(id AgentID) error { return checkAgent(string(id)) }

func checkAgent(id string) error {
	switch {
	case id == "":
		return Invalid("", "want an agent's name")
	case len(id) > MaxAgentID:
		return Invalid("", "an agent's name has at most %d bytes, this one %d", MaxAgentID, len(id))
	case !utf8.ValidString(id):
		return Invalid("", "an agent's name is UTF-8")
	case strings.ContainsFunc(id, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return Invalid("", "an agent's name has no control or invisible characters")
	case strings.ContainsFunc(id, unicode.IsSpace):
		return Invalid("", "an agent's name has no spaces; write - or _ instead")
	case strings.ContainsAny(id, `/\@<>"'*:|?`):
		return Invalid("", `an agent's name has none of / \ @ < > " ' * : | ?`)
	case id[0] == '.' || id[0] == '_':
		return Invalid("", "an agent's name does not begin with . or _")
	case id == reserved:
		return Invalid("", `"self" is not a name: it stands for the agent itself in the API`)
	}
	return nil
}

// CheckID reports why id cannot be the id of a message, a task, a goal or a
// correlation, as an [*Error] without a field. Other programs' ids may have any
// form, also that of a path: 1 to 200 bytes of UTF-8 without control characters.
func CheckID(id string) error {
	if !utf8.ValidString(id) {
		return Invalid("", "must be UTF-8")
	}
	return checkLine(id, MaxID)
}

// checkLine reports why a text is not one of 1 to limit bytes without control characters.
func checkLine(s string, limit int) error {
	switch {
	case s == "":
		return Invalid("", "must not be empty")
	case len(s) > limit:
		return Invalid("", "has %d bytes, at most %d", len(s), limit)
	case strings.ContainsFunc(s, unicode.IsControl):
		return Invalid("", "must have no control characters")
	}
	return nil
}

// NewID makes the id of an envelope: msg_<ms>_<from>_<random>. Two of the same
// millisecond differ.
func NewID(from AgentID, at time.Time) string {
	return fmt.Sprintf("msg_%d_%s_%s", at.UnixMilli(), from, strings.ToLower(rand.Text()[:10]))
}

// fingerprintBytes is how many bytes of a hash a fingerprint has.
const fingerprintBytes = 8

// Fingerprint is a hash, in hex, of what e says, from whom and to whom. Other
// programs make ids that two messages can share; such messages differ in their
// fingerprints. What changes when a message is sent again (timestamp, retries) is
// not part of it, nor is the session that it is for.
func (e *Envelope) Fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q", e.From, e.To, e.Type, e.ReplyTo, e.Metadata.CorrelationID)
	if t := e.Task; t != nil {
		fmt.Fprintf(h, " task %q %q %d", t.ID, t.State, t.Deadline.UnixMilli())
	}
	if c := e.Callback; c != nil {
		fmt.Fprintf(h, " callback %q %q %q", c.Channel, c.ChatID, c.SessionID)
	}
	for _, p := range e.Content.Parts {
		fmt.Fprintf(h, " part %q %q %q %q", p.Type, p.Text, p.Data, p.Path)
	}
	return hex.EncodeToString(h.Sum(nil)[:fingerprintBytes])
}

// Names reports whether name is the id of a message or what [Envelope.UniqueID]
// makes of it.
func Names(name, id string) bool {
	sum, ok := strings.CutPrefix(name, id)
	return ok && (sum == "" || sum[0] == '_' && len(sum) == 1+2*fingerprintBytes)
}

// UniqueID is an id for e that no other message has: its own, with its
// fingerprint behind it.
func (e *Envelope) UniqueID() string {
	sum := e.Fingerprint()
	if len(e.ID)+1+len(sum) > MaxID {
		return "msg_" + sum
	}
	return e.ID + "_" + sum
}

// SharedID reports whether e's id is of the form msg_<ms>_<from>, which another
// program gives to all messages of one millisecond.
func (e *Envelope) SharedID() bool {
	ms, ok := strings.CutSuffix(e.ID, "_"+string(e.From))
	return ok && millisecondForm.MatchString(ms)
}

var millisecondForm = regexp.MustCompile(`^msg_[0-9]+$`)

// Code says why something was refused (docs/protocol.md 6.8).
type Code string

// The codes.
const (
	AgentBusy      Code = "AGENT_BUSY"
	AgentOffline   Code = "AGENT_OFFLINE"
	InvalidMessage Code = "INVALID_MESSAGE"
	TaskNotFound   Code = "TASK_NOT_FOUND"
	Unauthorized   Code = "UNAUTHORIZED"
	RateLimited    Code = "RATE_LIMITED"

	// BadSignature is never sent to another agent: who did not sign is not answered.
	BadSignature Code = "BAD_SIGNATURE"
)

// Retriable reports whether a message refused with c is sent again.
func (c Code) Retriable() bool { return c == AgentBusy || c == AgentOffline || c == RateLimited }

// Error is a refusal.
type Error struct {
	Code    Code
	Field   string // of the envelope, such as "task.deadline"; "" where it is about no field
	Message string // says how to fix it
	// RetryAfter is how long to wait before the next try; 0: that is not known.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Refused is a refusal with a code, about a field or no field ("").
func Refused(code Code, field, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Invalid is a refusal for a field that is not as it should be.
func Invalid(field, format string, args ...any) *Error {
	return Refused(InvalidMessage, field, format, args...)
}

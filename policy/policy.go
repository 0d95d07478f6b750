// Package policy decides whether a bot's message is passed on to another bot,
// so that bots that receive each other's messages stop. It is pure: values in,
// a verdict out, no files, no network, no clock but the judge's timeout.
//
// # Depth
//
// [Depth] counts the messages of bots in a row that end with a given one. After
// user → A → B → A the last message has depth 3. The count runs backwards over
// the transcript's tail in the order of ts and ends at a person's message, or
// at the newest user_ts that a counted sender knew of. The following count as
// one:
//
//   - repeats of a message_id;
//   - pieces of one answer: neighbours of one sender with the same parent_id or
//     of one send, each at most [PieceGap] after the last write of the one before;
//   - parallel answers: the first direct answer of each bot to the last message of
//     a person, with the pieces that follow each.
//
// What a bot recalled does not count: it may have written it anew.
//
// A bot's first direct answer to the last message of a person has depth 1 itself,
// even if late replies to older messages were written before it.
//
// A topic is counted on its own, but a bot's new topic does not start from
// zero: at its beginning the count continues with its root message and the
// messages before that. [Depth] describes inconsistent and incomplete
// histories.
//
// # Tiers
//
// [Decide] goes through three tiers in this order:
//
//	hard_limit  depth >= MaxDepth    stop, max_depth
//	threshold   depth <= Threshold   pass
//	judge       between, Check set   the Judge answers YES or NO
//	judge_off   between, Check unset pass
//
// The hard limit is code, and no answer of a model lifts it: in any
// conversation of bots, a bounded number of their messages follows a person's.
// If the judge fails or is too slow the reason is judge_error, and the message
// is stopped unless Limits.OnErrorAllow is set.
//
// # People
//
// A person's message is never stopped. [DecideUser] decides whether a bot
// should answer a person's message that does not address it.
package policy

import "time"

// Roles of an [Entry]. An empty role is a bot's; entries of any other role are
// neither counted nor do they end a count.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// PieceGap is how long after a piece of an answer the next may follow. A later
// one counts as a message of its own.
const PieceGap = 10 * time.Second

// Entry is one message of a chat as the transcript holds it. TS and UserTS are
// Unix milliseconds; empty fields are unknown.
type Entry struct {
	Role       string // RoleUser or RoleAssistant
	Sender     string // agent name of a bot, name or id of a person
	SenderName string // display name; used for texts only
	MessageID  string
	ParentID   string // message that this one answers
	RootID     string // first message of its topic
	ThreadID   string // topic; empty in the chat itself
	PartOf     string // first message of the send of which this is a later piece
	Content    string
	TS         int64
	UserTS     int64 // ts of the newest user message that the sender knew of
	FinalTS    int64 // when its text was final, if that was later than TS
	Recalled   bool  // a bot's message does not count then
}

func (e *Entry) byUser() bool { return e.Role == RoleUser }

func (e *Entry) byBot() bool { return e.Role == RoleAssistant || e.Role == "" }

// Count configures [Depth]. The zero value counts messages and has no idle
// reset.
type Count struct {
	// Turns counts neighbouring messages of one sender once.
	Turns bool `envconfig:"BOT_REPLY_DEPTH_COUNT" default:"messages" oneof:"messages|turns" desc:"what the depth counts; turns: consecutive messages of one bot count once"`
	// IdleReset is the length of a pause that ends the count like a person's message; 0:
	// none.
	IdleReset time.Duration `envconfig:"BOT_REPLY_IDLE_RESET" default:"0" range:"0s..8760h" desc:"a pause this long resets the depth, like a person's message; 0: never"`
}

// Limits are the numbers of the three tiers.
type Limits struct {
	// MaxDepth stops every message at least this deep; 1 or less stops all of them.
	MaxDepth int `envconfig:"MAX_BOT_REPLY_DEPTH" default:"3" range:"0..1000" desc:"hard limit: a bot's message of this depth or more is stopped"`
	// Threshold passes messages at most this deep without a judge.
	Threshold int `envconfig:"BOT_REPLY_LLM_THRESHOLD" default:"1" range:"0..1000" desc:"a message up to this depth passes without the judge"`
	// Check asks the judge about depths between the two; without it they pass.
	Check bool `envconfig:"BOT_REPLY_LLM_CHECK" default:"true" desc:"asks the judge between threshold and limit; else these pass"`
	// OnErrorAllow passes a message on which the judge gave no verdict.
	OnErrorAllow bool `envconfig:"BOT_REPLY_LLM_ON_ERROR" default:"deny" oneof:"deny|allow" desc:"what happens to a message when the judge fails"`
	// Timeout bounds the wait for the judge; 0 or less means DefaultTimeout.
	Timeout time.Duration `envconfig:"BOT_REPLY_LLM_TIMEOUT" default:"10s" range:"100ms..5m" desc:"how long the judge may take"`
	// Count is for the caller to pass to Depth; Decide does not read it.
	Count Count
}

// DefaultTimeout bounds the wait for a judge if Limits.Timeout is not set. A
// slower judge means judge_error.
const DefaultTimeout = 10 * time.Second

// Tier names the rule that decided.
type Tier string

// The tiers. JudgeOff is also the tier of a person's message that needed no
// judge.
const (
	TierHardLimit Tier = "hard_limit"
	TierThreshold Tier = "threshold"
	TierJudge     Tier = "judge"
	TierJudgeOff  Tier = "judge_off"
	TierReleased  Tier = "released" // a person released it
	TierSettings  Tier = "settings" // the group's settings keep it from this bot, or a person stopped it
)

// Reasons of a stop, the same words in logs, metrics and the API.
const (
	StopMaxDepth     = "max_depth"
	StopJudgeNo      = "judge_no"
	StopJudgeError   = "judge_error"
	StopNotMentioned = "not_mentioned" // of DecideUser only
)

// Decision is a verdict that explains itself.
type Decision struct {
	Allow bool `json:"allow"`
	Tier  Tier `json:"tier"`
	// Reason of a stop is one of the Stop words; of a pass, a short sentence.
	Reason string `json:"reason"`
	// Detail adds to the reason, such as the judge's error. It never holds message
	// text.
	Detail string `json:"detail,omitempty"`
	Depth  int    `json:"depth"`
	// JudgeMS is how long the judge took, in milliseconds.
	JudgeMS int64 `json:"judge_ms,omitempty"`
}

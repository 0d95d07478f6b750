// Package policy decides whether a bot's message is passed on to another bot,
// so that bots that receive each other's messages stop. It is pure: values in,
// a verdict out, no files, no network, no clock but the judge's timeout.
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

// Roles of an [Entry]. An empty role is a bot's.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Entry is one message of a chat as the judge reads it; empty fields are unknown.
type Entry struct {
	Role       string // RoleUser or RoleAssistant
	Sender     string // agent name of a bot, name or id of a person
	SenderName string // display name; used for texts only
	MessageID  string
	ParentID   string // message that this one answers
	ThreadID   string // topic; empty in the chat itself
	Content    string
	TS         int64 // Unix milliseconds
}

// Count configures how package group counts the depth of a message. The zero value counts messages and has no idle
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
	// Count is for who counts the depth; Decide does not read it.
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

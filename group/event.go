package group

import (
	"time"

	"feishu-relay/mention"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Config is what this sidecar is set to in the chat: by its environment and the groups file.
type Config struct {
	Agent      relay.AgentName
	Name       string // the bot's display name
	MentionAll bool   // @all addresses the bot
	CanWrite   bool   // the sidecar can write to Feishu
	AnyChat    bool   // membership is not checked

	Base     Settings        // what holds where people have set nothing
	File     map[string]bool // keys of Base that are from the groups file
	Locked   bool            // people can change nothing
	MaxDepth int             // the highest limit that people can set; 0: any
	SteerBy  string          // "members", "admins" or "list": who may change settings, as a refusal names it
	Commands []string        // words that begin a command
	Notice   bool            // a stop is shown

	Count         policy.Count
	GroupPolicy   string        // "mention": a bot's message has to mention this bot
	OnErrorAllow  bool          // a message passes if the judge fails
	JudgeTimeout  time.Duration // after twice this time without a verdict the judge has failed
	Window        time.Duration // for how long a stopped message can be released
	MaxAge        time.Duration // beyond it a message is too old
	ShareMessages bool          // people's messages are published for the other sidecars

	Directory *mention.Directory // finds the bots that a message names
}

// Event is something that happened. It is one of the types below.
type Event any

type (
	// Configure replaces the configuration.
	Configure struct{ Config Config }
	// Online says which sidecars are online.
	Online struct {
		Agents []relay.AgentName
		Away   bool // this bot is not connected
	}
	// CaughtUp says that the lanes were read to their ends after a start, or could not be for 5 s. Until then nothing
	// is done that only one sidecar does.
	CaughtUp struct{}
	// Membership says whether the bot is in the chat.
	Membership struct{ In bool }
	// Said is a message that this bot has sent.
	Said struct{ Msg relay.Message }
	// Arrived is another bot's message, from the outbound lane.
	Arrived struct {
		Msg     relay.Message
		History bool         // it is older than the sidecar's first start: for the transcript only
		Stop    relay.Reason // the reader's own reason: bad_signature or malformed
	}
	// Heard is a person's message that this bot received.
	Heard struct {
		Msg     relay.Message
		User    bool // Feishu calls the sender a user: only users can command
		MayEdit bool // as far as this sidecar knows, the sender may change settings
	}
	// Shared is a person's message that another sidecar heard.
	Shared struct{ Msg relay.Message }
	// Side is a record of another sidecar.
	Side struct{ Record Record }
	// Judged is the judge's verdict.
	Judged struct {
		ID       relay.MessageID
		Decision policy.Decision
	}
	// Delivered says that the bot has a message, or will not get it.
	Delivered struct {
		ID      relay.MessageID
		Verdict Verdict // Delivered, Door and Acknowledged, or Stopped and Detail
	}
	// Recalled says that a message was recalled.
	Recalled struct{ ID relay.MessageID }
	// Edited says that this bot's message has another text.
	Edited struct {
		ID   relay.MessageID
		Text string
	}
	// Changed is a request over the API.
	Changed struct {
		Call string // names the request in its [Respond]
		Verb Verb   // VerbStop, VerbContinue, VerbForget; "": Body
		Body []byte // settings as JSON
		Bots []relay.AgentName
	}
	// LaneLost says that the side lane lost records: the settings are shared again.
	LaneLost struct{}
	// Done is the result of an effect with a key.
	Done struct {
		Key     string
		Failed  bool
		Message relay.MessageID // of a Reply in Feishu: its id
	}
	// Claimed is the result of a [Claim].
	Claimed struct {
		Key    string
		Holder relay.AgentName
		Mine   bool // this process holds it; false for one of an earlier process of this agent
	}
	// Tick says that it is a later time.
	Tick struct{}
)

// Do is what an effect asks for.
type Do string

// The effects. Those with a result have a key, and are repeated after a restart until they have it.
const (
	Append   Do = "append"   // the message to the transcript. Result
	Publish  Do = "publish"  // the message on its lane. Result
	Share    Do = "share"    // the record on the side lane. Result
	Deliver  Do = "deliver"  // the message to the bot. Result: package deliver has it; Delivered follows
	Give     Do = "give"     // a person's message to the bot, before Until. Result: the bot has it, or not
	Ask      Do = "ask"      // the judge about the message. Result: Judged
	Claim    Do = "claim"    // Key, for an hour. Result: Claimed
	React    Do = "react"    // to the message ID. Result
	Reply    Do = "reply"    // Text to the message ID. Result
	Redact   Do = "redact"   // the text of the message ID in the transcript. Result
	Withhold Do = "withhold" // a person's message from the bot, for Reason
	Stop     Do = "stop"     // for log and metrics: the message was stopped for Reason
	Retext   Do = "retext"   // the message, which may wait for the bot, has the new Text
	Review   Do = "review"   // what waits for the bot: ask Fate of each
	Respond  Do = "respond"  // to the request Call, with Err or nil
)

// Effect is something to be done once the records are in the book.
type Effect struct {
	Do     Do              `json:"do"`
	Key    string          `json:"key,omitempty"` // "": it has no result
	ID     relay.MessageID `json:"id,omitempty"`
	Nr     uint64          `json:"nr,omitempty"` // the order of effects
	Record *Record         `json:"record,omitempty"`
	Reason relay.Reason    `json:"reason,omitempty"`
	// Decision is of a Deliver; of an Ask it has the depth.
	Decision *policy.Decision `json:"decision,omitempty"`
	Text     string           `json:"text,omitempty"`
	Until    relay.Millis     `json:"until,omitempty"`
	Call     string           `json:"call,omitempty"`

	Msg       *relay.Message `json:"-"` // the message ID, where its text is needed
	Mentioned bool           `json:"-"` // of a Deliver and an Ask: it addresses this bot
	Err       error          `json:"-"`
}

// Kind is what a record is.
type Kind string

// The kinds that sidecars share.
const (
	KindSet     Kind = "set"     // values of the settings; a bot in the chat
	KindCommand Kind = "command" // a person's command, or one over the API
	KindNotice  Kind = "notice"  // what the group was shown: a stop, an answer
	KindFailed  Kind = "failed"  // a sidecar could not show Key
	KindVerdict Kind = "verdict" // what became of the message Of at Agent
	KindRecall  Kind = "recall"  // the text of the message Of is gone
	KindEdit    Kind = "edit"    // the message Of has another text
)

// The kinds of the book alone.
const (
	kindLine     Kind = "line"     // a message was said
	kindIn       Kind = "in"       // the bot is in the chat, or is not
	kindQueue    Kind = "queue"    // a message waits for a stage
	kindDo       Kind = "do"       // an effect begins
	kindDone     Kind = "done"     // an effect has its result
	kindDrop     Kind = "drop"     // a stopped message cannot be released any more
	kindTurn     Kind = "turn"     // how far something is that one sidecar does
	kindSnapshot Kind = "snapshot" // the whole State
)

// Act is what a command or a notice is about.
type Act string

// The acts.
const (
	ActStop     Act = "stop"     // bots were stopped
	ActContinue Act = "continue" // what was stopped is released
	ActSet      Act = "set"      // settings
	ActAnswer   Act = "answer"   // the answer to a command
)

// Record is a change of a State. The fields up to TS are shared; channel and chat are the caller's to add.
type Record struct {
	Kind    Kind              `json:"kind"`
	ID      string            `json:"id,omitempty"` // a record counts once
	Act     Act               `json:"act,omitempty"`
	Agent   relay.AgentName   `json:"agent,omitempty"` // whose sidecar made it
	Thread  string            `json:"thread_id,omitempty"`
	Message relay.MessageID   `json:"message_id,omitempty"` // of a notice in Feishu, else "notice:…"
	Of      relay.MessageID   `json:"of,omitempty"`         // the message that it is about
	By      string            `json:"by,omitempty"`         // who commanded; "api"
	Sender  relay.AgentName   `json:"sender,omitempty"`     // of a stop: who said it
	Bots    []relay.AgentName `json:"bots,omitempty"`
	Set     Changes           `json:"set,omitempty"`
	Reason  relay.Reason      `json:"reason,omitempty"`
	Round   relay.Millis      `json:"round,omitempty"` // of a stop: when its round began
	Said    relay.Millis      `json:"said,omitempty"`  // of a stop: when the message was said
	Verdict *Verdict          `json:"verdict,omitempty"`
	Key     string            `json:"key,omitempty"` // of something that is shown once
	Try     int               `json:"try,omitempty"`
	Text    string            `json:"text,omitempty"`
	Answer  string            `json:"answer,omitempty"` // of a command
	TS      relay.Millis      `json:"ts,omitempty"`

	// The rest is of the book alone.
	Local  relay.Millis   `json:"local,omitempty"` // when this sidecar took it in, by its clock
	Share  bool           `json:"share,omitempty"` // it is to be shared
	Line   *Line          `json:"line,omitempty"`
	Msg    *relay.Message `json:"msg,omitempty"` // the text of a line
	Do     []Do           `json:"todo,omitempty"`
	Effect *Effect        `json:"effect,omitempty"`
	Wait   *arrival       `json:"wait,omitempty"`
	Turn   *turn          `json:"turn,omitempty"`
	State  *data          `json:"state,omitempty"`
	In     bool           `json:"in,omitempty"`
}

// Verdict is what became of a message at one bot, as far as is known.
type Verdict struct {
	Agent        relay.AgentName  `json:"agent"`
	At           relay.Millis     `json:"at"`
	Decision     *policy.Decision `json:"decision,omitempty"`
	Stopped      relay.Reason     `json:"stopped,omitempty"`
	Detail       string           `json:"detail,omitempty"`
	Delivered    relay.Millis     `json:"delivered_at,omitempty"`
	Door         string           `json:"door,omitempty"`
	Acknowledged relay.Millis     `json:"acknowledged_at,omitempty"`
}

package group

import (
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Config is what this sidecar is set to in the chat: by its environment and the groups file.
type Config struct {
	Agent      relay.AgentName
	Name       string // the bot's display name
	MentionAll bool   // @all addresses the bot
	CanWrite   bool   // the sidecar can write to Feishu, as far as it knows
	AnyChat    bool   // membership is not checked
	// NotYet: the sidecar can write to Feishu and must not yet, since the bot has made no call since the start.
	NotYet bool
	// AsksMembership: the sidecar can ask Feishu whether the bot is in the chat, where no event has said so.
	AsksMembership bool

	Base     Settings        // what holds where people have set nothing
	File     map[string]bool // keys of Base that are from the groups file
	Locked   bool            // people can change nothing
	MaxDepth int             // the highest limit that people can set; 0: any
	SteerBy  string          // "members", "admins" or "list": who may change settings, as a refusal names it
	Commands []string        // words that begin a command
	Notice   bool            // a stop is shown
	// NoticeText: it is shown by a reply, and else by a reaction.
	NoticeText bool

	Count         policy.Count
	GroupPolicy   string        // "mention": a bot's message has to mention this bot
	OnErrorAllow  bool          // a message passes if the judge fails
	JudgeTimeout  time.Duration // after twice this time without a verdict the judge has failed
	Window        time.Duration // for how long a stopped message can be released
	MaxAge        time.Duration // beyond it a message is too old
	ShareMessages bool          // people's messages are published for the other sidecars
}

// EventKind is what happened.
type EventKind string

// The kinds of events, and the fields that each has beside Kind and At.
const (
	Start     EventKind = "start"     // Config. The process starts: effects without a result come again
	Configure EventKind = "configure" // Config. It has changed
	Online    EventKind = "online"    // Agents: the sidecars that are online; Away: this bot is not connected
	CaughtUp  EventKind = "caught_up" // the lanes were read to their ends after Start, or could not be for 5 s
	Joined    EventKind = "joined"    // the bot was in the chat at TS, 0 for now. The newest Joined or Left counts
	Left      EventKind = "left"      // the bot was not in the chat at TS
	Said      EventKind = "said"      // Msg, Names: this bot has sent it; the text is final
	Arrived   EventKind = "arrived"   // Msg, Names: of another bot, from the outbound lane; Own, History, Reason, Body
	// Heard is Msg, Names: a person's message that this bot received; User, MayEdit. With [relay.RoleAssistant] it is that
	// of the bot SenderAgentName: it can neither command nor let bots go on, and is that bot's line.
	Heard  EventKind = "heard"
	Shared EventKind = "shared" // Msg, Names: a person's message that another sidecar heard
	// Native is Msg, Names: another bot's message that Feishu itself delivered to this bot. It waits until TS Until for
	// the relay's copy, an Arrived, which has the final text.
	Native EventKind = "native"
	Side   EventKind = "side" // Records: of another sidecar, in their order
	// Delivered is ID: the bot has the message, or (Verdict.Stopped, Detail) will not get it; Verdict.Door.
	Delivered EventKind = "delivered"
	Recalled  EventKind = "recalled"  // ID
	Changed   EventKind = "changed"   // Call: a request over the API; Agents; Verb "": Body has settings as JSON
	LaneLost  EventKind = "lane_lost" // the side lane lost records: the settings are shared again
	// Done is Key: the result of an effect. Failed; Decision of an Ask; ID of a Reply; Msg and Names, or Reason, of a
	// Fetch; Shows of a Deliver and a Give; Verdict of a Give, as of Delivered. A Give that has neither Verdict nor Failed
	// is on its way to the bot, as a Deliver is: Delivered follows. Where it has an Until, that counts as delivered.
	Done EventKind = "done"
	Tick EventKind = "tick" // it is the time that Next returned
)

// Event is something that happened. It is what the book holds: the same events make the same State.
type Event struct {
	Kind     EventKind         `json:"kind"`
	At       time.Time         `json:"at"` // by this sidecar's clock; its zone is that of the readers
	Config   *Config           `json:"config,omitempty"`
	Agents   []relay.AgentName `json:"agents,omitempty"`
	Away     bool              `json:"away,omitempty"`
	Msg      *relay.Message    `json:"msg,omitempty"`
	Names    Names             `json:"names,omitzero"`     // whom Msg names: NamesOf
	Own      bool              `json:"own,omitempty"`      // Msg is this bot's, under whatever name it was sent
	History  bool              `json:"history,omitempty"`  // Msg is older than the first start: for the transcript only
	Reason   relay.Reason      `json:"reason,omitempty"`   // why Msg stops, if its reader says so: a bad signature
	User     bool              `json:"user,omitempty"`     // Feishu calls the sender a user: only users can command
	MayEdit  bool              `json:"may_edit,omitempty"` // as far as this sidecar knows, the sender may change settings
	Records  []*Record         `json:"records,omitempty"`
	ID       relay.MessageID   `json:"id,omitempty"`
	TS       relay.Millis      `json:"ts,omitempty"`
	Until    relay.Millis      `json:"until,omitempty"`
	Verdict  *Verdict          `json:"verdict,omitempty"`
	Call     string            `json:"call,omitempty"`
	Verb     Verb              `json:"verb,omitempty"` // VerbStop, VerbContinue or VerbForget
	Body     string            `json:"body,omitempty"`
	Key      string            `json:"key,omitempty"`
	Shows    []relay.MessageID `json:"shows,omitempty"`  // what the bot was given before the text, as context
	Failed   bool              `json:"failed,omitempty"` // of a Claim: another one holds it; of a Member: it is not
	Decision *policy.Decision  `json:"decision,omitempty"`
	Did      []string          `json:"did,omitempty"` // keys that State.Did took since the event before
}

// Do is what an effect asks for.
type Do string

// The effects. Those with a result have a key: the result is a Done with the key, and they come again at a Start until
// it is there. Those that say "until" are not begun after that time, but have failed.
const (
	Append   Do = "append"   // Msg to the transcript. Result
	Publish  Do = "publish"  // Msg on its lane. Result
	Share    Do = "share"    // Record on the side lane. Result
	Deliver  Do = "deliver"  // Msg to the bot. Result: package deliver has it; Delivered follows
	Give     Do = "give"     // Msg, a person's, to the bot; until Until if that is set. Result: Verdict, or Failed
	Hold     Do = "hold"     // a person's message is for one of several bots: a Give or a Withhold follows
	Member   Do = "member"   // whether the bot is in the chat: ask Feishu. Result: it is, or not
	Fetch    Do = "fetch"    // Msg, a Native without a copy, as Feishu has it now. Result: Msg and Names, or Reason
	Ask      Do = "ask"      // the judge about Msg. Result: Decision
	Claim    Do = "claim"    // Key, for an hour. Result: this process holds it, or not
	React    Do = "react"    // to the message ID, until Until. Result
	Reply    Do = "reply"    // Text to the message ID, until Until. Result
	Redact   Do = "redact"   // the text of the message ID in the transcript, and of its edits. Result
	Withhold Do = "withhold" // a person's message from the bot, for Reason
	Stop     Do = "stop"     // for log and metrics: the message was stopped for Reason; Text is behind it
	Retext   Do = "retext"   // the message ID, which may wait for the bot, has the text of Msg, an edit, now
	Review   Do = "review"   // what waits for the bot: ask Fate of each
	Tell     Do = "tell"     // Record, a command, a notice or a verdict, to viewers
	Respond  Do = "respond"  // to the request Call, with Err or nil
)

// Effect is something to be done once the event is in the book. What it points to is not changed later.
type Effect struct {
	Do        Do               `json:"do"`
	Key       string           `json:"key,omitempty"` // "": it has no result
	Nr        uint64           `json:"nr,omitempty"`  // the order of effects
	ID        relay.MessageID  `json:"id,omitempty"`
	Msg       *relay.Message   `json:"msg,omitempty"`
	Depth     int              `json:"depth,omitempty"`     // of an Append
	Mentioned bool             `json:"mentioned,omitempty"` // of a Deliver and an Ask: it addresses this bot
	Record    *Record          `json:"record,omitempty"`
	Reason    relay.Reason     `json:"reason,omitempty"`
	Decision  *policy.Decision `json:"decision,omitempty"` // of a Deliver and a Stop; of an Ask it has the depth
	Text      string           `json:"text,omitempty"`
	Until     relay.Millis     `json:"until,omitempty"`
	Call      string           `json:"call,omitempty"`
	Err       error            `json:"-"`
}

// Kind is what a record is.
type Kind string

// The kinds of records.
const (
	KindSet     Kind = "set"     // values of the settings; a bot in the chat
	KindCommand Kind = "command" // a person's command, or one over the API
	KindNotice  Kind = "notice"  // what the group was shown: a stop, an answer
	KindVerdict Kind = "verdict" // what became of the message Of at Agent
	KindRecall  Kind = "recall"  // the text of the message Of is gone
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

// Record is what sidecars tell each other over the side lane; channel and chat are the caller's to add.
type Record struct {
	Kind    Kind              `json:"kind"`
	ID      string            `json:"id,omitempty"` // a command or a notice counts once
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
	Text    string            `json:"text,omitempty"`
	Answer  string            `json:"answer,omitempty"` // of a command
	TS      relay.Millis      `json:"ts,omitempty"`
}

// Verdict is what became of a message at one bot, as far as is known.
type Verdict struct {
	Agent     relay.AgentName  `json:"agent"`
	At        relay.Millis     `json:"at"`
	Decision  *policy.Decision `json:"decision,omitempty"`
	Stopped   relay.Reason     `json:"stopped,omitempty"`
	Detail    string           `json:"detail,omitempty"`
	Delivered relay.Millis     `json:"delivered_at,omitempty"`
	Door      string           `json:"door,omitempty"`
}

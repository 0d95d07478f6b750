package mailbox

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/relay"
)

// AgentID names an agent. [CheckAgent] reports which names are possible.
type AgentID string

// Status is what an agent can do now.
type Status string

// The statuses. A busy agent still takes messages, and tasks while it has room.
const (
	Idle    Status = "idle"
	Busy    Status = "busy"
	Offline Status = "offline"
)

// Card is an agent's entry in the registry.
type Card struct {
	AgentID       AgentID   `json:"agent_id"`
	BotName       string    `json:"bot_name,omitempty"` // its bot's display name; "": the agent does not report it
	Description   string    `json:"description"`
	Capabilities  []string  `json:"capabilities"`
	Status        Status    `json:"status"`
	AllowFrom     []AgentID `json:"allow_from"` // see InList
	MaxTasks      int       `json:"max_concurrent_tasks"`
	CurrentTasks  []string  `json:"current_tasks"` // ids
	Goals         []string  `json:"goals,omitempty"`
	RegisteredAt  time.Time `json:"registered_at"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	Queues        *Queues   `json:"queues,omitempty"` // nil: the agent does not report it
	// Protocol is the version of the mailbox protocol that the agent's mailbox
	// speaks: it handles acks, nacks and bare steps of tasks itself. An agent
	// without it may hand everything in its inbox to its model.
	Protocol string `json:"protocol,omitempty"`
	// Sidecar is what the agent's sidecar is set to; nil: it does not report that, or there is no sidecar.
	Sidecar *Settings `json:"sidecar,omitempty"`
	// Bot is whether the sidecar's bot is connected, as of the last heartbeat; nil: that is not known.
	Bot *Bot `json:"bot,omitempty"`
	// Present is whether the store knows by its own clock that the heartbeat is not late. Then LastHeartbeat, which is
	// by the clock of the agent's host, does not count.
	Present bool `json:"-"`
}

// Bot is whether a bot is connected to its sidecar and takes what it is given.
type Bot struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // when it came, or went; if it never came, when the sidecar started
}

// HasSettings reports whether c's sidecar publishes its settings; older ones do not.
func (c *Card) HasSettings() bool { return c.Sidecar != nil && c.Sidecar.Backend != "" }

// Settings are those of a sidecar that the other sidecars of its groups should have, too. None
// is a secret.
type Settings struct {
	Version      string `json:"version,omitempty"`
	Secret       string `json:"secret,omitempty"` // the fingerprint of RELAY_SECRET; "": no secret is set
	Backend      string `json:"backend,omitempty"`
	RelayChannel string `json:"relay_channel,omitempty"`
	RelayDir     Folder `json:"relay_dir,omitzero"`
	Transcripts  Folder `json:"transcript_dir,omitzero"`
	MaxDepth     int    `json:"max_bot_reply_depth"`
	Threshold    int    `json:"bot_reply_llm_threshold"`
	Check        bool   `json:"bot_reply_llm_check"`
	DepthCount   string `json:"bot_reply_depth_count,omitempty"`
	MaxAge       int64  `json:"relay_max_age_ms,omitempty"`
}

// Meets reports whether two sidecars read and write the same queue of bots' messages.
func (s *Settings) Meets(o *Settings) bool {
	return s.Backend == o.Backend && s.RelayChannel == o.RelayChannel && s.RelayDir.Same(o.RelayDir)
}

// Folder is a folder as its sidecar sees it.
type Folder struct {
	Path string `json:"path,omitempty"`
	ID   string `json:"id,omitempty"` // the same for one folder of a host, under whatever path; "": not known
}

// Same reports whether f and o are one folder, by their ids if these are known, else by their paths.
func (f Folder) Same(o Folder) bool {
	if f.ID != "" && o.ID != "" {
		return f.ID == o.ID
	}
	return f.Path == o.Path
}

// Protocol is the version of the mailbox protocol that this program speaks.
const Protocol = "1.1"

// Queues is what waits at an agent's sidecar, as of its last heartbeat.
type Queues struct {
	Lag            int64 `json:"lag"`            // of the relay, to be read: bytes of a file, entries of a stream
	Unsettled      int   `json:"unsettled"`      // relay messages read, and not delivered or stopped yet
	Outbox         int64 `json:"outbox"`         // own relay messages that the backend does not have yet
	Inbox          int   `json:"inbox"`          // direct messages that the agent has not taken
	Unacknowledged int   `json:"unacknowledged"` // direct messages sent and not acknowledged
}

const (
	// MaxCard is the most bytes of an entry in the registry; a longer one is not read.
	MaxCard = 64 << 10
	// maxCardList is how many entries of a list on somebody's card are looked at.
	maxCardList = 1000
	// defaultMaxTasks is the quota of a card without one.
	defaultMaxTasks = 3
)

// cardNames are the fields of a card, each with the other name under which it is read.
var cardNames = names{{"agent_id", "agentId"}, {"bot_name"}, {"description"}, {"capabilities"}, {"status"},
	{"allow_from", "allowFrom"}, {"max_concurrent_tasks", "maxConcurrentTasks"}, {"current_tasks", "currentTasks"},
	{"goals"}, {"registered_at", "registeredAt"}, {"last_heartbeat", "lastHeartbeat"}, {"queues"}, {"protocol"},
	{"sidecar"}, {"bot"}}

// DecodeCard reads a registry entry, camelCase or not. id is the key of the
// entry, which counts more than the name in it. Of a foreign entry
// a field that is not of the expected form counts as missing: no list is empty,
// no allow_from is everybody, no time is zero, and a status that is neither busy
// nor offline is idle.
func DecodeCard(id AgentID, raw []byte) (Card, error) {
	if err := CheckAgent(id); err != nil {
		return Card{}, err
	}
	if err := checkJSON(raw, MaxCard); err != nil {
		return Card{}, err
	}
	ours, ok := asObject(raw)
	if !ok {
		return Card{}, Invalid("", "want one JSON object")
	}
	renameIn(ours, cardNames, isNull)
	c := Card{
		AgentID:       id,
		BotName:       asText(ours["bot_name"]),
		Description:   asText(ours["description"]),
		Capabilities:  asTexts(ours["capabilities"]),
		Status:        Idle,
		AllowFrom:     []AgentID{"*"},
		MaxTasks:      defaultMaxTasks,
		CurrentTasks:  asTexts(ours["current_tasks"]),
		RegisteredAt:  asTime(ours["registered_at"]),
		LastHeartbeat: asTime(ours["last_heartbeat"]),
		Protocol:      asText(ours["protocol"]),
		Queues:        asForm[Queues](ours["queues"]),
		Sidecar:       asForm[Settings](ours["sidecar"]),
		Bot:           asForm[Bot](ours["bot"]),
	}
	if goals := asTexts(ours["goals"]); len(goals) > 0 {
		c.Goals = goals
	}
	if s := Status(strings.ToLower(asText(ours["status"]))); s == Busy || s == Offline {
		c.Status = s
	}
	if ours["allow_from"] != nil {
		c.AllowFrom = []AgentID{}
		for _, name := range asTexts(ours["allow_from"]) {
			c.AllowFrom = append(c.AllowFrom, AgentID(name))
		}
	}
	if n, err := strconv.Atoi(string(ours["max_concurrent_tasks"])); err == nil && n >= 0 {
		c.MaxTasks = n
	}
	return c, nil
}

// asTexts reads a list of texts; others in it are left out. One text alone is a
// list of one.
func asTexts(raw json.RawMessage) []string {
	texts := []string{}
	if s := asText(raw); s != "" {
		return append(texts, s)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return texts
	}
	for _, item := range list[:min(len(list), maxCardList)] {
		if s := asText(item); s != "" {
			texts = append(texts, s)
		}
	}
	return texts
}

// asForm reads an object of that form; nil: it is missing, or of another form.
func asForm[T any](raw json.RawMessage) (v *T) {
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

func asTime(raw json.RawMessage) time.Time {
	var value any = json.Number(raw)
	if text := asText(raw); text != "" {
		value = text
	}
	t, _ := readTime(value)
	return t
}

// EncodeCard writes c as a registry entry. Fields of the previous entry that are
// not ours are kept, unless the entry became longer than [MaxCard] by them.
// previous may be nil, or anything: what is no entry has no fields.
func EncodeCard(c Card, previous []byte) ([]byte, error) {
	c.Capabilities, c.AllowFrom, c.CurrentTasks = orEmpty(c.Capabilities), orEmpty(c.AllowFrom), orEmpty(c.CurrentTasks)
	line, err := relay.Marshal(struct {
		Card
		RegisteredAt  string `json:"registered_at"`
		LastHeartbeat string `json:"last_heartbeat"`
	}{c, formatTime(c.RegisteredAt), formatTime(c.LastHeartbeat)})
	if err != nil {
		return nil, err
	}
	if len(line) > MaxCard {
		return nil, Invalid("", "the card has %d bytes, at most %d: shorten its description", len(line), MaxCard)
	}
	if checkJSON(previous, MaxCard) != nil {
		return line, nil
	}
	more, _ := asObject(previous)
	if whole, err := appendFields(line, more, cardNames.has); err == nil && len(whole) <= MaxCard {
		return whole, nil
	}
	return line, nil
}

// At is c's status at a time, given how long a heartbeat lasts. A heartbeat from
// the future, of a clock that is ahead, counts as one of now.
func (c *Card) At(now time.Time, timeout time.Duration) Status {
	if c.Status == Offline || !c.Present && now.Sub(c.LastHeartbeat) > timeout {
		return Offline
	}
	return c.Status
}

// Allows reports whether c's agent accepts messages from an agent.
func (c *Card) Allows(from AgentID) bool {
	return InList(c.AllowFrom, from)
}

// InList reports whether a list of agents has id. An entry that ends with * means
// every agent whose name begins so, * alone for everybody.
func InList(list []AgentID, id AgentID) bool {
	return slices.ContainsFunc(list, func(entry AgentID) bool {
		if begin, ok := strings.CutSuffix(string(entry), "*"); ok {
			return strings.HasPrefix(string(id), begin)
		}
		return entry == id
	})
}

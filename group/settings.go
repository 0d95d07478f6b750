package group

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Mode says who answers a person's message that names no bot.
type Mode string

// The modes.
const (
	ModeAll     Mode = "all"     // every bot
	ModeNamed   Mode = "named"   // nobody
	ModeDefault Mode = "default" // the group's default bot
	ModeOne     Mode = "one"     // exactly one: the bot that spoke to the person last, else the first
)

// Until is the end of a pause; nil: until somebody ends it.
type Until struct {
	Until *relay.Millis `json:"until"`
}

// Holds reports whether the pause is active at a time. A nil Until is no pause.
func (u *Until) Holds(at relay.Millis) bool { return u != nil && (u.Until == nil || at < *u.Until) }

// Settings are what holds in a group.
type Settings struct {
	Answer     Mode                       `json:"answer"`
	DefaultBot relay.AgentName            `json:"default_bot"` // "": none
	Limit      int                        `json:"limit"`       // the depth at which a bot's message stops
	Threshold  int                        `json:"threshold"`   // up to this depth it passes without the judge
	Judge      bool                       `json:"judge"`
	Budget     int                        `json:"budget"` // bots' messages an hour; 0: no bound
	Paused     *Until                     `json:"paused"`
	Muted      map[relay.AgentName]*Until `json:"muted"`
}

// Sources of a setting.
const (
	FromRecord = "record"
	FromFile   = "file"
	FromEnv    = "env"
)

// The keys. A mute and a membership have the agent's name behind them.
const (
	keyAnswer     = "answer"
	keyDefaultBot = "default_bot"
	keyLimit      = "limit"
	keyThreshold  = "threshold"
	keyJudge      = "judge"
	keyBudget     = "budget"
	keyPaused     = "paused"
	keyMuted      = "muted:"
	keyIn         = "in:"
	keyStopped    = "stopped" // what bots say until a person's next message
)

var settingKeys = []string{keyAnswer, keyDefaultBot, keyLimit, keyThreshold, keyJudge, keyBudget, keyPaused}

const (
	// maxKeys is how many keys are kept; beyond it no other key is taken.
	maxKeys = 500
	// maxValue is the most bytes of a value, an id or a key; a longer one is not taken.
	maxValue = 1024
	// maxNumber is the highest number of a setting.
	maxNumber = 1_000_000
	// maxPause is the longest time of a pause, other than without end.
	maxPause = 7 * 24 * time.Hour
	// maxBotName is the most bytes of a bot's name; a longer one is cut.
	maxBotName = 120
	// ahead is how far clocks differ without harm.
	ahead = relay.Millis(5000)
)

// Value is what a key is set to, when and by which message. Null: it is unset.
type Value struct {
	At relay.Millis    `json:"at"`
	ID string          `json:"id"`
	V  json.RawMessage `json:"v"`
}

// newer reports whether v replaces w: everywhere alike.
func (v Value) newer(w Value) bool {
	return cmp.Or(cmp.Compare(v.At, w.At), cmp.Compare(v.ID, w.ID), bytes.Compare(v.V, w.V)) > 0
}

// Changes are values by key.
type Changes map[string]Value

// set adds a value; nil takes the key back.
func (c Changes) set(key string, v any) { c[key] = Value{V: encode(v)} }

func encode(v any) json.RawMessage {
	data, err := relay.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and flags are always JSON
	}
	return data
}

// merge takes over what is newer. The order of merges does not matter.
func (s *State) merge(news Changes) {
	c := s.d.Settings
	s.memberList = nil
	for key, v := range news {
		// A value that its key cannot have counts as unset.
		valid := len(key) <= maxValue && len(v.V) <= maxValue && len(v.ID) <= maxValue && v.At > 0 && json.Valid(v.V)
		if known, ok := c[key]; valid && (ok && v.newer(known) || !ok && len(c) < maxKeys) {
			c[key] = v
		}
	}
}

// get is the value of a key, if it is set.
func (c Changes) get(key string, to any) (set bool) {
	v, ok := c[key]
	return ok && string(v.V) != "null" && json.Unmarshal(v.V, to) == nil
}

// at stamps a change that was made at a time by the message id. A value that a clock ahead of now has set counts as
// older; so does each one if newest is set, as for a request of somebody who has seen what holds.
func (s *State) at(c Changes, at relay.Millis, id string, newest bool) Changes {
	for key, v := range c {
		v.At, v.ID = at, id
		if was := s.d.Settings[key].At; was >= at && (newest || was > s.now+ahead) {
			v.At = was + 1
		}
		c[key] = v
	}
	return c
}

// Peer is an agent whose bot is in the group, and what its sidecar says of itself.
type Peer struct {
	Agent      relay.AgentName `json:"-"`
	Name       string          `json:"name,omitempty"`
	MentionAll bool            `json:"mention_all,omitempty"`
	CanWrite   bool            `json:"can_write,omitempty"` // to Feishu
	Answer     Mode            `json:"answer"`              // ANSWER_MODE
	Budget     int             `json:"budget,omitempty"`    // GROUP_BUDGET
}

// members are the bots in the group, in the order of their agents.
func (s *State) members() []Peer {
	if s.memberList != nil {
		return s.memberList
	}
	for key := range s.d.Settings {
		agent, ok := strings.CutPrefix(key, keyIn)
		m := Peer{Agent: relay.AgentName(agent)}
		if ok && s.d.Settings.get(key, &m) {
			s.memberList = append(s.memberList, m)
		}
	}
	slices.SortFunc(s.memberList, func(a, b Peer) int { return cmp.Compare(a.Agent, b.Agent) })
	return s.memberList
}

func (s *State) member(agent relay.AgentName) bool {
	return len(here([]relay.AgentName{agent}, s.members())) > 0
}

// announce says that this bot is in the group, or is not, where the others have to know it.
func (s *State) announce() {
	cfg := &s.d.Config
	self := Peer{Agent: cfg.Agent, Name: runes.Cut(cfg.Name, maxBotName), MentionAll: cfg.MentionAll,
		CanWrite: cfg.CanWrite, Answer: cfg.Base.Answer, Budget: cfg.Base.Budget}
	key, c := keyIn+string(s.d.Config.Agent), Changes{}
	switch {
	case s.isMember() && !slices.Contains(s.members(), self):
		c.set(key, self)
	case s.d.In == Left && s.member(s.d.Config.Agent):
		c.set(key, nil)
	default:
		return
	}
	s.share(Record{Kind: KindSet, Set: s.at(c, s.now, string(s.d.Config.Agent), true)})
}

// base is what holds where people have set nothing. How bots share a group is the same at all sidecars: where their
// environments differ, that of the first agent holds.
func (s *State) base() Settings {
	set := s.d.Config.Base
	if m := s.members(); len(m) > 0 && m[0].Answer != "" {
		if !s.d.Config.File[keyAnswer] {
			set.Answer = m[0].Answer
		}
		if !s.d.Config.File[keyBudget] {
			set.Budget = m[0].Budget
		}
	}
	return set
}

// settings are what holds now: base, and over it what people have set.
func (s *State) settings() Settings {
	c, set := s.d.Settings, s.base()
	if mode := Mode(""); c.get(keyAnswer, &mode) && modeWords[mode] != none {
		set.Answer = mode
	}
	c.get(keyDefaultBot, &set.DefaultBot)
	n := 0
	limited := c.get(keyLimit, &n) && n >= 1
	if limited {
		set.Limit = n
	}
	if limited && s.d.Config.MaxDepth > 0 { // which may have been higher when it was set
		set.Limit = min(set.Limit, s.d.Config.MaxDepth)
	}
	thresholded := c.get(keyThreshold, &n) && n >= 0
	if thresholded {
		set.Threshold = n
	}
	if thresholded || limited { // two changes at once may have crossed
		set.Threshold = min(set.Threshold, set.Limit)
	}
	c.get(keyJudge, &set.Judge)
	// Never above the operator's.
	if budget := 0; c.get(keyBudget, &budget) && budget >= 0 && (set.Budget == 0 || budget > 0) {
		set.Budget = min(budget, cmp.Or(set.Budget, maxNumber))
	}
	if paused := new(Until); c.get(keyPaused, paused) && paused.Holds(s.now) {
		set.Paused = paused
	}
	set.Muted = map[relay.AgentName]*Until{}
	for key := range c {
		agent, ok := strings.CutPrefix(key, keyMuted)
		if muted := new(Until); ok && c.get(key, muted) && muted.Holds(s.now) {
			set.Muted[relay.AgentName(agent)] = muted
		}
	}
	return set
}

// Sources says of each setting from where it is.
func (s *State) Sources() map[string]string {
	from := map[string]string{}
	for _, key := range append(settingKeys, "muted") {
		from[key] = FromEnv
		if s.d.Config.File[key] {
			from[key] = FromFile
		}
		if s.d.Settings.get(key, new(any)) || key == "muted" && len(s.settings().Muted) > 0 {
			from[key] = FromRecord
		}
	}
	return from
}

// version names the settings; it is the same at all sidecars. Memberships come and go with sidecars, and are none.
func (c Changes) version() string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if v := c[key]; !strings.HasPrefix(key, keyIn) {
			fmt.Fprintf(h, "%s %d %s %s\n", key, v.At, v.ID, v.V)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

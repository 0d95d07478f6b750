package steer

import (
	"bytes"
	"cmp"
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
	All     Mode = "all"     // every bot
	Named   Mode = "named"   // nobody
	Default Mode = "default" // the group's default bot
	One     Mode = "one"     // exactly one: the bot that spoke to the person last, else the first
)

// Modes lists the modes.
var Modes = []Mode{All, Named, Default, One}

// MaxPause is the longest time for which bots can be paused or muted, other than without end.
const MaxPause = 7 * 24 * time.Hour

// Until is the end of a pause; nil: until somebody ends it.
type Until struct {
	Until *relay.Millis `json:"until"`
}

// Holds reports whether the pause is active at a time. A nil Until is no pause.
func (u *Until) Holds(at time.Time) bool {
	return u != nil && (u.Until == nil || at.Before(u.Until.Time()))
}

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

// The keys of a record. A mute has the agent's name behind it, and so has a membership.
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
	keyStopped    = "stopped"   // what bots say until a person's next message
	keyContinued  = "continued" // where the count starts anew
	keyForgotten  = "forgotten" // settings set before are none
)

// Keys of the settings as the API names them.
var settingKeys = []string{keyAnswer, keyDefaultBot, keyLimit, keyThreshold, keyJudge, keyBudget, keyPaused}

// singleKeys are those of a record that have no name behind them.
var singleKeys = slices.Concat(settingKeys, []string{keyStopped, keyContinued, keyForgotten})

// isSetting reports whether `forget` removes a key.
func isSetting(key string) bool {
	return slices.Contains(settingKeys, key) || strings.HasPrefix(key, keyMuted)
}

// Value is what a key of a record is set to, when and by which message. Null: the key is unset.
type Value struct {
	At relay.Millis    `json:"at"`
	ID string          `json:"id"`
	V  json.RawMessage `json:"v"`
}

// newer reports whether v replaces w. Of equal times the higher id wins,
// and of equal ids the higher value: everywhere alike.
func (v Value) newer(w Value) bool {
	return cmp.Or(cmp.Compare(v.At, w.At), cmp.Compare(v.ID, w.ID), bytes.Compare(v.V, w.V)) > 0
}

// Set is a change: values by key.
type Set map[string]json.RawMessage

const (
	// maxKeys is how many keys a record has at most: of more, all sidecars keep the same.
	maxKeys = 2000
	// maxValue is the most bytes of a value and of an id.
	maxValue = 1024
	// partKeys is how many keys fit into a mark, each as long as it can be; JSON may make
	// six bytes of one.
	partKeys = MaxMark / (6*maxKey + 2*6*maxValue)
	// maxName is the most bytes of a bot's name; each may be six in a value.
	maxName = 120
	// maxKey is the most bytes of a key: an agent's name behind what it is about.
	maxKey = relay.MaxID + 16
)

// Record is what a group's sidecars agree on, by key. It is not safe for concurrent use.
type Record map[string]Value

// Merge takes over what is newer in other, and reports whether that was anything. What no
// record can hold is left out. Whatever the order of merges, the outcome is the same.
func (r Record) Merge(other Record) (changed bool) {
	var taken []string
	for key, v := range other {
		if known, ok := r[key]; ok && !v.newer(known) || checkValue(key, v) != nil {
			continue
		}
		r[key] = v
		taken = append(taken, key)
	}
	if len(r) > maxKeys {
		// By key and not by time: a key's time changes, and what one sidecar dropped others would keep.
		for _, key := range slices.SortedFunc(maps.Keys(r), byRank)[maxKeys:] {
			delete(r, key)
		}
	}
	return slices.ContainsFunc(taken, func(key string) bool { _, ok := r[key]; return ok })
}

// Yield lets what was set by a clock that was ahead, which is what has a time after limit, be older than what other has
// of the same key up to limit: else it would hold until the clock has come to its time.
func (r Record) Yield(other Record, limit relay.Millis) {
	for key, v := range other {
		if known, ok := r[key]; ok && known.At > limit && v.At <= limit {
			known.At = v.At - 1
			r[key] = known
		}
	}
}

// byRank orders keys by which are kept: those of which each group has one, then the others.
func byRank(a, b string) int {
	several := func(key string) int {
		if slices.Contains(singleKeys, key) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(several(a), several(b)), cmp.Compare(a, b))
}

// Of is a change made by the message id at a time, as a record.
func (s Set) Of(at relay.Millis, id string) Record {
	r := make(Record, len(s))
	for key, v := range s {
		r[key] = Value{at, id, v}
	}
	return r
}

// Has reports whether the values of a change are those of r.
func (r Record) Has(set Set) bool {
	for key, v := range set {
		if !bytes.Equal(r[key].V, v) {
			return false
		}
	}
	return true
}

// Newest is when the settings of r were changed last by another message than id, 0: never.
func (r Record) Newest(id string) (newest relay.Millis) {
	for key, v := range r {
		if v.ID != id && !strings.HasPrefix(key, keyIn) {
			newest = max(newest, v.At)
		}
	}
	return newest
}

// Parts cuts r into records that each fit into a mark.
func (r Record) Parts() (parts []Record) {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(r)), partKeys) {
		part := make(Record, len(keys))
		for _, key := range keys {
			part[key] = r[key]
		}
		parts = append(parts, part)
	}
	return parts
}

// Outdated lists what r has that other lacks or has older.
func (r Record) Outdated(other Record) Record {
	lacks := Record{}
	for key, v := range r {
		if w, ok := other[key]; !ok || v.newer(w) {
			lacks[key] = v
		}
	}
	return lacks
}

// checkValue reports what is wrong with a value.
func checkValue(key string, v Value) error {
	if len(key) > maxKey || len(v.V) > maxValue || len(v.ID) > maxValue || v.At <= 0 {
		return fmt.Errorf("%.40q is out of bounds", key)
	}
	var to any
	switch {
	case string(v.V) == "null":
		return nil
	case key == keyAnswer:
		var m Mode
		if json.Unmarshal(v.V, &m) == nil && slices.Contains(Modes, m) {
			return nil
		}
		return fmt.Errorf("answer is not one of %v", Modes)
	case key == keyDefaultBot:
		to = new(relay.AgentName)
	case key == keyLimit, key == keyThreshold, key == keyBudget:
		var n int
		if json.Unmarshal(v.V, &n) == nil && n >= 0 && n <= maxNumber {
			return nil
		}
		return fmt.Errorf("%s is no number from 0 to %d", key, maxNumber)
	case key == keyJudge, key == keyStopped, key == keyContinued, key == keyForgotten:
		to = new(bool)
	case strings.HasPrefix(key, keyIn):
		to = new(Member)
	case key == keyPaused, strings.HasPrefix(key, keyMuted):
		to = new(Until)
	default: // a later version's: kept for those who know it
		to = new(json.RawMessage)
	}
	return json.Unmarshal(v.V, to)
}

// maxNumber is the highest number that a setting can have.
const maxNumber = 1_000_000

// get is the value of a key, where it is set and not forgotten.
func (r Record) get(key string, to any) (set bool) {
	v, ok := r[key]
	if !ok || string(v.V) == "null" || isSetting(key) && r.since(keyForgotten) != 0 && r[keyForgotten].newer(v) {
		return false
	}
	return json.Unmarshal(v.V, to) == nil
}

// since is when a flag of the record was set, 0 if it is not.
func (r Record) since(key string) relay.Millis {
	var on bool
	if r.get(key, &on) && on {
		return r[key].At
	}
	return 0
}

// Stopped is when a person stopped the bots, 0: never.
func (r Record) Stopped() relay.Millis { return r.since(keyStopped) }

// Continued is when somebody last had the bots go on, 0: never.
func (r Record) Continued() relay.Millis { return r.since(keyContinued) }

// Member is an agent whose bot is in a group, and what its sidecar says of itself.
type Member struct {
	Agent      relay.AgentName `json:"-"`
	Name       string          `json:"name,omitempty"` // the bot's display name
	MentionAll bool            `json:"mention_all,omitempty"`
	CanWrite   bool            `json:"can_write,omitempty"` // to Feishu
	Answer     Mode            `json:"answer"`              // ANSWER_MODE
	Budget     int             `json:"budget,omitempty"`    // GROUP_BUDGET
}

// Members lists the agents whose bots are in the group, in order of their ids.
func (r Record) Members() []Member {
	var out []Member
	for key := range r {
		agent, ok := strings.CutPrefix(key, keyIn)
		m := Member{Agent: relay.AgentName(agent)}
		if ok && r.get(key, &m) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(string(a.Agent), string(b.Agent)) })
	return out
}

// Member is what r says of an agent.
func (r Record) Member(agent relay.AgentName) (m Member, in bool) {
	in = r.get(keyIn+string(agent), &m)
	m.Agent = agent
	return m, in
}

// Bounded is m as a record can hold it: a long name is cut.
func (m Member) Bounded() Member {
	m.Name = runes.Cut(m.Name, maxName)
	return m
}

// Join is the change that a bot is in the group.
func Join(m Member) Set { return Set{keyIn + string(m.Agent): encode(m.Bounded())} }

// Leave is the change that a bot is no longer in the group.
func Leave(agent relay.AgentName) Set { return Set{keyIn + string(agent): json.RawMessage("null")} }

// Version names the state of the settings: equal records have the same, everywhere.
func (r Record) Version() string { return version(r) }

// Over lays the record over settings that hold without it; sources is changed with them.
func (r Record) Over(s Settings, sources map[string]string, now time.Time) Settings {
	over := func(key string, to any) bool {
		ok := r.get(key, to)
		if ok {
			sources[key] = FromRecord
		}
		return ok
	}
	over(keyAnswer, &s.Answer)
	over(keyDefaultBot, &s.DefaultBot)
	if limit, threshold := over(keyLimit, &s.Limit), over(keyThreshold, &s.Threshold); limit || threshold {
		s.Threshold = min(s.Threshold, s.Limit) // two changes at once may have crossed
	}
	over(keyJudge, &s.Judge)
	var budget int
	if r.get(keyBudget, &budget) && (s.Budget == 0 || budget > 0 && budget < s.Budget) { // never above the operator's
		over(keyBudget, &s.Budget)
	}
	var paused Until
	if over(keyPaused, &paused) && paused.Holds(now) {
		s.Paused = &paused
	}
	s.Muted = map[relay.AgentName]*Until{}
	for key := range r {
		agent, ok := strings.CutPrefix(key, keyMuted)
		var muted Until
		if ok && r.get(key, &muted) && muted.Holds(now) {
			s.Muted[relay.AgentName(agent)] = &muted
			sources["muted"] = FromRecord
		}
	}
	return s
}

func encode(v any) json.RawMessage {
	data, err := relay.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and flags are always JSON
	}
	return data
}

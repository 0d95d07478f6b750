package group

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// FieldError is a field of a request that cannot be so.
type FieldError struct {
	Field   string // "": the whole body
	Message string
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// patch is what a request changes, and the version of the settings that it is about, "" for any: an object with keys of
// [Settings], where a pause is true, false or a time such as "30m". It makes the changes that a command makes.
func (s *State) patch(body []byte) (c Changes, version string, wrong *FieldError) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, "", &FieldError{"", "want a JSON object of settings"}
	}
	set, _ := s.settings()
	p := patching{State: s, c: Changes{}, limit: set.Limit}
	for _, key := range append([]string{keyLimit}, slices.Sorted(maps.Keys(fields))...) { // the threshold depends on the limit
		raw, ok := fields[key]
		delete(fields, key)
		switch {
		case !ok:
		case key != "version":
			if wrong := p.field(key, raw); wrong != nil {
				return nil, "", wrong
			}
		case json.Unmarshal(raw, &version) != nil || isNull(raw):
			return nil, "", &FieldError{key, "want a string"}
		}
	}
	_, limited := p.c[keyLimit]
	if _, ok := p.c[keyThreshold]; limited && !ok && p.limit < set.Threshold {
		p.c.set(keyThreshold, p.limit)
	}
	return p.c, version, nil
}

// patching goes through a request.
type patching struct {
	*State
	c     Changes
	limit int // as it is or will be
}

func (p *patching) field(key string, raw json.RawMessage) (wrong *FieldError) {
	switch key {
	case keyAnswer:
		var mode Mode
		if json.Unmarshal(raw, &mode) != nil || !slices.Contains(modes, mode) {
			return &FieldError{key, fmt.Sprintf("want one of %v", modes)}
		}
		p.c.set(key, mode)
	case keyDefaultBot:
		var bot relay.AgentName // null means none too
		if json.Unmarshal(raw, &bot) != nil || bot != "" && !p.member(bot) {
			return &FieldError{key, "want the agent name of a bot in this group, or null"}
		}
		p.c.set(key, bot)
	case keyLimit, keyThreshold, keyBudget:
		low, high := p.bounds(Verb(key))
		if key == keyThreshold {
			high = p.limit
		}
		var n int
		if json.Unmarshal(raw, &n) != nil || isNull(raw) || n < low || n > high {
			return &FieldError{key, fmt.Sprintf("want a whole number from %d to %d", low, high)}
		}
		if p.c.set(key, n); key == keyLimit {
			p.limit = n
		}
	case keyJudge:
		var on bool
		if json.Unmarshal(raw, &on) != nil || isNull(raw) {
			return &FieldError{key, "want true or false"}
		}
		p.c.set(key, on)
	case keyPaused:
		return p.pause(key, key, raw)
	case "muted":
		var bots map[relay.AgentName]json.RawMessage
		if json.Unmarshal(raw, &bots) != nil || bots == nil {
			return &FieldError{key, `want an object such as {"agent_b": "30m"}`}
		}
		for _, bot := range slices.Sorted(maps.Keys(bots)) {
			field, muted := "muted."+word(string(bot)), keyMuted+string(bot)
			if !p.member(bot) && !p.d.Settings.get(muted, new(Until)) {
				return &FieldError{field, "is not the agent name of a bot in this group"}
			}
			if wrong := p.pause(field, muted, bots[bot]); wrong != nil {
				return wrong
			}
		}
	default:
		return &FieldError{word(key), "is no setting; there are " + strings.Join(append(settingKeys, "muted"), ", ")}
	}
	return nil
}

// pause reads true, false, or how long.
func (p *patching) pause(field, key string, raw json.RawMessage) *FieldError {
	var on bool
	var text string
	switch {
	case isNull(raw):
	case json.Unmarshal(raw, &on) == nil && on:
		p.c.set(key, Until{})
		return nil
	case json.Unmarshal(raw, &on) == nil:
		p.c[key] = Value{V: unset}
		return nil
	case json.Unmarshal(raw, &text) == nil:
		if d, ok := parseDuration(text); ok && d > 0 && d <= maxPause {
			end := p.now + relay.Millis(d.Milliseconds())
			p.c.set(key, Until{&end})
			return nil
		}
	}
	return &FieldError{field, `want true, false, or a time such as "30m", "2h" or "1d", at most 7 days`}
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

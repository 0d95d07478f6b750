package steer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/relay"
)

// least is the lowest number that a verb takes.
func least(v Verb) int {
	if v == VerbLimit {
		return 1
	}
	return 0
}

// bounds are the numbers that a group takes for limit, threshold and budget.
func (g Group) bounds(v Verb) (low, high int) {
	high = maxNumber
	switch {
	case v == VerbLimit && g.MaxDepth > 0:
		high = g.MaxDepth
	case v == VerbThreshold:
		high = g.Settings.Limit
	case v == VerbBudget && g.Operator > 0:
		high = g.Operator
	}
	return least(v), high
}

// Changes is what a command given at a time changes of a group, nil for one that changes
// nothing. The end of a pause counts from that time.
func (a Asked) Changes(g Group, at relay.Millis) (Set, *Mistake) {
	if a.Mistake != nil {
		return nil, a.Mistake
	}
	switch a.Verb {
	case VerbPause:
		return Set{keyPaused: encode(pause(at, a.For))}, nil
	case VerbResume:
		return Set{keyPaused: unset}, nil
	case VerbMute, VerbUnmute:
		set := Set{}
		for _, bot := range a.Bots {
			if set[keyMuted+string(bot)] = unset; a.Verb == VerbMute {
				set[keyMuted+string(bot)] = encode(pause(at, a.For))
			}
		}
		return set, nil
	case VerbAnswer:
		set := Set{keyAnswer: encode(a.Mode)}
		if len(a.Bots) > 0 {
			set[keyDefaultBot] = encode(a.Bots[0])
		}
		return set, nil
	case VerbLimit, VerbThreshold, VerbBudget:
		if low, high := g.bounds(a.Verb); a.N < low || a.N > high {
			asked := a.NoNumber
			if a.N >= 0 {
				asked = fmt.Sprint(a.N)
			}
			return nil, badNumber(a.Verb, asked, low, high)
		}
		set := Set{string(a.Verb): encode(a.N)}
		if a.Verb == VerbLimit && a.N < g.Settings.Threshold {
			set[keyThreshold] = encode(a.N)
		}
		return set, nil
	case VerbJudge:
		return Set{keyJudge: encode(a.On)}, nil
	case VerbStop:
		return Set{keyStopped: encode(true)}, nil
	case VerbContinue:
		if g.Settings.Paused != nil { // what is held stays so
			return nil, stillPaused
		}
		return Set{keyContinued: encode(true)}, nil
	case VerbForget:
		return Set{keyForgotten: encode(true)}, nil
	}
	return nil, nil
}

// unset takes a key back.
var unset = json.RawMessage("null")

// pause is one of a duration; 0: until somebody ends it.
func pause(at relay.Millis, d time.Duration) Until {
	if d <= 0 {
		return Until{}
	}
	end := at + relay.Millis(d.Milliseconds())
	return Until{&end}
}

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

// Patch is the change of a group that a request asks for at a time, and the version that it
// is about, "" for any: an object with keys of [Settings], where a pause is true, false or
// a time such as "30m". All of it can be done, or the error is a [*FieldError].
func Patch(body []byte, g Group, at relay.Millis) (set Set, version string, err error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, "", &FieldError{Message: "want a JSON object of settings"}
	}
	set = Set{}
	limit, limitSet := g.Settings.Limit, false
	if raw, ok := fields[keyLimit]; ok { // the threshold depends on it
		low, high := g.bounds(VerbLimit)
		if limit, err = whole(keyLimit, raw, low, high); err != nil {
			return nil, "", err
		}
		set[keyLimit], limitSet = encode(limit), true
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if err := patchField(set, key, fields[key], g, limit, at); err != nil {
			return nil, "", err
		}
	}
	if raw, ok := fields["version"]; ok && (json.Unmarshal(raw, &version) != nil || isNull(raw)) {
		return nil, "", &FieldError{"version", "want a string"}
	}
	if _, ok := set[keyThreshold]; limitSet && !ok && limit < g.Settings.Threshold {
		set[keyThreshold] = encode(limit)
	}
	return set, version, nil
}

func patchField(set Set, key string, raw json.RawMessage, g Group, limit int, at relay.Millis) (err error) {
	switch key {
	case "version", keyLimit: // read already
	case keyAnswer:
		var mode Mode
		if json.Unmarshal(raw, &mode) != nil || !slices.Contains(Modes, mode) {
			return &FieldError{key, fmt.Sprintf("want one of %v", Modes)}
		}
		set[key] = encode(mode)
	case keyDefaultBot:
		var bot relay.AgentName // null means none too
		if json.Unmarshal(raw, &bot) != nil || bot != "" && !g.has(bot) {
			return &FieldError{key, "want the agent name of a bot in this group, or null"}
		}
		set[key] = encode(bot)
	case keyThreshold:
		n, err := whole(key, raw, 0, limit)
		if err != nil {
			return err
		}
		set[key] = encode(n)
	case keyBudget:
		low, high := g.bounds(VerbBudget)
		n, err := whole(key, raw, low, high)
		if err != nil {
			return err
		}
		set[key] = encode(n)
	case keyJudge:
		var on bool
		if json.Unmarshal(raw, &on) != nil || isNull(raw) {
			return &FieldError{key, "want true or false"}
		}
		set[key] = encode(on)
	case keyPaused:
		set[key], err = patchPause(key, raw, at)
	case "muted":
		var bots map[relay.AgentName]json.RawMessage
		if json.Unmarshal(raw, &bots) != nil || bots == nil {
			return &FieldError{key, `want an object such as {"agent_b": "30m"}`}
		}
		for _, bot := range slices.Sorted(maps.Keys(bots)) {
			field := "muted." + clean(string(bot))
			if _, muted := g.Settings.Muted[bot]; !muted && !g.has(bot) {
				return &FieldError{field, "is not the agent name of a bot in this group"}
			}
			if set[keyMuted+string(bot)], err = patchPause(field, bots[bot], at); err != nil {
				return err
			}
		}
	default:
		return &FieldError{clean(key), "is no setting; there are " +
			strings.Join(slices.Concat(settingKeys, []string{"muted"}), ", ")}
	}
	return err
}

// whole reads a whole number within bounds.
func whole(field string, raw json.RawMessage, low, high int) (n int, err error) {
	if json.Unmarshal(raw, &n) != nil || isNull(raw) || n < low || n > high {
		return 0, &FieldError{field, fmt.Sprintf("want a whole number from %d to %d", low, high)}
	}
	return n, nil
}

// patchPause reads true, false, or how long.
func patchPause(field string, raw json.RawMessage, at relay.Millis) (json.RawMessage, error) {
	var on bool
	var text string
	switch {
	case isNull(raw):
	case json.Unmarshal(raw, &on) == nil && on:
		return encode(Until{}), nil
	case json.Unmarshal(raw, &on) == nil:
		return unset, nil
	case json.Unmarshal(raw, &text) == nil:
		if d, ok := parseDuration(text); ok && inBounds(d) {
			return encode(pause(at, d)), nil
		}
	}
	return nil, &FieldError{field, `want true, false, or a time such as "30m", "2h" or "1d", at most 7 days`}
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func (g Group) has(bot relay.AgentName) bool {
	return slices.ContainsFunc(g.Bots, func(b Bot) bool { return b.Agent == bot })
}

package group

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// patch is what a request changes, and the version of the settings that it is about, "" for any: an object with keys of
// [Settings], where a pause is true, false or a time such as "30m". It is read as the commands that change the same.
func (s *State) patch(body []byte) (c Changes, version string, wrong error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, "", relay.Errorf(relay.CodeInvalidRequest, "want a JSON object of settings")
	}
	c = Changes{}
	limit := 0
	for _, key := range append([]string{keyLimit}, slices.Sorted(maps.Keys(fields))...) { // the threshold depends on it
		raw, ok := fields[key]
		delete(fields, key)
		if !ok {
			continue
		}
		if key == "version" {
			if json.Unmarshal(raw, &version) != nil || isNull(raw) {
				return nil, "", fieldError(key, "want a string")
			}
			continue
		}
		commands, want := s.asked(key, raw)
		if want != "" {
			return nil, "", fieldError(key, want)
		}
		for _, a := range commands {
			a.limit = limit
			set, _, mistake := s.meant(&a, s.now)
			if mistake != nil {
				return nil, "", fieldError(key, mistake.text(false))
			}
			if key == keyLimit {
				limit = a.n
			}
			if key == keyDefaultBot {
				delete(set, keyAnswer)
			}
			maps.Copy(c, set)
		}
	}
	return c, version, nil
}

func fieldError(field, message string) error {
	return &relay.Error{Code: relay.CodeInvalidRequest, Field: word(field), Message: word(field) + ": " + message}
}

// asked are the commands that change a field, or what the field wants.
func (s *State) asked(key string, raw json.RawMessage) (commands []asked, want string) {
	switch key {
	case keyAnswer:
		a := asked{verb: VerbAnswer}
		if json.Unmarshal(raw, &a.mode) != nil || !slices.Contains(modes, a.mode) {
			return nil, "want one of all, named, default, one"
		}
		return []asked{a}, ""
	case keyDefaultBot:
		var bot relay.AgentName // null means none too
		if json.Unmarshal(raw, &bot) != nil || bot != "" && !s.member(bot) {
			return nil, "want the agent name of a bot in this group, or null"
		}
		return []asked{{verb: VerbAnswer, bots: []relay.AgentName{bot}}}, ""
	case keyLimit, keyThreshold, keyBudget:
		a := asked{verb: Verb(key)}
		if json.Unmarshal(raw, &a.n) != nil || isNull(raw) {
			return nil, "want a whole number"
		}
		return []asked{a}, ""
	case keyJudge:
		a := asked{verb: VerbJudge}
		if json.Unmarshal(raw, &a.on) != nil || isNull(raw) {
			return nil, "want true or false"
		}
		return []asked{a}, ""
	case keyPaused:
		return pauses(asked{verb: VerbPause}, VerbResume, raw)
	case "muted":
		var bots map[relay.AgentName]json.RawMessage
		if json.Unmarshal(raw, &bots) != nil || bots == nil {
			return nil, `want an object such as {"agent_b": "30m"}`
		}
		for bot, raw := range bots {
			if !s.member(bot) && !s.d.Settings.get(keyMuted+string(bot), new(Until)) {
				return nil, word(string(bot)) + " is not the agent name of a bot in this group"
			}
			more, want := pauses(asked{verb: VerbMute, bots: []relay.AgentName{bot}}, VerbUnmute, raw)
			if want != "" {
				return nil, want
			}
			commands = append(commands, more...)
		}
		return commands, ""
	}
	return nil, "is no setting; there are " + strings.Join(settingKeys, ", ") + ", muted"
}

// pauses reads true, false, or how long.
func pauses(a asked, end Verb, raw json.RawMessage) ([]asked, string) {
	var on bool
	var text string
	ok := false
	switch {
	case isNull(raw):
	case json.Unmarshal(raw, &on) == nil:
		if ok = true; !on {
			a.verb = end
		}
	case json.Unmarshal(raw, &text) == nil:
		a.pause, ok = parseDuration(text)
	}
	if !ok {
		return nil, `want true, false, or a time such as "30m", "2h" or "1d", at most 7 days`
	}
	return []asked{a}, ""
}

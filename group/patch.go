package group

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// patch is what a request changes, and the version of the settings that it is about, "" for any: an object with keys of
// [Settings], where a pause is true, false or a time such as "30m". Each field is read as the command that changes it.
func (s *State) patch(body []byte) (c Changes, version string, wrong error) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&fields) != nil || fields == nil {
		return nil, "", relay.Errorf(relay.CodeInvalidRequest, "want a JSON object of settings")
	}
	c = Changes{}
	if v, ok := fields["version"]; ok {
		if version, ok = v.(string); !ok {
			return nil, "", fieldError("version", "want a string")
		}
		delete(fields, "version")
	}
	limit := 0
	bots := slices.Clone(s.members()) // by their agents' names alone
	for i := range bots {
		bots[i].Name = string(bots[i].Agent)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) { // the limit before the threshold, which depends on it
		commands, known := commandsOf(key, fields[key])
		if !known {
			return nil, "", fieldError(key, "is no setting; there are "+strings.Join(settingKeys, ", ")+", muted")
		}
		for field, text := range commands {
			a := asked{limit: limit}
			var set Changes
			mistake := newReader(text, bots).command(&a, "")
			if mistake == none {
				set, _, mistake = s.meant(&a, "", s.now)
			}
			if mistake != none {
				return nil, "", fieldError(field, mistake.en)
			}
			if key == keyLimit {
				limit, _ = strconv.Atoi(a.number) // it is one
			}
			if key == keyDefaultBot { // and not the mode with it
				delete(set, keyAnswer)
			}
			maps.Copy(c, set)
		}
		if key == keyDefaultBot && len(commands) == 0 {
			c.set(keyDefaultBot, "")
		}
	}
	return c, version, nil
}

func fieldError(field, message string) error {
	return &relay.Error{Code: relay.CodeInvalidRequest, Field: word(field), Message: word(field) + ": " + message}
}

// commandsOf are the commands that set a field, by what the request has; for no default bot there is none.
func commandsOf(key string, v any) (commands map[string]string, known bool) {
	one := func(text string) (map[string]string, bool) { return map[string]string{key: text}, true }
	switch key {
	case keyLimit, keyThreshold, keyBudget:
		if _, isNumber := v.(json.Number); !isNumber {
			return one(key)
		}
		return one(key + " " + fmt.Sprint(v))
	case keyAnswer:
		if _, isText := v.(string); !isText {
			return one(key)
		}
		return one(key + " " + fmt.Sprint(v))
	case keyJudge:
		return one(onOff("judge on", "judge off", v))
	case keyDefaultBot:
		if v == nil || v == "" {
			return nil, true
		}
		return one("answer default " + fmt.Sprint(v))
	case keyPaused:
		return one(onOff("pause", "resume", v))
	case "muted":
		bots, isObject := v.(map[string]any)
		if !isObject {
			return one("mute") // whom?
		}
		commands = map[string]string{}
		for bot, v := range bots {
			commands[key+"."+bot] = onOff("mute "+bot, "unmute "+bot, v)
		}
		return commands, true
	}
	return nil, false
}

// onOff is the command for true or false, or the one with a time behind it.
func onOff(on, off string, v any) string {
	switch v {
	case true:
		return on
	case false:
		return off
	}
	text := fmt.Sprint(v)
	if v == nil || strings.TrimFunc(narrow(text), isBetween) == "" { // a command has no argument then
		text = "null"
	}
	return on + " " + text
}

package steer_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

const noon relay.Millis = 1_700_000_000_000

// set is a change as JSON: of each key the value.
func set(t *testing.T, s steer.Set) string {
	t.Helper()
	line, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"status":             `null`,
		"help":               `null`,
		"why":                `null`,
		"pause":              `{"paused":{"until":null}}`,
		"pause 30m":          `{"paused":{"until":1700001800000}}`,
		"resume":             `{"paused":null}`,
		"mute BotA bot b 1d": `{"muted:agent_a":{"until":1700086400000},"muted:agent_b":{"until":1700086400000}}`,
		"mute BotA":          `{"muted:agent_a":{"until":null}}`,
		"unmute 小助手":         `{"muted:agent_c":null}`,
		"answer one":         `{"answer":"one"}`,
		"answer default":     `{"answer":"default"}`,
		"answer BotA":        `{"answer":"default","default_bot":"agent_a"}`,
		"limit 10":           `{"limit":10}`,
		"limit 2":            `{"limit":2}`,
		"limit 1":            `{"limit":1,"threshold":1}`,
		"threshold 0":        `{"threshold":0}`,
		"threshold 5":        `{"threshold":5}`,
		"judge off":          `{"judge":false}`,
		"budget 0":           `{"budget":0}`,
		"budget 50":          `{"budget":50}`,
		"stop":               `{"stopped":true}`,
		"continue":           `{"continued":true}`,
		"continue BotA":      `{"continued":true}`,
		"forget":             `{"forgotten":true}`,
	} {
		g := room()
		g.Operator = 50
		c, is := steer.ParseCommand(steer.Said{Text: "/relay " + text}, commandWords, g.Bots)
		got, mistake := c.Changes(g, noon)
		if !is || mistake != nil || set(t, got) != want {
			t.Errorf("%s: %s, mistake: %s\nwant %s", text, set(t, got), wrong(mistake), want)
		}
		if r := (steer.Record{}); len(got) > 0 && !r.Merge(got.Of(noon, "om_1")) {
			t.Errorf("%s: no record takes %s", text, set(t, got))
		}
	}
}

func TestChangesOutOfBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"limit 0": "1 to 10, not “0”", "limit 11": "1 to 10, not “11”", "limit many": "1 to 10, not “many”",
		"threshold 6":  "0 to 5",
		"threshold -1": "0 to 5, not “-1”", "budget 51": "0 to 50", "budget 9999999": "0 to 50", "budget": "0 to 50.",
	} {
		g := room()
		g.Operator = 50
		c, _ := steer.ParseCommand(steer.Said{Text: "/relay " + text}, commandWords, g.Bots)
		if got, mistake := c.Changes(g, noon); got != nil || !strings.Contains(wrong(mistake), want) {
			t.Errorf("%s: %s, mistake: %s\nwant %s", text, set(t, got), wrong(mistake), want)
		}
	}
	g := room() // without an operator's budget
	c, _ := steer.ParseCommand(steer.Said{Text: "/relay budget 1000001"}, commandWords, g.Bots)
	if _, mistake := c.Changes(g, noon); !strings.Contains(wrong(mistake), "0 to 1000000") {
		t.Errorf("mistake: %s", wrong(mistake))
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{}`:                `{}`,
		`{"version":"abc"}`: `{}`,
		`{"answer":"one","default_bot":"agent_b"}`: `{"answer":"one","default_bot":"agent_b"}`,
		`{"default_bot":""}`:                       `{"default_bot":""}`,
		`{"default_bot":null}`:                     `{"default_bot":""}`,
		`{"limit":1}`:                              `{"limit":1,"threshold":1}`,
		`{"limit":8,"threshold":8}`:                `{"limit":8,"threshold":8}`,
		`{"threshold":0,"limit":1}`:                `{"limit":1,"threshold":0}`,
		`{"judge":false,"budget":7}`:               `{"budget":7,"judge":false}`,
		`{"paused":true}`:                          `{"paused":{"until":null}}`,
		`{"paused":"30m"}`:                         `{"paused":{"until":1700001800000}}`,
		`{"paused":false}`:                         `{"paused":null}`,
		`{"muted":{"agent_a":"2小时","agent_b":true,"left":false}}`: `{"muted:agent_a":{"until":1700007200000},` +
			`"muted:agent_b":{"until":null},"muted:left":null}`,
	} {
		g := room()
		g.Settings.Muted = map[relay.AgentName]*steer.Until{"left": {}} // of a bot that was removed
		got, version, err := steer.Patch([]byte(body), g, noon)
		if err != nil || set(t, got) != want || (version != "") != strings.Contains(body, "abc") {
			t.Errorf("%s: %s, version %q, %v\nwant %s", body, set(t, got), version, err, want)
		}
		if r := (steer.Record{}); len(got) > 0 && !r.Merge(got.Of(noon, "om_1")) {
			t.Errorf("%s: no record takes %s", body, set(t, got))
		}
	}
}

func TestPatchNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		``: "", `[]`: "", `null`: "", `"x"`: "", `{"limit":5`: "",
		`{"answer":"some"}`: "answer", `{"answer":null}`: "answer", `{"default_bot":"agent_z"}`: "default_bot",
		`{"default_bot":1}`: "default_bot",
		`{"limit":0}`:       "limit", `{"limit":11}`: "limit", `{"limit":"5"}`: "limit", `{"limit":null}`: "limit",
		`{"limit":2.5}`:   "limit",
		`{"threshold":6}`: "threshold", `{"limit":3,"threshold":4}`: "threshold", `{"judge":null}`: "judge",
		`{"judge":"on"}`: "judge",
		`{"budget":-1}`:  "budget", `{"budget":51}`: "budget", `{"paused":null}`: "paused", `{"paused":"8d"}`: "paused",
		`{"paused":30}`:  "paused",
		`{"muted":true}`: "muted", `{"muted":null}`: "muted", `{"muted":{"agent_z":true}}`: "muted.agent_z",
		`{"muted":{"agent_a":1}}`: "muted.agent_a",
		`{"version":5}`:           "version", `{"version":null}`: "version", `{"Limit":5}`: "Limit",
		`{"stopped":true}`:        "stopped",
		`{"judge":true,"nope":1}`: "nope",
	} {
		g := room()
		g.Operator = 50
		got, _, err := steer.Patch([]byte(body), g, noon)
		var wrong *steer.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field || wrong.Message == "" || !strings.HasPrefix(err.Error(),
			field) || got != nil {
			t.Errorf("%s: %v, %s\nwant %q", body, err, set(t, got), field)
		}
	}
}

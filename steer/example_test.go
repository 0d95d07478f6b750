package steer_test

import (
	"fmt"
	"slices"
	"time"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

// A person's command is parsed, becomes a change of the group's record, and is answered.
func ExampleParseCommand() {
	group := steer.Group{
		Bots:     []steer.Bot{{Agent: "agent_a", Name: "BotA"}, {Agent: "agent_b", Name: "BotB"}},
		Settings: steer.Settings{Answer: steer.All, Limit: 3, Threshold: 1},
		MaxDepth: 10,
	}
	at := time.Date(2026, 1, 2, 14, 34, 0, 0, time.FixedZone("CST", 8*60*60))
	said := steer.Said{Text: "@BotA /relay mute @BotB 30m", Mentions: []steer.Mentioned{
		{Text: "@BotA", Agent: "agent_a"}, {Text: "@BotB", Agent: "agent_b"}}}

	asked, is := steer.ParseCommand(said, []string{"/relay", "/中继"}, group.Bots)
	set, mistake := asked.Changes(group, relay.MillisOf(at))
	if !is || mistake != nil {
		return
	}
	record := steer.Record{}
	record.Merge(set.Of(relay.MillisOf(at), "om_1"))
	settings := record.Over(group.Settings, map[string]string{}, at)

	fmt.Println(asked.Verb, asked.Bots, asked.For)
	fmt.Println(settings.Muted["agent_b"].Holds(at.Add(29*time.Minute)),
		settings.Muted["agent_b"].Holds(at.Add(30*time.Minute)))
	fmt.Println(asked.AnswerText(group, at))
	// Output:
	// mute [agent_b] 30m0s
	// true false
	// BotB is muted until 15:04.
}

// In mode one a person's message that names no bot is for the bot that spoke to them last.
func ExampleAudienceOf() {
	bots := []steer.Bot{{Agent: "agent_a"}, {Agent: "agent_b"}}
	before := []steer.Line{ // the newest first
		{ID: "om_2", Bot: "agent_b", ParentID: "om_1"},
		{ID: "om_1", Person: "ou_p"},
	}
	settings := steer.Settings{Answer: steer.One}

	fmt.Println(steer.AudienceOf(steer.Line{ID: "om_3", Person: "ou_p"}, settings, bots, slices.Values(before)).OneOf)

	named := func() steer.Names { return steer.Names{Bots: []relay.AgentName{"agent_a"}} }
	fmt.Println(steer.AudienceOf(steer.Line{ID: "om_3", Person: "ou_p", Named: named}, settings, bots,
		slices.Values(before)).Bots)
	// Output:
	// [agent_b agent_a]
	// [agent_a]
}

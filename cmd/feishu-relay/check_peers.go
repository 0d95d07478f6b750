package main

import (
	"context"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checkPeers reports which other agents were seen here: in the mailbox, and by the
// state that sidecars keep in a shared folder.
func checkPeers(_ context.Context, s *subject) []finding {
	seen := statesIn(filepath.Join(s.RelayDir, "offsets"))
	cards, _ := s.cards() // mistakes are reported with the mailbox
	for _, card := range cards {
		if agent := string(card.AgentID); !seen[agent].After(card.LastHeartbeat) {
			seen[agent] = card.LastHeartbeat
		}
	}
	delete(seen, string(s.Agent))
	agents := slices.Collect(maps.Keys(seen))
	slices.SortFunc(agents, func(a, b string) int { return seen[b].Compare(seen[a]) }) // the last seen first
	var ago []text
	for _, agent := range agents {
		ago = append(ago, say("%s (%s ago)", "%s（%s前）", agent, age(time.Since(seen[agent]))))
	}
	var out []finding
	switch {
	case len(agents) > 0:
		out = well("%s seen: %s", "见过 %s：%s",
			amount(len(agents), "other agent was", "other agents were", "个其他智能体"), some(ago))
	case !s.noRedis(): // else who is there is not known
		out = unseen(say("start the others, and check again; all sidecars share one RELAY_DIR, or one REDIS_URL and "+
			"RELAY_CHANNEL",
			"启动其他边车，再检查一次；所有边车的 RELAY_DIR 要相同，或 REDIS_URL 和 RELAY_CHANNEL 都相同"),
			"no other agent has been seen yet", "还没有见过其他智能体")
	}
	return append(out, namesakes(s.config)...)
}

// statesIn returns whose state is in a folder, and when it was written last.
func statesIn(offsets string) map[string]time.Time {
	seen := map[string]time.Time{}
	list, _ := os.ReadDir(offsets) // missing, or reported with the relay folder
	for _, entry := range list {
		file, ok := strings.CutSuffix(entry.Name(), ".lock")
		agent, err := url.PathUnescape(file) // what safefile.Name wrote
		if !ok || err != nil {
			continue
		}
		for _, state := range list {
			info, err := state.Info()
			if err == nil && strings.HasPrefix(state.Name(), file+".") && info.ModTime().After(seen[agent]) {
				seen[agent] = info.ModTime()
			}
		}
	}
	return seen
}

// namesakes warns of another agent that people call like this bot.
func namesakes(c *config) []finding {
	file := readGroups(c.GroupsFile)
	if c.BotName == "" || file == nil {
		return nil
	}
	var others []string
	for id, a := range file.Agents {
		if called(a, c.BotName) && id != string(c.Agent) && id != c.BotName {
			others = append(others, id)
		}
	}
	if slices.Sort(others); len(others) == 0 {
		return nil
	}
	return warning(say("give each bot a name of its own in Feishu, in BOT_NAME and in %s",
		"在飞书、BOT_NAME 和 %s 里给每个机器人各起一个名字", c.GroupsFile),
		"%s is called %s as well: who is addressed by that name, cannot be told",
		"%s 也叫 %s：用这个名字时分不清叫的是谁", some(others), c.BotName)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/groups"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/redisbox"
)

// checkPeers tells which other agents were seen here: in the mailbox, and by the
// state that sidecars keep in a shared folder.
func checkPeers(ctx context.Context, c *subject) []finding {
	const name = "peers"
	seen := map[string]time.Time{}
	for _, card := range mailCards(ctx, c.config) {
		seen[string(card.AgentID)] = card.LastHeartbeat
	}
	for agent, at := range statesIn(filepath.Join(c.RelayDir, "offsets")) {
		if at.After(seen[agent]) {
			seen[agent] = at
		}
	}
	delete(seen, string(c.Agent))
	var out []finding
	switch {
	case len(seen) > 0:
		agents := slices.Collect(maps.Keys(seen))
		slices.SortFunc(agents, func(a, b string) int { return seen[b].Compare(seen[a]) }) // the last seen first
		for i, agent := range agents {
			agents[i] = fmt.Sprintf("%s (%s ago)", agent, age(time.Since(seen[agent])))
		}
		out = append(out, well(name, "%s seen: %s", counted(len(agents), "other agent was", "other agents were"), some(agents)))
	case c.Backend == "redis" && c.redis() != nil: // who is there, is not known; told already
	default:
		out = append(out, well(name, "no other agent has been seen yet; all sidecars share one RELAY_DIR, or one REDIS_URL"))
	}
	return append(out, namesakes(c.config)...)
}

// mailCards are the cards of the mailbox; what is wrong with it, is told there.
func mailCards(ctx context.Context, c *config) []mailbox.Card {
	if !c.Mailbox.On {
		return nil
	}
	if c.Mailbox.Backend == "file" {
		_, cards := checkRegistry(c)
		return cards
	}
	store, err := redisbox.Open(redisbox.Options{URL: string(c.RedisURL), Self: mailbox.AgentID(c.Agent)})
	if err != nil {
		return nil
	}
	defer store.Close()
	cards, _ := store.Cards(ctx)
	return cards
}

// statesIn tells whose state lies in a folder, and when it was written last.
func statesIn(offsets string) map[string]time.Time {
	seen := map[string]time.Time{}
	list, err := os.ReadDir(offsets)
	if err != nil {
		return nil // not made yet, or told with the relay folder
	}
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
	data, err := readAtMost(c.GroupsFile, groups.MaxSize)
	if c.BotName == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	file, err := groups.Parse(data)
	if err != nil {
		return nil // told with the groups file
	}
	var others []string
	for id, a := range file.Agents {
		if (a.Name == c.BotName || slices.Contains(a.Aliases, c.BotName)) && id != string(c.Agent) && id != c.BotName {
			others = append(others, id)
		}
	}
	if slices.Sort(others); len(others) == 0 {
		return nil
	}
	return []finding{warning("peers", "give each bot a name of its own in Feishu, in BOT_NAME and in "+c.GroupsFile,
		"%s is called %s as well: who is addressed by that name, cannot be told", some(others), c.BotName)}
}

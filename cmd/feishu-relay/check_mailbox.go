package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"feishu-relay/mailbox"
)

const (
	registryFile = "_registry.json" // of the file mailbox (MAILBOX.md A)
	maxRegistry  = 8 << 20          // bytes; a sidecar reads no more of it
	maxTried     = 200              // agents whose inboxes are tried; the rest is left out
)

// checkMailbox tries what direct messages stand on.
func checkMailbox(ctx context.Context, c *subject) []finding {
	switch {
	case !c.Mailbox.On:
		return []finding{well("mailbox", "MAILBOX is off: no direct messages")}
	case c.Mailbox.Backend == "redis" && c.Backend == "redis" && c.redis() != nil:
		return nil // told already
	case c.Mailbox.Backend == "redis":
		return checkMailboxRedis(ctx, c.config)
	}
	out := checkFolder("mailbox folder", "MAILBOX_DIR", c.Mailbox.Dir)
	if out[0].Status == statusFail {
		return out
	}
	if _, err := os.Stat(c.Mailbox.Dir); errors.Is(err, fs.ErrNotExist) {
		return out
	}
	found, cards := checkRegistry(c.config)
	return append(append(out, found), checkInboxes(c.config, cards)...)
}

// checkRegistry reads the agents' cards as a sidecar does.
func checkRegistry(c *config) (finding, []mailbox.Card) {
	const name = "mailbox registry"
	path := filepath.Join(c.Mailbox.Dir, registryFile)
	data, err := readAtMost(path, maxRegistry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return well(name, "no agent has registered in %s yet", c.Mailbox.Dir), nil
	case err != nil:
		return failure(name, "run all agents that share MAILBOX_DIR as one user, or let their group read and write it", "%v", err), nil
	case len(data) > maxRegistry:
		return failure(name, "delete the agents that are no more from "+path, "%s is longer than %d bytes", path, maxRegistry), nil
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(data, &entries); err != nil {
		return warning(name, "correct it, if somebody edits it by hand; else nothing needs to be done",
			"%s is no JSON object: a running sidecar keeps it as %s.broken-… and begins a new one, in which each agent enters itself again", path, registryFile), nil
	}
	var cards []mailbox.Card
	var unread []string
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		card, err := mailbox.DecodeCard(mailbox.AgentID(id), entries[id])
		if err != nil {
			unread = append(unread, id)
			continue
		}
		cards = append(cards, card)
	}
	if len(unread) > 0 {
		return warning(name, "correct or delete them in "+path, "%s; left out, since they cannot be read: %s", counted(len(cards), "agent", "agents"), some(unread)), cards
	}
	return well(name, "%s", present(c, cards)), cards
}

// present counts the agents, and those that are there.
func present(c *config, cards []mailbox.Card) string {
	now, there := time.Now(), 0
	for _, card := range cards {
		if card.At(now, c.Mailbox.HeartbeatTimeout) != mailbox.Offline {
			there++
		}
	}
	return fmt.Sprintf("%s registered, %s there", counted(len(cards), "agent is", "agents are"), counted(there, "of them is", "of them are"))
}

// checkInboxes tells what waits for this agent, and tries whether the others'
// inboxes can be written: a folder of another user's is a common surprise.
func checkInboxes(c *config, cards []mailbox.Card) []finding {
	const name = "mailbox inboxes"
	var out []finding
	own := filepath.Join(c.Mailbox.Dir, string(c.Agent), "inbox")
	switch n, err := waiting(own); {
	case err != nil:
		return []finding{failure(name, "let this user read and write "+own, "%v", err)}
	case n >= mailbox.MaxInbox:
		out = append(out, warning(name, "start the bot, or let it read its inbox", "%d messages wait for %s; no more are taken", n, c.Agent))
	default:
		out = append(out, well(name, "%s for %s", counted(n, "message waits", "messages wait"), c.Agent))
	}
	if found, ok := checkMalformed(filepath.Join(c.Mailbox.Dir, string(c.Agent), "malformed")); !ok {
		out = append(out, found)
	}
	agents := []string{string(c.Agent)}
	for _, card := range cards[:min(len(cards), maxTried)] {
		if id := string(card.AgentID); id != string(c.Agent) {
			agents = append(agents, id)
		}
	}
	var closed []string
	for _, id := range agents {
		inbox := filepath.Join(c.Mailbox.Dir, id, "inbox")
		if at, err := existing(inbox); err != nil || tryFiles(at) != nil {
			closed = append(closed, id)
		}
	}
	if len(closed) > 0 {
		out = append(out, failure(name, "run all agents that share MAILBOX_DIR as one user, or let their group write these folders",
			"the inboxes of these agents cannot be written: %s", some(closed)))
	}
	return out
}

// checkMalformed tells of what other programs put down for this agent and was no
// message: nobody reads that again. ok means that there is none.
func checkMalformed(folder string) (found finding, ok bool) {
	const name = "mailbox malformed"
	list, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0:
		return finding{}, true
	case err != nil:
		return warning(name, "let this user read "+folder, "%v", err), false
	}
	return warning(name, "look at them, correct the program that wrote them, and delete them",
		"%s in %s", counted(len(list), "file that is no envelope lies", "files that are no envelopes lie"), folder), false
}

// waiting counts the messages in an inbox; one that does not exist holds none.
func waiting(inbox string) (n int, err error) {
	list, err := os.ReadDir(inbox)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, entry := range list {
		if strings.HasSuffix(entry.Name(), ".msg.json") {
			n++
		}
	}
	return n, err
}

// some names at most maxNamed of a list.
func some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

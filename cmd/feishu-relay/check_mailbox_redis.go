package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/redisbox"
)

// What the mailbox uses in Redis (package redisbox), for the check of rights.
const (
	mailboxKeys     = "nanobot:mailbox:"
	mailboxChannels = "agent.inbox."
)

// checkMailboxRedis reads the cards and an inbox, as the sidecar does, and asks
// for the right to everything else without doing it.
func checkMailboxRedis(ctx context.Context, c *config) []finding {
	const name = "mailbox"
	store, err := redisbox.Open(redisbox.Options{URL: string(c.RedisURL), Self: mailbox.AgentID(c.Agent)})
	if err != nil {
		return []finding{failure(name, "correct REDIS_URL", "%v", err)}
	}
	defer store.Close()
	cards, err := store.Cards(ctx)
	if err == nil {
		_, err = store.Where(ctx, mailbox.AgentID(c.Agent), "0-1") // where nothing is, which tells that the inbox can be read
	}
	if err != nil {
		return []finding{failure(name, "check REDIS_URL and what else uses that Redis, or set MAILBOX_BACKEND=file", "%v", err)}
	}
	if refused := missingRights(ctx, c); refused != "" {
		return []finding{failure(name, "give the user in REDIS_URL the keys "+mailboxKeys+"*, the channels "+mailboxChannels+
			"*, scripts, streams, hashes, lists, publish and subscribe", "%s", refused)}
	}
	return append([]finding{well(name, "in Redis; %s", present(c, cards))}, checkMailRedis(ctx, c)...)
}

// mailboxAgent is where the keys of an agent begin. In a key, the first } ends
// the part that a Cluster looks at.
func mailboxAgent(agent string) string {
	return mailboxKeys + "{" + strings.NewReplacer("}", "%7D", "%", "%25").Replace(agent) + "}:"
}

// checkMailRedis tells what waits for this agent, and of what was no message.
func checkMailRedis(ctx context.Context, c *config) (out []finding) {
	client, err := openRedis(c)
	if err != nil {
		return nil // told already
	}
	defer client.Close()
	inbox, malformed := mailboxAgent(string(c.Agent))+"inbox", mailboxAgent(string(c.Agent))+"malformed"
	switch n, err := client.XLen(ctx, inbox).Result(); {
	case err != nil: // told with the rights
	case n >= mailbox.MaxInbox:
		out = append(out, warning("mailbox inboxes", "start the bot, or let it read its inbox", "%d messages wait for %s; no more are taken", n, c.Agent))
	default:
		out = append(out, well("mailbox inboxes", "%s for %s", counted(int(n), "message waits", "messages wait"), c.Agent))
	}
	if n, err := client.LLen(ctx, malformed).Result(); err == nil && n > 0 {
		out = append(out, warning("mailbox malformed",
			fmt.Sprintf("look at them and correct the program that wrote them: redis-cli lrange '%[1]s' 0 9; then redis-cli del '%[1]s'", malformed),
			"%s in %s", counted(int(n), "entry that is no envelope lies", "entries that are no envelopes lie"), malformed))
	}
	return out
}

// missingRights tries what a mailbox does on keys of an agent that is none, on
// the cards and on a channel, and says what is refused. Nothing of it is done
// but the subscription, which leaves nothing.
func missingRights(ctx context.Context, c *config) string {
	client, err := openRedis(c)
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	agent, cards, channel := mailboxAgent("check-"+rand.Text()), mailboxKeys+"agents", mailboxChannels+"check"
	inbox, alive, malformed := agent+"inbox", agent+"alive", agent+"malformed"
	for _, on := range []struct {
		key      string
		commands [][]any
	}{
		{inbox, [][]any{
			{"EVAL", "return 1", 1, inbox}, {"EVALSHA", "", 1, inbox}, {"EXISTS", inbox}, {"XINFO", "STREAM", inbox}, {"XLEN", inbox},
			{"XADD", inbox, "*", "envelope", ""}, {"XRANGE", inbox, "-", "+"}, {"XREAD", "STREAMS", inbox, "0"}, {"XDEL", inbox, "0-1"},
			{"PEXPIRE", inbox, 1}, {"LPUSH", malformed, ""}, {"LTRIM", malformed, 0, 1}, {"SET", alive, "", "PX", 1}, {"DEL", alive},
			{"PUBLISH", channel, ""},
		}},
		{cards, [][]any{{"HSET", cards, "", ""}, {"HGET", cards, ""}, {"HGETALL", cards}, {"HLEN", cards}}},
	} {
		if refused := mayUse(ctx, client, on.key, on.commands...); refused != "" {
			return refused
		}
	}
	listen := client.PSubscribe(ctx, mailboxChannels+"*")
	defer listen.Close()
	if _, err := listen.Receive(ctx); err != nil {
		return "PSUBSCRIBE " + mailboxChannels + "*: " + redisCode(err)
	}
	return ""
}

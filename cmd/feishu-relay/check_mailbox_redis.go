package main

import (
	"context"
	"crypto/rand"

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
	return []finding{well(name, "in Redis; %s", present(c, cards))}
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
	agent, cards, channel := mailboxKeys+"{check-"+rand.Text()+"}:", mailboxKeys+"agents", mailboxChannels+"check"
	inbox, alive, malformed := agent+"inbox", agent+"alive", agent+"malformed"
	for _, on := range []struct {
		key      string // of the node
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
		node, err := nodeOf(ctx, client, on.key)
		if err != nil {
			return "find the node of " + on.key + ": " + redisCode(err)
		}
		if refused, err := mayDo(ctx, node, on.commands...); err != nil {
			return refused + ": " + redisCode(err)
		}
	}
	listen := client.PSubscribe(ctx, mailboxChannels+"*")
	defer listen.Close()
	if _, err := listen.Receive(ctx); err != nil {
		return "PSUBSCRIBE " + mailboxChannels + "*: " + redisCode(err)
	}
	return ""
}

package main

import (
	"cmp"
	"context"
	"crypto/rand"
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

	"github.com/redis/go-redis/v9"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/redisbox"
)

const (
	registryFile = "_registry.json" // of the file mailbox
	maxRegistry  = 8 << 20          // bytes; a sidecar reads no more of it
	maxTried     = 200              // agents whose inboxes are tried; the rest is left out

	mailboxKeys     = "nanobot:mailbox:" // begins what package redisbox uses
	mailboxChannels = "agent.inbox."
)

func checkMailboxOff(context.Context, *subject) []finding {
	return well("MAILBOX is off: no direct messages", "MAILBOX 已关：没有私信")
}

// mailUnheard reports whether nothing wakes the bot when mail comes, as far as the settings tell.
func mailUnheard(s *subject) bool {
	return s.Mailbox.On && s.Gateway.Addr != "" && s.InjectURL == "" && !s.Mailbox.Gateway
}

func checkMailboxUnheard(context.Context, *subject) []finding {
	return well("mail waits until the bot reads /v1/stream or its inbox; with MAILBOX_GATEWAY=on and "+
		"INJECT_SENDER_TYPE=user it comes as private chats",
		"邮件等机器人来读 /v1/stream 或收件箱；设 MAILBOX_GATEWAY=on 和 INJECT_SENDER_TYPE=user 后以私聊送达")
}

// readCards reads the agents' cards as a sidecar does, which writes its own with MAILBOX=off, too. Its findings are
// those of the registry on files; in Redis, only failures.
func readCards(ctx context.Context, c *config) ([]mailbox.Card, []finding) {
	if c.Backend == "file" {
		return readRegistry(c)
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	store, err := redisbox.Open(redisbox.Options{URL: string(c.RedisURL), Self: mailbox.AgentID(c.Agent)})
	if err != nil {
		return nil, failure(say("correct REDIS_URL", "改正 REDIS_URL"), "%v", "", err)
	}
	defer store.Close()
	cards, err := store.Cards(ctx)
	if err == nil {
		_, err = store.Where(ctx, mailbox.AgentID(c.Agent), "0-1") // nothing is there; the inbox can be read
	}
	if err != nil {
		return nil, failure(say("check REDIS_URL and what else uses that Redis",
			"检查 REDIS_URL，以及还有谁在用那个 Redis"),
			"%v", "", err)
	}
	return cards, nil
}

func readRegistry(c *config) ([]mailbox.Card, []finding) {
	path := filepath.Join(c.Mailbox.Dir, registryFile)
	data, err := readAtMost(path, maxRegistry)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(c.Mailbox.Dir); err != nil {
			return nil, nil // reported with the folder
		}
		return nil, unseen(say("start the sidecars", "启动边车"),
			"no agent has registered in %s yet", "还没有智能体在 %s 里登记", c.Mailbox.Dir)
	case err != nil:
		return nil, failure(say("run all agents that share MAILBOX_DIR as one user, or let their group read and write it",
			"让共用 MAILBOX_DIR 的所有智能体以同一个用户运行，或让它们的组能读写它"),
			"%v", "", err)
	case len(data) > maxRegistry:
		return nil, failure(say("delete the agents that are no more from %s", "从 %s 里删除已经不在的智能体", path),
			"%s is longer than %d bytes", "%s 超过 %d 字节", path, maxRegistry)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, warning(say("correct it, if somebody edits it by hand; else nothing needs to be done",
			"如果是手工编辑的，请改正；否则不用处理"),
			"%s is no JSON object: a running sidecar keeps it as %s.broken-… and begins a new one, in "+
				"which each agent enters itself again",
			"%s 不是 JSON 对象：运行中的边车会把它另存为 %s.broken-…，新建一个，各智能体会重新登记", path, registryFile)
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
		return cards, warning(say("correct or delete them in %s", "在 %s 里改正或删除它们", path),
			"%s; left out, since they cannot be read: %s",
			"%s；读不了而略过的：%s", amount(len(cards), "agent", "agents", "个智能体"), some(unread))
	}
	return cards, well("%s", "", present(c, cards))
}

// present counts the agents, and those that are there.
func present(c *config, cards []mailbox.Card) text {
	now, there := time.Now(), 0
	for _, card := range cards {
		if card.At(now, c.Mailbox.HeartbeatTimeout) != mailbox.Offline {
			there++
		}
	}
	return say("%s registered, %s there", "登记了 %s，%s在线", amount(len(cards), "agent is", "agents are", "个智能体"),
		amount(there, "of them is", "of them are", "个"))
}

func checkRegistry(_ context.Context, s *subject) []finding {
	_, found := s.cards()
	return found
}

// checkSignatures reports what becomes of mail from agents whose programs do not sign it.
func checkSignatures(_ context.Context, s *subject) []finding {
	cards, registry := s.cards()
	if mailFiles(s) && registry == nil {
		return nil // no agent has run yet
	}
	var foreign []string
	for _, card := range cards {
		if card.Protocol == "" && string(card.AgentID) != string(s.Agent) {
			foreign = append(foreign, string(card.AgentID))
		}
	}
	switch {
	case s.Mailbox.Unsigned:
		return warning(say("set MAILBOX_UNSIGNED=refuse, unless you need mail from programs of other makes",
			"设 MAILBOX_UNSIGNED=refuse，除非需要其他程序的邮件"),
			"MAILBOX_UNSIGNED=allow: mail without a signature is taken, so whoever can write to the "+
				"mailbox can send as an agent that does not sign; registered agents of other makes: %s",
			"MAILBOX_UNSIGNED=allow：接收没有签名的邮件，能写邮箱的人都可以冒充不签名的智能体；已登记的其他程序的智能体：%s",
			cmp.Or(some(foreign), say("none", "没有")))
	case len(foreign) > 0:
		return warning(say("set MAILBOX_UNSIGNED=allow to take their mail; anybody who can write to the mailbox can "+
			"then send as one of them",
			"设 MAILBOX_UNSIGNED=allow 可接收它们的邮件；但能写邮箱的人都可以冒充它们"),
			"MAILBOX_UNSIGNED=refuse: mail without a signature is refused; these agents are of other "+
				"makes and may not sign: %s",
			"MAILBOX_UNSIGNED=refuse：拒收没有签名的邮件；这些智能体来自其他程序，可能不签名：%s", some(foreign))
	}
	return well("mail is signed, and mail without a signature is refused", "邮件有签名，没有签名的会拒收")
}

// inboxFinding reports what waits for this agent.
func inboxFinding(s *subject, n int) []finding {
	if n >= mailbox.MaxInbox {
		return warning(say("start the bot, or let it read its inbox", "启动机器人，或让它读收件箱"),
			"%d messages wait for %s; no more are taken", "%d 条消息在等 %s，不再接收新的", n, s.Agent)
	}
	return well("%s for %s", "%s在等 %s", amount(n, "message waits", "messages wait", "条消息"), s.Agent)
}

// checkInboxes also tries whether the others' inboxes can be written: a folder of
// another user's is a common surprise.
func checkInboxes(_ context.Context, s *subject) []finding {
	dir := s.Mailbox.Dir
	if _, err := os.Stat(dir); err != nil {
		return nil // no agent has run yet
	}
	own := filepath.Join(dir, string(s.Agent), "inbox")
	list, err := os.ReadDir(own)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure(say("let this user read and write %s", "让这个用户能读写 %s", own), "%v", "", err)
	}
	list = slices.DeleteFunc(list, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".msg.json") })
	out := inboxFinding(s, len(list))
	cards, _ := s.cards()
	var closed []string
	agents := []string{string(s.Agent)}
	for _, card := range cards[:min(len(cards), maxTried)] {
		if id := string(card.AgentID); id != agents[0] {
			agents = append(agents, id)
		}
	}
	for _, id := range agents {
		if at, err := existing(filepath.Join(dir, id, "inbox")); err != nil || tryFiles(at) != nil {
			closed = append(closed, id)
		}
	}
	if len(closed) > 0 {
		out = append(out, failure(say("run all agents that share MAILBOX_DIR as one user, "+
			"or let their group write these folders",
			"让共用 MAILBOX_DIR 的所有智能体以同一个用户运行，或让它们的组能写这些目录"),
			"the inboxes of these agents cannot be written: %s", "这些智能体的收件箱写不了：%s", some(closed))...)
	}
	return out
}

// checkMalformed reports what was put down for this agent and was not an envelope, or
// not signed: nobody reads that again.
func checkMalformed(_ context.Context, s *subject) []finding {
	folder := filepath.Join(s.Mailbox.Dir, string(s.Agent), "malformed")
	list, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0:
		return nil
	case err != nil:
		return warning(say("let this user read %s", "让这个用户能读 %s", folder), "%v", "", err)
	}
	var read [][]byte
	for _, entry := range list[max(0, len(list)-maxVerified):] { // their names begin with the time
		raw, _ := readAtMost(filepath.Join(folder, entry.Name()), mailbox.MaxEnvelope)
		read = append(read, raw)
	}
	broken := say("look at them, correct the program that wrote them, and delete them",
		"查看它们，改正写入它们的程序，再删除它们")
	return setAsideFindings(s, folder, len(list), read, broken,
		fmt.Sprintf("mv '%s'/FILE '%s'", folder,
			filepath.Join(s.Mailbox.Dir, string(s.Agent), "inbox")))
}

// checkMailboxRedis reads the cards and an inbox, as the sidecar does, and asks for the
// right to everything else without doing it.
func checkMailboxRedis(ctx context.Context, s *subject) []finding {
	cards, problem := s.cards()
	if problem != nil {
		return problem
	}
	if refused := missingRights(ctx, s.client); refused != (text{}) {
		return failure(say("give the user in REDIS_URL the keys %s*, the channels %s*, scripts, streams, hashes, lists, "+
			"sorted sets, publish and subscribe",
			"给 REDIS_URL 里的用户授权：键 %s*，频道 %s*，脚本、流、哈希、列表、有序集合、发布和订阅", mailboxKeys, mailboxChannels),
			"%s", "", refused)
	}
	if refused := missingPruneRights(ctx, s.client); refused != (text{}) {
		return warning(say("give the user in REDIS_URL the line of docs/redis.md",
			"按 docs/redis.md 的那一行给 REDIS_URL 里的用户授权"),
			"unused inboxes stay: %s", "没人用的收件箱会留着：%s", refused)
	}
	return well("in Redis; %s", "在 Redis 里；%s", present(s.config, cards))
}

// mailboxAgent begins the keys of an agent. In a key, the first } ends the part that a
// Cluster looks at.
func mailboxAgent(agent string) string {
	return mailboxKeys + "{" + strings.NewReplacer("}", "%7D", "%", "%25").Replace(agent) + "}:"
}

func checkInboxRedis(ctx context.Context, s *subject) []finding {
	n, err := s.client.XLen(ctx, mailboxAgent(string(s.Agent))+"inbox").Result()
	if err != nil {
		return nil // reported with the rights
	}
	return inboxFinding(s, int(n))
}

func checkMalformedRedis(ctx context.Context, s *subject) []finding {
	key := mailboxAgent(string(s.Agent)) + "malformed"
	n, err := s.client.LLen(ctx, key).Result()
	if err == nil && n == 0 {
		return nil
	}
	var newest []string
	if err == nil {
		newest, err = s.client.LRange(ctx, key, 0, maxVerified-1).Result()
	}
	if err != nil {
		return unseen(say("give the user in REDIS_URL the line of docs/redis.md",
			"按 docs/redis.md 的那一行给 REDIS_URL 里的用户授权"),
			"%s cannot be read: %s", "%s 读不了：%s", key, redisCode(err))
	}
	var read [][]byte
	for _, raw := range newest {
		read = append(read, []byte(raw))
	}
	return setAsideFindings(s, key, int(n), read, say(
		"look at them and correct the program that wrote them: redis-cli lrange '%[1]s' 0 9; then redis-cli del '%[1]s'",
		"查看它们，改正写入它们的程序：redis-cli lrange '%[1]s' 0 9；然后 redis-cli del '%[1]s'", key),
		fmt.Sprintf("redis-cli --raw lindex '%s' INDEX | redis-cli -x xadd '%sinbox' '*' envelope", key,
			mailboxAgent(string(s.Agent))))
}

// missingRights tries what a mailbox needs on keys of an agent that does not exist, on
// the cards and on a channel, and returns what is refused. Nothing of it is done but
// the subscription, which leaves nothing.
func missingRights(ctx context.Context, client redis.UniversalClient) text {
	agent := mailboxAgent("check-" + rand.Text())
	if refused := mayUse(ctx, client, agent+"inbox", "EVAL return(1) 1 KEY", "EVALSHA - 1 KEY", "EXISTS KEY",
		"XINFO STREAM KEY", "XLEN KEY", "XADD KEY * envelope -", "XRANGE KEY - +", "XREAD STREAMS KEY 0",
		"XDEL KEY 0-1", "PTTL KEY", "LPUSH "+agent+"malformed -", "LTRIM "+agent+"malformed 0 1",
		"PEXPIRE "+agent+"malformed 1",
		"ZADD "+agent+"aside 1 -", "ZSCORE "+agent+"aside -", "ZREMRANGEBYRANK "+agent+"aside 0 1",
		"SET "+agent+"alive - PX 1", "DEL "+agent+"alive", "PUBLISH "+mailboxChannels+"check -"); refused != (text{}) {
		return refused
	}
	cards := []string{"HSET KEY - -", "HGET KEY -", "HGETALL KEY", "HLEN KEY"}
	if refused := mayUse(ctx, client, mailboxKeys+"agents", cards...); refused != (text{}) {
		return refused
	}
	listen := client.PSubscribe(ctx, mailboxChannels+"*")
	defer listen.Close()
	if _, err := listen.Receive(ctx); err != nil {
		return say("PSUBSCRIBE %s*: %s", "", mailboxChannels, redisCode(err))
	}
	return text{}
}

// missingPruneRights does the same for what deletes unused inboxes. A mailbox works without it.
func missingPruneRights(ctx context.Context, client redis.UniversalClient) text {
	return cmp.Or(
		mayUse(ctx, client, mailboxAgent("check-"+rand.Text())+"inbox", "PERSIST KEY"),
		mayUse(ctx, client, mailboxKeys+"inboxes", "ZADD KEY 1 -", "ZSCORE KEY -", "ZRANGEBYSCORE KEY 0 1", "ZREM KEY -"))
}

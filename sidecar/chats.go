package sidecar

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

const (
	// maxChats is how many chats are remembered as the bot's own; beyond it the one
	// seen first is forgotten until it is seen again.
	maxChats = 10_000
	// maxTalks is the most conversations that are remembered; the one in which
	// nobody spoke for longest goes.
	maxTalks = 200
)

// chats is what is known of chats: the groups file, the transcripts, which chats the
// bot is in, where and when people spoke, and which peers speak there.
type chats struct {
	*base
	groups     *groups.Watcher
	transcript *transcript.Store
	peers      *peers
	userTimes  *lru.Cache[string, int64] // of a chat's topic: when a person spoke last, as far as was seen
	hearing    *lru.Cache[string, int64] // the same, of messages that passed to the bot and may not be recorded yet

	root  *os.Root // of the two files: memberships change seldom, talks with each message of a person
	mu    sync.Mutex
	seen  map[string]struct{}     // chats in which the bot was seen; guarded by mu, as the rest is
	gone  map[string]relay.Millis // when the bot left, since the start
	order []string                // of seen, oldest first
	talks map[string]talk
}

// membersOnDisk is the content of <agent>.json; a list alone is In.
type membersOnDisk struct {
	In   []string                `json:"in"`
	Left map[string]relay.Millis `json:"left,omitempty"` // when the bot left
}

// talk is a conversation in which a person spoke to the bot, private ones too. It stays on
// this machine: the bot names one when it gives a task away, and the result comes back there.
type talk struct {
	Channel   string          `json:"channel"`
	ChatID    relay.ChatID    `json:"chat_id"`
	ChatType  string          `json:"chat_type"`            // "group" or "p2p"
	MessageID relay.MessageID `json:"message_id,omitempty"` // of the person's newest message
	At        relay.Millis    `json:"at"`
}

func openChats(b *base) (*chats, error) {
	c := &chats{base: b, seen: map[string]struct{}{}, gone: map[string]relay.Millis{}, talks: map[string]talk{}}
	c.userTimes, _ = lru.New[string, int64](maxChats) // fails only for a size below 1
	c.hearing, _ = lru.New[string, int64](maxChats)
	c.peers = newPeers(b)
	var err error
	if c.transcript, err = transcript.Open(b.cfg.TranscriptDir, &transcript.Options{Logger: b.log, Index: newConversations}); err != nil {
		return nil, err
	}
	b.onClose(c.transcript.Close)
	c.groups = groups.New(b.cfg.GroupsFile, b.log)
	if err := c.groups.Load(); err != nil {
		return nil, &setting{fmt.Errorf("GROUPS_FILE: %w", err)}
	}
	if c.root, err = b.folder("chats"); err != nil {
		return nil, err
	}
	if err := c.loadMembers(); err != nil {
		return nil, err
	}
	if err := c.loadTalks(); err != nil {
		return nil, err
	}
	if !c.enforced() && b.cfg.MembershipCheck != "off" {
		b.log.Warn("every chat on the relay reaches this bot: no groups are known. " +
			"Name them with their members under \"groups\" in GROUPS_FILE, or set MEMBERSHIP_CHECK=off to say that this is meant")
	}
	return c, nil
}

// load reads a state file into known; one that is broken counts as missing.
func (c *chats) load(part, name string, known any) error {
	data, err := safefile.ReadFile(c.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read known chats: %w", err)
	}
	if err := json.Unmarshal(data, known); err != nil {
		c.problems.set(part, fmt.Errorf("%s is broken, and what was in it is learned again: %w", name, err))
	}
	return nil
}

// save writes a state file. What could not be written is known until the next start.
func (c *chats) save(part, name string, known any) {
	data, err := json.Marshal(known)
	if err == nil {
		err = safefile.ReplaceFast(c.root, name, append(data, '\n'))
	}
	if err != nil {
		c.problems.set(part, fmt.Errorf("remember known chats: %w", err))
	}
}

// UnmarshalJSON takes a list alone as In.
func (m *membersOnDisk) UnmarshalJSON(data []byte) error {
	type plain membersOnDisk
	if json.Unmarshal(data, &m.In) == nil {
		return nil
	}
	return json.Unmarshal(data, (*plain)(m))
}

func (c *chats) loadMembers() error {
	var known membersOnDisk
	if err := c.load("members", c.name()+".json", &known); err != nil {
		return err
	}
	for _, key := range known.In[max(0, len(known.In)-maxChats):] {
		c.remember(key)
	}
	if known.Left != nil && len(known.Left) <= maxChats {
		c.gone = known.Left
	}
	return nil
}

func (c *chats) saveMembers() { c.save("members", c.name()+".json", membersOnDisk{c.order, c.gone}) }

func (c *chats) loadTalks() error {
	var list []talk
	err := c.load("talks", c.name()+".talks.json", &list)
	for _, t := range list {
		c.talks[chatKey(t.Channel, t.ChatID)] = t
	}
	return err
}

// group is what the groups file says of a chat.
func (c *chats) group(chat relay.ChatID) groups.Group { return c.groups.Current().Groups[string(chat)] }

// forgetMembers forgets all chats that the bot was seen in: it is another app's now.
func (c *chats) forgetMembers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
	clear(c.gone)
	c.order = nil
	c.saveMembers()
}

// enforced reports whether there is a source to go by, or the operator says so.
func (c *chats) enforced() bool {
	switch c.cfg.MembershipCheck {
	case "on":
		return true
	case "off":
		return false
	}
	return c.cfg.KnowsFeishu() || c.groups.Current().HasGroups
}

// in reports whether messages of the chat may reach the bot and its transcript.
func (c *chats) in(channel string, chat relay.ChatID) bool {
	if !c.enforced() {
		return true
	}
	file := c.groups.Current()
	// A group that is listed for its limits alone says nothing of who is in it,
	// where Feishu does.
	member, known := file.Member(string(chat), string(c.cfg.Agent))
	if known && member && (!c.cfg.KnowsFeishu() || file.Groups[string(chat)].Members != nil) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.seen[chatKey(channel, chat)]
	return ok
}

// hears reports whether a conversation is a group that this bot is known to be in.
func (c *chats) hears(channel string, chat relay.ChatID) bool {
	return c.enforced() && c.in(orDefault(channel), chat)
}

// settled reports whether in's answer stands without asking Feishu.
func (c *chats) settled(channel string, chat relay.ChatID) bool {
	return !c.cfg.KnowsFeishu() || channel != relay.DefaultChannel || c.in(channel, chat)
}

// left notes that the bot was no longer in the chat at a time.
func (c *chats) left(channel string, chat relay.ChatID, at relay.Millis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := chatKey(channel, chat)
	if len(c.gone) >= maxChats {
		clear(c.gone)
	}
	c.gone[key] = max(c.gone[key], at)
	delete(c.seen, key)
	c.order = slices.DeleteFunc(c.order, func(k string) bool { return k == key })
	c.saveMembers()
}

// saw notes that the bot was heard, or heard something, in the chat at a time.
// What was before it left says nothing: events come late, and again.
func (c *chats) saw(channel string, chat relay.ChatID, at relay.Millis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := chatKey(channel, chat)
	if gone, ok := c.gone[key]; ok && at <= gone {
		return
	}
	if !c.remember(key) {
		return
	}
	delete(c.gone, key)
	c.saveMembers()
}

// remember is called with mu held.
func (c *chats) remember(key string) (added bool) {
	if _, ok := c.seen[key]; ok {
		return false
	}
	if len(c.order) >= maxChats {
		delete(c.seen, c.order[0])
		c.order = slices.Delete(c.order, 0, 1)
	}
	c.seen[key] = struct{}{}
	c.order = append(c.order, key)
	return true
}

// noteTalk remembers that a person spoke. Events come again and in any order: the
// newest message counts. None is newer than now, whatever the bot says of its time.
func (c *chats) noteTalk(t talk) {
	t.At = min(t.At, relay.MillisOf(time.Now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	key := chatKey(t.Channel, t.ChatID)
	if known, ok := c.talks[key]; t.ChatID == "" || ok && known.At >= t.At {
		return
	}
	c.talks[key] = t
	list := c.sortedTalks()
	for _, old := range list[min(len(list), maxTalks):] {
		delete(c.talks, chatKey(old.Channel, old.ChatID))
	}
	c.save("talks", c.name()+".talks.json", list[:min(len(list), maxTalks)])
}

// sortedTalks is called with mu held. The newest comes first.
func (c *chats) sortedTalks() []talk {
	list := make([]talk, 0, len(c.talks))
	for _, t := range c.talks {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b talk) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.ChatID, b.ChatID)) })
	return list
}

func (c *chats) listTalks() []talk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sortedTalks()
}

func (c *chats) talk(channel string, chat relay.ChatID) (talk, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.talks[chatKey(channel, chat)]
	return t, ok
}

func chatType(group bool) string {
	if group {
		return feishu.ChatGroup
	}
	return feishu.ChatP2P
}

// lastUser is the ts of the newest user's message known in a chat, or in a
// topic of it: one that stands here, or one that another bot knew of. Far back
// is looked only once: where bots talk among themselves there is none near.
func (c *chats) lastUser(channel string, chat relay.ChatID, thread string, before relay.Millis) (relay.Millis, error) {
	key := topicKey(channel, chat, thread)
	known, looked := c.userTimes.Get(key)
	newest := known
	if known > int64(before) {
		newest, looked = 0, false
	}
	if passing, ok := c.hearing.Get(key); ok && passing <= int64(before) {
		newest = max(newest, passing)
	}
	for n := nearTail; n <= farTail; n *= 8 {
		entries, err := c.transcript.Outline(channel, string(chat), n, int64(before))
		for _, e := range entries {
			if e.ThreadID == thread && userTime(e) <= int64(before) {
				newest = max(newest, userTime(e))
			}
		}
		if err != nil {
			return relay.Millis(newest), err
		}
		if looked || newest > 0 || len(entries) < n {
			break
		}
	}
	c.userTimes.Add(key, max(known, newest))
	return relay.Millis(newest), nil
}

// spoke notes when a person spoke, or when a bot knew that one had.
func (c *chats) spoke(m *relay.Message, sent time.Time) {
	at := userTime(botEntry(m, sent))
	if m.Role == relay.RoleUser {
		at = sent.UnixMilli()
	}
	key := topicKey(m.Channel, m.ChatID, m.ThreadID)
	if known, ok := c.userTimes.Get(key); ok && known < at {
		c.userTimes.Add(key, at)
	}
}

func userTime(e transcript.Entry) int64 {
	switch {
	case e.Role == relay.RoleUser:
		return e.TS
	case e.UserTS <= e.TS:
		return e.UserTS
	}
	return 0
}

package sidecar

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/jsonl"
	"feishu-relay/relay"
	"feishu-relay/steer"
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
	shown      *transcript.Store // marks that people see, beside the transcripts
	recalls    *recalls
	edits      *lru.Cache[string, *edit] // the newest of each message
	peers      *peers
	userTimes  *lru.Cache[string, int64]      // of a chat's topic: when a person spoke last, as far as was seen
	hearing    *lru.Cache[string, int64]      // the same, of messages that passed to the bot and may not be recorded yet
	continues  *lru.Cache[string, steer.Mark] // the newest continue, by conversationOf

	mu      sync.Mutex
	seen    map[string]struct{}     // chats in which the bot was seen; guarded by mu, as the following are
	gone    map[string]relay.Millis // when the bot left
	order   []string                // of seen, oldest first
	talks   map[string]talk
	unsaved []byte    // lines that the journal lacks
	failed  time.Time // when the journal could not be written, and lacks more than that; zero: it does not

	// writing is held while the journal is written; nobody who asks for a chat waits for that.
	writing sync.Mutex
	journal *jsonl.Journal // guarded by writing
}

// chatChange is a line of the journal. It has one of the three.
type chatChange struct {
	In   string       `json:"in,omitempty"`   // the chat in which the bot was seen
	Left string       `json:"left,omitempty"` // the chat which it left, at At
	At   relay.Millis `json:"at,omitempty"`
	Talk *talk        `json:"talk,omitempty"`
}

const (
	// maxChange is the most bytes of a line of the journal; a longer one is not read.
	maxChange = 16 << 10
	// slackChanges is how many outdated lines the journal may have at least.
	slackChanges = 1000
	// saveAgain is the pause before all is written again that could not be.
	saveAgain = time.Second
)

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
	c.edits, _ = lru.New[string, *edit](maxEdits)
	c.hearing, _ = lru.New[string, int64](maxChats)
	c.continues, _ = lru.New[string, steer.Mark](maxChats)
	c.peers = newPeers(b)
	var err error
	if c.recalls, err = newRecalls(b); err != nil {
		return nil, err
	}
	for dir, store := range map[string]**transcript.Store{"": &c.transcript, MarksFolder: &c.shown} {
		*store, err = transcript.Open(filepath.Join(b.cfg.TranscriptDir, dir), &transcript.Options{Logger: b.log})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.cfg.setBy("TRANSCRIPT_DIR", b.cfg.TranscriptDir), err)
		}
		b.onClose((*store).Close)
	}
	c.groups = groups.New(b.cfg.GroupsFile, b.log)
	if err := c.groups.Load(); err != nil {
		return nil, &setting{fmt.Errorf("GROUPS_FILE: %w", err)}
	}
	root, err := b.folder("chats")
	if err != nil {
		return nil, err
	}
	c.journal, err = jsonl.OpenJournal(root, c.name()+".jsonl", maxChange, func(line []byte) {
		var change chatChange
		if json.Unmarshal(line, &change) == nil { // else it is torn, or was edited
			c.apply(change)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read known chats: %w", err)
	}
	b.onClose(func() error {
		c.save()
		c.writing.Lock()
		defer c.writing.Unlock()
		return c.journal.Close()
	})
	if !c.enforced() && b.cfg.MembershipCheck != "off" {
		b.log.Warn("every chat on the relay reaches this bot: no groups are known. " +
			"Name them with their members under \"groups\" in GROUPS_FILE, or set MEMBERSHIP_CHECK=off to say that this is meant")
	}
	return c, nil
}

// apply takes in a change and reports whether it is one. It is called with mu held, or at
// the start.
func (c *chats) apply(change chatChange) bool {
	switch {
	case change.In != "":
		delete(c.gone, change.In)
		return c.remember(change.In)
	case change.Left != "":
		if len(c.gone) >= maxChats {
			clear(c.gone)
		}
		c.gone[change.Left] = max(c.gone[change.Left], change.At)
		delete(c.seen, change.Left)
		c.order = slices.DeleteFunc(c.order, func(k string) bool { return k == change.Left })
		return true
	case change.Talk != nil && change.Talk.ChatID != "":
		t := *change.Talk
		key := chatKey(t.Channel, t.ChatID)
		if known, ok := c.talks[key]; ok && known.At >= t.At {
			return false
		}
		c.talks[key] = t
		if len(c.talks) > maxTalks {
			oldest := c.sortedTalks()[maxTalks]
			delete(c.talks, chatKey(oldest.Channel, oldest.ChatID))
		}
		return true
	}
	return false
}

// note takes in a change. It is called with mu held, and save without it afterwards.
func (c *chats) note(change chatChange) {
	if !c.apply(change) {
		return
	}
	if line, err := relay.Marshal(change); err == nil { // a change is always JSON
		c.unsaved = append(append(c.unsaved, line...), '\n')
	}
}

// save writes what the journal lacks: the changes, or all that is known where that is less or
// an earlier write failed.
func (c *chats) save() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	lines := c.unsaved
	known := len(c.seen) + len(c.gone) + len(c.talks)
	whole := !c.failed.IsZero() || c.journal.Lines() > 2*known+slackChanges
	var all []byte
	if whole {
		all = c.all()
	}
	wait := !c.failed.IsZero() && time.Since(c.failed) < saveAgain
	c.unsaved = nil
	c.mu.Unlock()
	switch {
	case wait, len(lines) == 0 && !whole:
	case whole:
		c.saved(c.journal.Replace(all))
	default:
		c.saved(c.journal.Append(lines))
	}
}

// all is the journal of what is known. It is never empty, so that it is known to have been
// written. It is called with mu held.
func (c *chats) all() []byte {
	lines := bytes.NewBufferString("{}\n")
	to := json.NewEncoder(lines)
	to.SetEscapeHTML(false)
	for key, at := range c.gone {
		_ = to.Encode(chatChange{Left: key, At: at}) // a change is always JSON, and memory takes it
	}
	for _, key := range c.order {
		_ = to.Encode(chatChange{In: key})
	}
	for _, t := range c.talks {
		_ = to.Encode(chatChange{Talk: &t})
	}
	return lines.Bytes()
}

// saved notes how a write of the journal went.
func (c *chats) saved(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = time.Time{}
	if err != nil {
		c.failed = time.Now()
		c.problems.set("chats", fmt.Errorf("remember known chats: %w", err))
	}
}

// group is what the groups file says of a chat.
func (c *chats) group(chat relay.ChatID) groups.Group { return c.groups.Current().Groups[string(chat)] }

// forgetMembers forgets all chats that the bot was seen in: it is another app's now.
func (c *chats) forgetMembers() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	clear(c.seen)
	clear(c.gone)
	c.order, c.unsaved = nil, nil
	all := c.all()
	c.mu.Unlock()
	c.saved(c.journal.Replace(all))
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

// settled reports whether in's answer is final without asking Feishu.
func (c *chats) settled(channel string, chat relay.ChatID) bool {
	return !c.cfg.KnowsFeishu() || channel != relay.DefaultChannel || c.in(channel, chat)
}

// left notes that the bot was no longer in the chat at a time.
func (c *chats) left(channel string, chat relay.ChatID, at relay.Millis) {
	defer c.save()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(chatChange{Left: chatKey(channel, chat), At: at})
}

// saw notes that the bot was heard, or heard something, in the chat at a time.
// What was before it left says nothing: events come late, and again.
func (c *chats) saw(channel string, chat relay.ChatID, at relay.Millis) {
	key := chatKey(channel, chat)
	c.mu.Lock()
	gone, left := c.gone[key]
	_, known := c.seen[key]
	added := !known && (!left || at > gone)
	if added {
		c.note(chatChange{In: key})
	}
	c.mu.Unlock()
	if added {
		c.save()
	}
}

// list lists the groups in which the bot was seen, or is by the groups file.
func (c *chats) list() (out []recordLine) {
	for chat := range c.groups.Current().Groups {
		if c.in(relay.DefaultChannel, relay.ChatID(chat)) {
			out = append(out, recordLine{Channel: relay.DefaultChannel, ChatID: relay.ChatID(chat)})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.order {
		if channel, chat, ok := strings.Cut(key, "/"); ok {
			out = append(out, recordLine{Channel: channel, ChatID: relay.ChatID(chat)})
		}
	}
	return out
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
	defer c.save()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(chatChange{Talk: &t})
}

// sortedTalks is called with mu held. The newest comes first.
func (c *chats) sortedTalks() []talk {
	return slices.SortedFunc(maps.Values(c.talks), func(a, b talk) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.ChatID, b.ChatID))
	})
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
// is looked only once: between bots alone there is none nearby.
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
	at := userTime(entryOf(m, sent))
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

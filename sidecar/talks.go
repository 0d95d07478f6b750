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

	"feishu-relay/feishu"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// maxTalks is the most conversations that are remembered; the one in which
// nobody spoke for longest goes.
const maxTalks = 200

// talk is a conversation in which a person spoke to the bot.
type talk struct {
	Channel   string          `json:"channel"`
	ChatID    relay.ChatID    `json:"chat_id"`
	ChatType  string          `json:"chat_type"`            // "group" or "p2p"
	MessageID relay.MessageID `json:"message_id,omitempty"` // of the person's newest message
	At        relay.Millis    `json:"at"`
}

func chatType(group bool) string {
	if group {
		return feishu.ChatGroup
	}
	return feishu.ChatP2P
}

// talks are the bot's conversations, private ones too. They stay on this
// machine: the bot names one when it gives a task away, and the result comes
// back there.
type talks struct {
	root *os.Root
	name string
	fail func(error)

	mu    sync.Mutex
	chats map[string]talk // guarded by mu
}

func openTalks(root *os.Root, name string, fail func(error)) (*talks, error) {
	t := &talks{root: root, name: name, fail: fail, chats: map[string]talk{}}
	data, err := safefile.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read conversations: %w", err)
	}
	var list []talk
	if err := json.Unmarshal(data, &list); err != nil {
		fail(fmt.Errorf("%s is not readable, and started again empty: %w", name, err))
		return t, nil
	}
	for _, c := range list {
		t.chats[chatKey(c.Channel, c.ChatID)] = c
	}
	return t, nil
}

// note remembers that a person spoke. Events come again and in any order: the
// newest message counts. None is newer than now, whatever the bot says of its time.
func (t *talks) note(c talk) {
	c.At = min(c.At, relay.MillisOf(time.Now()))
	t.mu.Lock()
	defer t.mu.Unlock()
	key := chatKey(c.Channel, c.ChatID)
	if known, ok := t.chats[key]; c.ChatID == "" || ok && known.At >= c.At {
		return
	}
	t.chats[key] = c
	list := t.sorted()
	for _, old := range list[min(len(list), maxTalks):] {
		delete(t.chats, chatKey(old.Channel, old.ChatID))
	}
	data, err := json.Marshal(list[:min(len(list), maxTalks)])
	if err == nil {
		err = safefile.ReplaceFast(t.root, t.name, data)
	}
	if err != nil {
		t.fail(err) // known until the next start
	}
}

// sorted is called with mu held. The newest comes first.
func (t *talks) sorted() []talk {
	list := make([]talk, 0, len(t.chats))
	for _, c := range t.chats {
		list = append(list, c)
	}
	slices.SortFunc(list, func(c, d talk) int { return cmp.Or(cmp.Compare(d.At, c.At), cmp.Compare(c.ChatID, d.ChatID)) })
	return list
}

func (t *talks) list() []talk {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sorted()
}

func (t *talks) get(channel string, chat relay.ChatID) (talk, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.chats[chatKey(channel, chat)]
	return c, ok
}

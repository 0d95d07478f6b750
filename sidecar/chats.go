package sidecar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/groups"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// maxTalks is the most conversations that are remembered; the one in which nobody spoke for longest goes.
const maxTalks = 200

// chats is what the sidecar knows of chats beside the core: the groups file, the transcripts, which peers speak, and
// where people last spoke.
type chats struct {
	*base
	groups     *groups.Watcher
	transcript *transcript.Store
	peers      *peers
	note       func(key string, value json.RawMessage) // stores in the book; set once the core is open

	mu    sync.Mutex
	talks map[string]talk // by the key of its note; guarded by mu
}

// talk is a conversation in which a person spoke to the bot, private ones too. It stays on this machine: the bot names
// one when it gives a task away, and the result comes back there.
type talk struct {
	Channel   string          `json:"channel"`
	ChatID    relay.ChatID    `json:"chat_id"`
	ChatType  string          `json:"chat_type"`            // "group" or "p2p"
	MessageID relay.MessageID `json:"message_id,omitempty"` // of the person's newest message
	At        relay.Millis    `json:"at"`
}

func (s *Sidecar) openChats() (err error) {
	b := s.base
	c := &chats{base: b, talks: map[string]talk{}, peers: newPeers(b)}
	if c.transcript, err = transcript.Open(b.cfg.TranscriptDir, &transcript.Options{Logger: b.log}); err != nil {
		return fmt.Errorf("%s: %w", b.cfg.setBy("TRANSCRIPT_DIR", b.cfg.TranscriptDir), err)
	}
	b.onClose(c.transcript.Close)
	c.groups = groups.New(b.cfg.GroupsFile, b.log)
	if err := c.groups.Load(); err != nil {
		return &setting{fmt.Errorf("GROUPS_FILE: %w", err)}
	}
	s.chats = c
	return nil
}

// group is what the groups file says of a chat.
func (c *chats) group(chat relay.ChatID) groups.Group { return c.groups.Current().Groups[string(chat)] }

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

const talkNote = "talk/"

// noted takes in a note of the book.
func (c *chats) noted(key string, value json.RawMessage) {
	var t talk
	if strings.HasPrefix(key, talkNote) && json.Unmarshal(value, &t) == nil {
		c.talks[key] = t
	}
}

// noteTalk remembers that a person spoke. Events come again and in any order: the newest message counts. None is newer
// than now, whatever the bot says of its time.
func (c *chats) noteTalk(t talk) {
	t.At = min(t.At, relay.MillisOf(time.Now()))
	key := talkNote + t.Channel + "/" + string(t.ChatID)
	value, err := relay.Marshal(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.talks[key]; err != nil || t.ChatID == "" || ok && known.At >= t.At {
		return
	}
	c.talks[key] = t
	c.note(key, value)
	if len(c.talks) > maxTalks {
		oldest := c.sortedTalks()[maxTalks]
		gone := talkNote + oldest.Channel + "/" + string(oldest.ChatID)
		delete(c.talks, gone)
		c.note(gone, nil)
	}
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
	t, ok := c.talks[talkNote+channel+"/"+string(chat)]
	return t, ok
}

func chatType(group bool) string {
	if group {
		return feishu.ChatGroup
	}
	return feishu.ChatP2P
}

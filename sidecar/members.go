package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"feishu-relay/internal/groups"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// maxChats is how many chats are remembered as the bot's own; beyond it the one
// seen first is forgotten until it is seen again.
const maxChats = 10_000

// members knows which chats the bot is in: those that the groups file says, and
// those in which the bot was seen hearing or speaking, also before a restart.
type members struct {
	agent  string
	check  string // MEMBERSHIP_CHECK
	feishu bool   // Feishu can be asked, or tells by its events
	file   func() *groups.File
	root   *os.Root
	name   string
	fail   func(error)

	mu    sync.Mutex
	seen  map[string]struct{}     // guarded by mu
	gone  map[string]relay.Millis // when the bot left, since the start; guarded by mu
	order []string                // of seen, oldest first
}

func openMembers(root *os.Root, name string, cfg *Config, file func() *groups.File, fail func(error)) (*members, error) {
	m := &members{agent: string(cfg.Agent), check: cfg.MembershipCheck, feishu: cfg.KnowsFeishu(), file: file, root: root, name: name, fail: fail,
		seen: map[string]struct{}{}, gone: map[string]relay.Millis{}}
	data, err := safefile.ReadFile(root, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read known chats: %w", err)
	}
	var known membersOnDisk
	if err == nil && json.Unmarshal(data, &known) != nil && json.Unmarshal(data, &known.In) != nil {
		fail(fmt.Errorf("%s is broken; the chats in it are learned again", name))
	}
	for _, c := range known.In[max(0, len(known.In)-maxChats):] {
		m.remember(c)
	}
	if known.Left != nil && len(known.Left) <= maxChats {
		m.gone = known.Left
	}
	return m, nil
}

// membersOnDisk is the file's content; a list alone is In.
type membersOnDisk struct {
	In   []string                `json:"in"`
	Left map[string]relay.Millis `json:"left,omitempty"` // when the bot left
}

// forget forgets all chats that the bot was seen in: it is another app's now.
func (m *members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.seen)
	clear(m.gone)
	m.order = nil
	m.write()
}

// enforced reports whether there is a source to go by, or the operator says so.
func (m *members) enforced() bool {
	switch m.check {
	case "on":
		return true
	case "off":
		return false
	}
	return m.feishu || m.file().HasGroups
}

// in reports whether messages of the chat may reach the bot and its transcript.
func (m *members) in(channel string, chat relay.ChatID) bool {
	if !m.enforced() {
		return true
	}
	file := m.file()
	// A group that is listed for its limits alone says nothing of who is in it,
	// where Feishu does.
	if member, known := file.Member(string(chat), m.agent); known && member && (!m.feishu || file.Groups[string(chat)].Members != nil) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.seen[chatKey(channel, chat)]
	return ok
}

// settled reports whether in's answer stands without asking Feishu.
func (m *members) settled(channel string, chat relay.ChatID) bool {
	return !m.feishu || channel != relay.DefaultChannel || m.in(channel, chat)
}

// left notes that the bot was no longer in the chat at a time.
func (m *members) left(channel string, chat relay.ChatID, at relay.Millis) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := chatKey(channel, chat)
	if len(m.gone) >= maxChats {
		clear(m.gone)
	}
	m.gone[key] = max(m.gone[key], at)
	delete(m.seen, key)
	m.order = slices.DeleteFunc(m.order, func(k string) bool { return k == key })
	m.write()
}

// saw notes that the bot was heard, or heard something, in the chat at a time.
// What was before it left says nothing: events come late, and again.
func (m *members) saw(channel string, chat relay.ChatID, at relay.Millis) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := chatKey(channel, chat)
	if gone, ok := m.gone[key]; ok && at <= gone {
		return
	}
	if !m.remember(key) {
		return
	}
	delete(m.gone, key)
	m.write()
}

// write is called with mu held.
func (m *members) write() {
	data, err := json.Marshal(membersOnDisk{m.order, m.gone})
	if err == nil {
		err = safefile.ReplaceFast(m.root, m.name, append(data, '\n'))
	}
	if err != nil {
		m.fail(fmt.Errorf("remember known chats: %w", err))
	}
}

func (m *members) remember(key string) (added bool) {
	if _, ok := m.seen[key]; ok {
		return false
	}
	if len(m.order) >= maxChats {
		delete(m.seen, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
	m.seen[key] = struct{}{}
	m.order = append(m.order, key)
	return true
}

package sidecar

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/groups"
	"feishu-relay/internal/jsonl"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// records is this sidecar's copy of what the sidecars of each group agree on, and the
// settings that follow from it.
type records struct {
	*base
	chats *chats

	mu     sync.Mutex
	byChat map[string]*record // by chatKey, at most maxChats; guarded by mu

	// writing is held while a change is taken in and written, and taken before mu; nobody who asks
	// what holds waits for that.
	writing sync.Mutex
	journal *jsonl.Journal // guarded by writing
	failed  bool           // the journal lacks something; guarded by writing
}

// record is the copy of one group's.
type record struct {
	channel string
	chat    relay.ChatID
	is      steer.Record
	shared  steer.Record // what the queue has of it, as far as it was read

	state     *groupState  // computed from is and stateFile; nil: not yet
	stateFile *groups.File // the groups file that state was computed from
}

// recordLine is a line of the journal.
type recordLine struct {
	Channel string       `json:"channel"`
	ChatID  relay.ChatID `json:"chat_id"`
	Record  steer.Record `json:"record"`
}

// maxRecordLine is the most bytes of a line of the journal; a longer one is not read.
const maxRecordLine = 4 << 20

func openRecords(b *base, c *chats) (*records, error) {
	r := &records{base: b, chats: c, byChat: map[string]*record{}}
	root, err := b.folder("steer", "agents")
	if err != nil {
		return nil, err
	}
	limit := relay.MillisOf(time.Now().Add(clockAhead))
	var newest relay.Millis
	r.journal, err = jsonl.OpenJournal(root, b.name()+".jsonl", maxRecordLine, func(line []byte) {
		var l recordLine
		if json.Unmarshal(line, &l) != nil || l.ChatID == "" {
			return // it is torn, or was edited
		}
		for key, v := range l.Record {
			if v.At > limit { // the clock was ahead: what came later counts
				v.At = newest + 1
				l.Record[key] = v
			}
			newest = max(newest, v.At)
		}
		if g := r.of(l.Channel, l.ChatID); g != nil {
			g.is.Merge(l.Record)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the groups' settings: %w", err)
	}
	b.onClose(func() error {
		r.writing.Lock()
		defer r.writing.Unlock()
		var err error
		if r.failed {
			err = r.journal.Replace(r.all())
		}
		return errors.Join(err, r.journal.Close())
	})
	return r, nil
}

// of is the record of a group; nil where there are too many. It is called with mu held, or
// at the start.
func (r *records) of(channel string, chat relay.ChatID) *record {
	key := chatKey(channel, chat)
	g := r.byChat[key]
	if g == nil && len(r.byChat) >= maxChats {
		r.forgetOne()
	}
	if g == nil && len(r.byChat) < maxChats {
		g = &record{channel: channel, chat: chat, is: steer.Record{}, shared: steer.Record{}}
		r.byChat[key] = g
	}
	return g
}

// forgetOne makes room by a group that the bot is not in, if there is one: its own sidecars keep
// the record. It is called with mu held, or at the start.
func (r *records) forgetOne() {
	for key, g := range r.byChat {
		if _, in := g.is.Member(r.cfg.Agent); !in {
			delete(r.byChat, key)
			return
		}
	}
}

// merge takes over what is newer in news; shared says that the queue has it. A nil error
// means that it is on disk.
func (r *records) merge(channel string, chat relay.ChatID, news steer.Record, shared bool) (changed bool, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	newer, known, err := r.takeIn(channel, chat, news, shared)
	if err != nil || !newer && !r.failed {
		return false, err
	}
	if r.failed || r.journal.Lines() > 2*known+slackChanges {
		err = r.journal.Replace(r.all())
	} else {
		err = r.journal.Append(recordLine{channel, chat, news}.encode())
	}
	r.failed = err != nil
	if err != nil {
		r.problems.set("steer", fmt.Errorf("write the groups' settings: %w", err))
	}
	return true, err
}

// takeIn is merge in memory; known is how many groups have a record.
func (r *records) takeIn(channel string, chat relay.ChatID, news steer.Record, shared bool) (newer bool, known int,
	err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.of(channel, chat)
	if g == nil {
		return false, 0, errors.New("there are too many groups")
	}
	limit := relay.MillisOf(time.Now().Add(clockAhead))
	if shared {
		g.shared.Yield(news, limit)
		g.shared.Merge(news)
	}
	g.is.Yield(news, limit)
	if newer = g.is.Merge(news); newer {
		g.state = nil
	}
	return newer, len(r.byChat), nil
}

// all is the journal of what is known.
func (r *records) all() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []byte
	for _, g := range r.byChat {
		for _, part := range g.is.Parts() {
			lines = append(lines, recordLine{g.channel, g.chat, part}.encode()...)
		}
	}
	return lines
}

func (l recordLine) encode() []byte {
	line, err := relay.Marshal(l)
	if err != nil {
		panic(err) // values of a record are JSON
	}
	return append(line, '\n')
}

// lost lists what the queue lacks of the records of the bot's groups, after it was read from its beginning.
func (r *records) lost() (out []recordLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.byChat {
		_, in := g.is.Member(r.cfg.Agent)
		if lacks := g.is.Outdated(g.shared); in && len(lacks) > 0 {
			out = append(out, recordLine{g.channel, g.chat, lacks})
		}
		g.shared = steer.Record{}
	}
	return out
}

// groupState is what holds in a group now. It is not changed once it was made.
type groupState struct {
	steer.Settings
	record   steer.Record
	sources  map[string]string
	members  []steer.Member
	operator int // the operator's budget
	maxDepth int // the highest limit that can be set; 0: any
	file     groups.Group
}

// state is what holds in a group: its record, over its entry in the groups file, over the
// environment. How bots share a group is the same at all sidecars: where their environments
// differ, that of the first agent holds.
func (r *records) state(channel string, chat relay.ChatID) *groupState {
	file := r.chats.groups.Current()
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.byChat[chatKey(channel, chat)]
	if g == nil {
		return r.compute(nil, file.Groups[string(chat)])
	}
	if g.state == nil || g.stateFile != file {
		g.state, g.stateFile = r.compute(maps.Clone(g.is), file.Groups[string(chat)]), file
	}
	state := g.state
	if state.Paused != nil || len(state.Muted) > 0 {
		g.state = nil // it may end at any time
	}
	return state
}

// compute lays a record over a group's entry in the groups file and the environment.
func (r *records) compute(is steer.Record, file groups.Group) *groupState {
	c, now := &r.cfg, time.Now()
	g := &groupState{record: is, sources: map[string]string{}, file: file}
	g.members = g.record.Members()
	env := steer.Settings{Answer: cmp.Or(steer.Mode(c.Steer.AnswerMode), steer.All), Limit: c.Limits.MaxDepth,
		Threshold: c.Limits.Threshold, Judge: c.Limits.Check, Budget: c.Steer.Budget}
	if len(g.members) > 0 && g.members[0].Answer != "" {
		env.Answer, env.Budget = g.members[0].Answer, g.members[0].Budget
	}
	for _, key := range []string{"answer", "default_bot", "limit", "threshold", "judge", "budget", "paused", "muted"} {
		g.sources[key] = steer.FromEnv
	}
	from := func(key string, set bool, take func()) {
		if set {
			take()
			g.sources[key] = steer.FromFile
		}
	}
	f := &g.file
	from("answer", f.AnswerMode != "", func() { env.Answer = steer.Mode(f.AnswerMode) })
	from("default_bot", f.DefaultBot != "", func() { env.DefaultBot = relay.AgentName(f.DefaultBot) })
	from("limit", f.MaxBotReplyDepth != nil, func() { env.Limit = *f.MaxBotReplyDepth })
	from("threshold", f.BotReplyLLMThreshold != nil, func() { env.Threshold = *f.BotReplyLLMThreshold })
	from("judge", f.BotReplyLLMCheck != nil, func() { env.Judge = *f.BotReplyLLMCheck })
	from("budget", f.GroupBudget != nil, func() { env.Budget = *f.GroupBudget })
	g.operator = env.Budget
	g.Settings = g.record.Over(env, g.sources, now)
	if g.maxDepth = c.Steer.MaxDepth; f.SteerMaxDepth != nil {
		g.maxDepth = *f.SteerMaxDepth
	}
	if g.sources["limit"] == steer.FromRecord && g.maxDepth > 0 { // it may have been higher when the limit was set
		g.Limit = min(g.Limit, g.maxDepth)
		g.Threshold = min(g.Threshold, g.Limit)
	}
	return g
}

// limits are the numbers of the stop policy in a group.
func (r *records) limits(channel string, chat relay.ChatID) policy.Limits {
	g := r.state(channel, chat)
	l := r.cfg.Limits
	l.MaxDepth, l.Threshold, l.Check = g.Limit, g.Threshold, g.Judge
	return l
}

// chatsOf lists the groups that have a record.
func (r *records) chatsOf() (out []recordLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.byChat {
		out = append(out, recordLine{Channel: g.channel, ChatID: g.chat})
	}
	slices.SortFunc(out, func(a, b recordLine) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.ChatID, b.ChatID))
	})
	return out
}

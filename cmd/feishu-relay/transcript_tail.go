package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"time"

	"feishu-relay/transcript"
)

const (
	// maxFollowed is how many chats are followed at once, since each takes one of
	// the system's few watchers; of more, those that spoke last are, and a line
	// on stderr says so.
	maxFollowed = 32
	// minLookBack is the least number of messages that a follower begins with. Those
	// that were printed already are left out; more than these cannot come
	// between the two looks.
	minLookBack = 100
	// lookForChats is how often new chats are looked for.
	lookForChats = time.Second
)

func transcriptTail(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	v := view{out: stdout, err: stderr}
	f := flags("transcript tail", "transcript tail [-f] [-n 10] [--json] [--dir DIR] [CHAT]", stdout, stderr)
	n := f.Int("n", 10, "begin with the last `n` messages")
	follow := f.Bool("f", false, "go on with what is said from now on, until Ctrl-C")
	chat, err := v.open(f, args, 1)
	if err != nil {
		return err
	}
	defer v.close()
	if err := checkN(*n, stderr); err != nil {
		return err
	}
	if chat == "" {
		return v.tailAll(ctx, *n, *follow)
	}
	c, err := v.find(chat)
	if err != nil {
		return err
	}
	p := v.printer(false)
	if !*follow {
		return v.printTail(ctx, p, c, *n)
	}
	all := v.newFollower(*n)
	all.only = true
	entries, err := all.begins(c)
	if err != nil {
		return err
	}
	known := v.fatesOf(ctx, c, *n)
	for _, e := range lastMessages(entries, *n) {
		if err := p.printWith(c, e, known); err != nil {
			return err
		}
	}
	return all.run(ctx, p)
}

// said is one message and where it was said.
type said struct {
	chat  transcript.Chat
	entry transcript.Entry
	err   error // with which the chat's follower has ended; nil for a message
}

// tailAll prints the last n messages of all chats in the order of their times,
// and then follows.
func (v *view) tailAll(ctx context.Context, n int, follow bool) error {
	chats, err := v.store.Chats()
	if err != nil {
		return err
	}
	f := v.newFollower(n)
	var last []said
	for _, c := range chats {
		entries, err := f.begins(c)
		if err != nil {
			return err
		}
		for _, e := range lastMessages(entries, n) {
			last = append(last, said{chat: c, entry: e})
		}
	}
	slices.SortStableFunc(last, func(a, b said) int { return cmp.Compare(a.entry.TS, b.entry.TS) })
	p := v.printer(true)
	known := map[chatKey]fates{}
	for _, s := range last[beginOf(len(last), n, func(i int) bool { return isNotice(last[i].entry) }):] {
		key := chatKey{s.chat.Channel, s.chat.ChatID}
		if _, asked := known[key]; !asked && !v.silent {
			known[key] = v.fatesOf(ctx, s.chat, n)
		}
		if err := p.printWith(s.chat, s.entry, known[key]); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	return f.run(ctx, p)
}

func isNotice(e transcript.Entry) bool { return e.Role == transcript.RoleNotice }

// beginOf is where the last n messages of size lines begin; notices do not count.
func beginOf(size, n int, notice func(int) bool) int {
	begin := size
	for i := size - 1; i >= 0 && n > 0; i-- {
		if begin = i; !notice(i) {
			n--
		}
	}
	return begin
}

// lastMessages are the last n messages, and the notices behind the first of them.
func lastMessages(entries []transcript.Entry, n int) []transcript.Entry {
	return entries[beginOf(len(entries), n, func(i int) bool { return isNotice(entries[i]) }):]
}

type chatKey struct{ channel, id string }

// follower follows all chats. Its methods are for one goroutine.
type follower struct {
	*view
	lookBack int
	seed     maphash.Seed
	chats    map[chatKey]bool // known ones; those beyond maxFollowed as well
	begin    []beginning      // chats to be followed that are not yet
	told     bool             // that there are more than maxFollowed
	only     bool             // no chat but those known at the beginning
	said     chan said
	notices  map[chatKey]*noticed // of the chats that are followed
	fated    []string             // outcomes that were printed, the newest last
}

// noticed is what is known of a chat's notices.
type noticed struct {
	chat transcript.Chat // their file as it was read
	ids  map[string]bool // of the newest ones
}

func (v *view) newFollower(n int) *follower {
	return &follower{view: v, lookBack: max(n, minLookBack), seed: maphash.MakeSeed(), chats: map[chatKey]bool{},
		said: make(chan said), notices: map[chatKey]*noticed{}}
}

// begins notes that a chat is to be followed, and returns the end of it, with the notices.
func (f *follower) begins(c transcript.Chat) ([]transcript.Entry, error) {
	entries, err := f.store.Tail(c.Channel, c.ChatID, f.lookBack)
	if err != nil {
		return nil, err
	}
	f.know(c, entries)
	notices, err := f.view.notices(c)
	if err != nil {
		return nil, err
	}
	if known := f.notices[chatKey{c.Channel, c.ChatID}]; known != nil {
		known.fresh(notices)
	}
	return among(entries, notices, len(entries) < f.lookBack), nil
}

// fresh returns those of a chat's newest notices that were not known.
func (n *noticed) fresh(newest []transcript.Entry) (fresh []transcript.Entry) {
	ids := make(map[string]bool, len(newest))
	for _, e := range newest {
		if ids[e.MessageID] = true; !n.ids[e.MessageID] {
			fresh = append(fresh, e)
		}
	}
	n.ids = ids
	return fresh
}

// printNotices prints what came since the last look. It looks at the files' sizes, since a
// follower each would take one more of the system's watchers.
func (f *follower) printNotices(p *printer) error {
	f.openMarks()
	if f.marks == nil {
		return nil
	}
	chats, err := f.marks.Chats()
	if err != nil {
		return err
	}
	for _, c := range chats {
		known := f.notices[chatKey{c.Channel, c.ChatID}]
		if known == nil || c.Size == known.chat.Size && c.Modified.Equal(known.chat.Modified) {
			continue
		}
		known.chat = c
		newest, err := f.view.notices(c)
		if err != nil {
			return err
		}
		for _, e := range known.fresh(newest) {
			if err := p.print(c, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginning is a chat and the hashes of its messages that need no printing.
type beginning struct {
	chat transcript.Chat
	old  map[uint64]bool
}

// know notes a chat that is to be followed from behind entries on.
func (f *follower) know(c transcript.Chat, entries []transcript.Entry) {
	key := chatKey{c.Channel, c.ChatID}
	if f.chats[key] {
		return
	}
	f.chats[key] = true
	if len(f.chats) > maxFollowed {
		return
	}
	old := make(map[uint64]bool, len(entries))
	for _, e := range entries {
		old[maphash.Comparable(f.seed, e)] = true
	}
	f.begin = append(f.begin, beginning{c, old})
	f.notices[key] = &noticed{}
}

// run prints what is said until ctx is done. Every goroutine it starts has ended
// when it returns.
func (f *follower) run(ctx context.Context, p *printer) error {
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	came := make(chan fated)
	if !p.json {
		followers.Go(func() {
			f.followFates(ctx, func(d fated) bool {
				select {
				case came <- d:
					return true
				case <-ctx.Done():
					return false
				}
			})
		})
	}
	tick := time.NewTicker(lookForChats)
	defer tick.Stop()
	for {
		for _, b := range f.begin {
			followers.Go(func() { f.follow(ctx, b) })
		}
		f.begin = nil
		if len(f.chats) > maxFollowed && !f.told {
			f.told = true
			fmt.Fprintf(f.err, "following %d chats, those that spoke last; name another CHAT to follow it\n", maxFollowed)
		}
		select {
		case <-ctx.Done():
			return nil
		case s := <-f.said:
			if s.err != nil {
				return s.err
			}
			if err := p.print(s.chat, s.entry); err != nil {
				return err
			}
		case d := <-came:
			if err := f.printFate(p, d); err != nil {
				return err
			}
		case <-tick.C:
			if err := f.printNotices(p); err != nil {
				return err
			}
			if f.only {
				continue
			}
			chats, err := f.store.Chats()
			if err != nil {
				return err
			}
			for _, c := range chats {
				f.know(c, nil)
			}
		}
	}
}

// follow hands on what is said in one chat until ctx is done.
func (f *follower) follow(ctx context.Context, b beginning) {
	hand := func(s said) bool {
		select {
		case f.said <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for e, err := range f.store.Follow(ctx, b.chat.Channel, b.chat.ChatID, f.lookBack) {
		if err == nil {
			hash := maphash.Comparable(f.seed, e)
			if b.old[hash] {
				delete(b.old, hash)
				continue
			}
		}
		if !hand(said{b.chat, e, err}) {
			return
		}
	}
}

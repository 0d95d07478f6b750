package main

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

const (
	// minLookBack is the least number of a chat's messages that are read at once: more than these do not come
	// between two looks.
	minLookBack = 250
	// lookEvery is how often tail -f looks for new messages.
	lookEvery = 500 * time.Millisecond
)

type transcriptShowCommand struct {
	folder
	N    int `short:"n" default:"50"`
	Args struct {
		Chat string `positional-arg-name:"CHAT" required:"yes"`
	} `positional-args:"yes"`
}

func (c *transcriptShowCommand) run(p *cli, _ []string) error {
	if c.Args.Chat == "" {
		return p.misused("which CHAT? `feishu-relay transcript list` names them")
	}
	return c.show(p, c.Args.Chat, c.N, false)
}

type transcriptTailCommand struct {
	folder
	Follow bool `short:"f" long:"follow"`
	N      int  `short:"n" default:"10"`
	Args   struct {
		Chat string `positional-arg-name:"CHAT"`
	} `positional-args:"yes"`
}

func (c *transcriptTailCommand) run(p *cli, _ []string) error {
	return c.show(p, c.Args.Chat, c.N, c.Follow)
}

// show prints the last n messages of a chat, "" for all, and goes on if that is wanted.
func (f *folder) show(p *cli, chat string, n int, follow bool) error {
	if n < 0 || n > maxShown {
		return p.misused("-n: want a number from 0 to %d, got %d", maxShown, n)
	}
	v, err := f.open(p)
	if err != nil {
		return err
	}
	defer v.close()
	var chats []transcript.Chat
	if chat == "" {
		chats, err = v.store.Chats()
	} else {
		chats = make([]transcript.Chat, 1)
		chats[0], err = v.find(chat)
	}
	if err != nil {
		return err
	}
	t := follower{view: v, lookBack: max(n, minLookBack), only: chat != "", seed: maphash.MakeSeed(),
		chats: map[chatKey]*followed{}}
	out := v.printer(chat == "")
	if err := t.begin(p.ctx, out, chats, n); err != nil || !follow {
		return err
	}
	return t.run(p.ctx, out)
}

// said is one message and where it was said.
type said struct {
	chat  transcript.Chat
	entry transcript.Entry
}

// inTime sorts what was said in several chats by time.
func inTime(all []said) {
	slices.SortStableFunc(all, func(a, b said) int { return cmp.Compare(a.entry.TS, b.entry.TS) })
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

type chatKey struct{ channel, id string }

// follower prints what is said in chats.
type follower struct {
	*view
	lookBack int
	only     bool // no chat but those known at the beginning
	seed     maphash.Seed
	chats    map[chatKey]*followed
	fated    []string // outcomes that were printed, the newest last
}

// followed is what was read of a chat: of its messages and of its notices.
type followed struct{ messages, notices looked }

type looked struct {
	chat  transcript.Chat // as it was at the last look
	known map[uint64]bool // hashes of the newest entries
}

// begin prints the last n messages of chats.
func (f *follower) begin(ctx context.Context, p *printer, chats []transcript.Chat, n int) error {
	var last []said
	for _, c := range chats {
		of := &followed{}
		f.chats[chatKey{c.Channel, c.ChatID}] = of
		entries, err := f.fresh(f.store, c, &of.messages)
		if err != nil {
			return err
		}
		notices, err := f.notices(c)
		if err != nil {
			return err
		}
		of.notices.fresh(f.seed, notices)
		entries = among(entries, notices, len(entries) < f.lookBack)
		for _, e := range entries[beginOf(len(entries), n, func(i int) bool { return isNotice(entries[i]) }):] {
			last = append(last, said{c, e})
		}
	}
	if len(chats) > 1 {
		inTime(last)
	}
	known := map[chatKey]fates{}
	for _, s := range last[beginOf(len(last), n, func(i int) bool { return isNotice(last[i].entry) }):] {
		key := chatKey{s.chat.Channel, s.chat.ChatID}
		if _, asked := known[key]; !asked && !f.silent {
			known[key] = f.fatesOf(ctx, s.chat, n)
		}
		if err := p.printWith(s.chat, s.entry, known[key]); err != nil {
			return err
		}
	}
	return nil
}

// fresh returns what was said in a chat since the last look.
func (f *follower) fresh(store *transcript.Store, c transcript.Chat, of *looked) ([]transcript.Entry, error) {
	newest, err := store.Tail(c.Channel, c.ChatID, f.lookBack)
	return of.fresh(f.seed, newest), err
}

// fresh returns those of the newest entries that were not known. An edited or recalled message is not known.
func (l *looked) fresh(seed maphash.Seed, newest []transcript.Entry) (fresh []transcript.Entry) {
	known := make(map[uint64]bool, len(newest))
	for _, e := range newest {
		line, _ := relay.Marshal(e) // never fails
		hash := maphash.Bytes(seed, line)
		if known[hash] = true; !l.known[hash] {
			fresh = append(fresh, e)
		}
	}
	l.known = known
	return fresh
}

// run prints what is said until ctx is done. The goroutine that it starts has ended
// when it returns.
func (f *follower) run(ctx context.Context, p *printer) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	came := make(chan fated)
	if !p.json {
		background.Go(func() {
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
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-came:
			if err := f.printFate(p, d); err != nil {
				return err
			}
		case <-tick.C:
			if err := f.look(p); err != nil {
				return err
			}
		}
	}
}

// look prints what is new in the chats whose files have changed.
func (f *follower) look(p *printer) error {
	f.openMarks()
	var fresh []said
	for _, store := range []*transcript.Store{f.store, f.marks} {
		if store == nil {
			continue
		}
		chats, err := store.Chats()
		if err != nil {
			return err
		}
		for _, c := range chats {
			key := chatKey{c.Channel, c.ChatID}
			of := f.chats[key]
			if of == nil && (f.only || store == f.marks) {
				continue
			}
			if of == nil {
				of = &followed{}
				f.chats[key] = of
			}
			part := &of.messages
			if store == f.marks {
				part = &of.notices
			}
			if c.Size == part.chat.Size && c.Modified.Equal(part.chat.Modified) {
				continue
			}
			part.chat = c
			entries, err := f.fresh(store, c, part)
			if err != nil {
				return err
			}
			for _, e := range entries {
				fresh = append(fresh, said{c, e})
			}
		}
	}
	inTime(fresh)
	for _, s := range fresh {
		if err := p.print(s.chat, s.entry); err != nil {
			return err
		}
	}
	return nil
}

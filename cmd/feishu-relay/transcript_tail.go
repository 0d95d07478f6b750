package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/transcript"
)

const (
	// maxFollowed is how many chats are followed at once, since each takes one of
	// the system's few watchers; beyond it those that spoke last are, and a line on stderr says so.
	maxFollowed = 32
	// minLookBack is the least number of messages that a follower begins with. Those
	// that were printed already are left out; more than these cannot come
	// between the two looks.
	minLookBack = 100
	// lookForChats is how often new chats are looked for.
	lookForChats = time.Second
)

func transcriptTail(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var explained strings.Builder
	v := view{out: stdout, err: stderr}
	f := flags("transcript tail", "transcript tail [-f] [-n 10] [--json] [--dir DIR] [CHAT]", &explained)
	n := f.Int("n", 10, "begin with the last `n` messages")
	follow := f.Bool("f", false, "go on with what is said from now on, until Ctrl-C")
	chat, err := v.open(f, &explained, args, 1)
	if err != nil {
		return err
	}
	defer v.store.Close()
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
		entries, err := v.store.Tail(c.Channel, c.ChatID, *n)
		for _, e := range entries {
			if err := p.print(c, e); err != nil {
				return err
			}
		}
		return err
	}
	for e, err := range v.store.Follow(ctx, c.Channel, c.ChatID, *n) {
		if err != nil {
			return err
		}
		if err := p.print(c, e); err != nil {
			return err
		}
	}
	return nil
}

// said is one message and where it was said.
type said struct {
	chat  transcript.Chat
	entry transcript.Entry
	err   error // the chat's follower has ended with it
}

// tailAll prints the last n messages of all chats in the order of their times,
// and then follows.
func (v *view) tailAll(ctx context.Context, n int, follow bool) error {
	chats, err := v.store.Chats()
	if err != nil {
		return err
	}
	f := follower{view: v, lookBack: max(n, minLookBack), seed: maphash.MakeSeed(), known: map[transcript.Chat]bool{}}
	var last []said
	for _, c := range chats {
		entries, err := v.store.Tail(c.Channel, c.ChatID, f.lookBack)
		if err != nil {
			return err
		}
		if follow {
			f.begin(ctx, c, entries)
		}
		for _, e := range entries[max(0, len(entries)-n):] {
			last = append(last, said{chat: c, entry: e})
		}
	}
	slices.SortStableFunc(last, func(a, b said) int { return cmp.Compare(a.entry.TS, b.entry.TS) })
	p := v.printer(true)
	for _, s := range last[max(0, len(last)-n):] {
		if err := p.print(s.chat, s.entry); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	return f.run(ctx, p)
}

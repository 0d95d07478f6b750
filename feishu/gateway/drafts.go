package gateway

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/relay"
)

// Bounds of the drafts. Beyond maxDrafts or maxBytes the oldest is published as it is; where
// even that fails and maxStuck more or stuckBytes more pile up, the oldest is dropped, which
// is counted and logged.
const (
	maxDrafts  = 1000
	maxStuck   = 200
	maxBytes   = 64 << 20 // of all contents and cards
	stuckBytes = 16 << 20
	maxFile    = 8 << 20 // bytes of a draft's file
)

const (
	draftPrefix  = "draft-"
	draftVersion = 1
)

// drafts are the messages that are not final yet, in memory and on disk.
//
// A change is made and written under mu: a file is some 100 µs, and whoever
// waits for it on a broken disk waits tapWait at most.
type drafts struct {
	files *spool.Spool[draft] // nil: memory only
	log   *slog.Logger
	count func(feishu.Counted)
	wake  chan struct{} // something changed; of size 1

	mu        sync.Mutex
	made      int // drafts so far
	bytes     int // sum of draft.bytes
	all       map[*draft]struct{}
	byMessage map[relay.MessageID]*draft
	byCard    map[string]*draft
	warned    bool // that the disk refuses drafts

	// What sizes returns, which does not wait for the disk.
	waiting, unsaved atomic.Int64

	nowMu sync.Mutex
	now   map[relay.ChatID]bool // what retry was called with; guarded by nowMu
}

// loadDrafts reads what an earlier run left. A file that cannot be read is quarantined
// as *.broken.
func loadDrafts(root *os.Root, log *slog.Logger, count func(feishu.Counted)) *drafts {
	s := &drafts{log: log, count: count, wake: make(chan struct{}, 1), all: map[*draft]struct{}{},
		byMessage: map[relay.MessageID]*draft{}, byCard: map[string]*draft{}, now: map[relay.ChatID]bool{}}
	if root == nil {
		return s
	}
	s.files = spool.New[draft](root, spool.Options{Prefix: draftPrefix, Suffix: ".json",
		Version: draftVersion, MaxFile: maxFile, Logger: log, Unreadable: func() { count(countedDraftBroken) }})
	var left []*draft
	err := s.files.Load(func(file string, d draft) error {
		if err := d.check(); err != nil {
			return err
		}
		d.file, d.saved = file, true
		left = append(left, &d)
		return nil
	})
	if err != nil {
		log.Error("drafts of the previous run cannot be read", "err", err)
	}
	slices.SortFunc(left, func(a, b *draft) int { return cmp.Compare(a.Created, b.Created) })
	now := relay.MillisOf(time.Now())
	for _, d := range left {
		if d.Wait == waitEdit {
			d.Touched = max(d.Touched, now) // while nobody listened the bot could not go on
		}
		s.enter(d)
	}
	s.force()
	for _, d := range left {
		d.untried = d.forced
	}
	s.mu.Lock()
	defer s.unlock()
	s.dropOldest()
	return s
}

// check returns what is wrong with a draft that was read.
func (d *draft) check() error {
	switch {
	case d.Message.ID == "" && d.CardID == "":
		return errors.New("it names neither a message nor a card")
	case d.Message.ID != "" && d.Message.ChatID == "":
		return errors.New("it names no chat")
	case d.Card == nil && d.CardID != "":
		return errors.New("it holds no card")
	}
	return nil
}

// enter takes d in as the newest. Callers other than loadDrafts hold mu.
func (s *drafts) enter(d *draft) {
	s.made++
	d.order = s.made
	s.all[d] = struct{}{}
	s.index(d)
}

// index makes d found by its message and its card, and notes how large it is.
func (s *drafts) index(d *draft) {
	s.bytes -= d.bytes
	d.bytes = d.size()
	s.bytes += d.bytes
	if d.Message.ID != "" {
		s.byMessage[d.Message.ID] = d
	}
	if d.CardID != "" {
		s.byCard[d.CardID] = d
	}
}

// add keeps a new draft, on disk where there is one. A draft of the same
// message or card stays as it is.
func (s *drafts) add(d *draft) {
	s.mu.Lock()
	defer s.unlock()
	if s.byMessage[d.Message.ID] != nil || s.byCard[d.CardID] != nil {
		return
	}
	d.file = safefile.Name(d.key())
	s.enter(d)
	s.save(d)
	s.makeRoom()
	s.poke()
}

// makeRoom is called with mu held when drafts came or grew.
func (s *drafts) makeRoom() {
	s.force()
	s.dropOldest()
}

// force has the oldest drafts published as they are while there are too many or they are too large together.
// Those that were published already it takes out first.
func (s *drafts) force() {
	n, bytes := len(s.all), s.bytes // of those that are not about to be published
	if n <= maxDrafts && bytes <= maxBytes {
		return
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		if d.Wait == waitMore && (len(s.all) > maxDrafts || s.bytes > maxBytes) {
			s.remove(d)
			n, bytes = n-1, bytes-d.bytes
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		if d.forced || n > maxDrafts || bytes > maxBytes {
			d.forced = true
			n, bytes = n-1, bytes-d.bytes
		}
	}
}

// dropOldest drops the oldest drafts while too many cannot be published or they are too large together. Those of an
// earlier run that are about to be published do not count, so that none is dropped before it was tried, except beyond
// twice these bounds: an agent that is killed again and again before it publishes any keeps no more than that.
func (s *drafts) dropOldest() {
	over := func(n, bytes int) bool { return n > maxDrafts+maxStuck || bytes > maxBytes+stuckBytes }
	n, bytes := len(s.all), s.bytes
	if !over(n, bytes) {
		return
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		if !over((len(s.all)+1)/2, (s.bytes+1)/2) {
			break
		}
		s.lose(d)
	}
	n, bytes = len(s.all), s.bytes
	for d := range s.all {
		if d.untried {
			n, bytes = n-1, bytes-d.bytes
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.all), byOrder) {
		if !over(n, bytes) {
			return
		}
		if !d.untried {
			n, bytes = n-1, bytes-d.bytes
			s.lose(d)
		}
	}
}

// lose drops d, for which there is no room. It is called with mu held.
func (s *drafts) lose(d *draft) {
	s.count(countedDraftLost)
	s.log.Error("too many drafts cannot be published; the oldest is dropped", "message_id", d.Message.ID,
		"chat", d.Message.ChatID)
	s.remove(d)
}

// onMessage changes the draft of a message; false when there is none.
func (s *drafts) onMessage(id relay.MessageID, change func(*draft)) bool {
	return s.change(func() *draft { return s.byMessage[id] }, change)
}

// onCard changes the draft of a CardKit card; false when there is none.
func (s *drafts) onCard(card string, change func(*draft)) bool {
	return s.change(func() *draft { return s.byCard[card] }, change)
}

func (s *drafts) change(find func() *draft, change func(*draft)) bool {
	s.mu.Lock()
	defer s.unlock()
	d := find()
	if d == nil {
		return false
	}
	change(d)
	s.index(d) // it may have got its message or its card by now
	s.save(d)
	s.makeRoom()
	s.poke()
	return true
}

// each changes all drafts that which picks.
func (s *drafts) each(which func(*draft) bool, change func(*draft)) {
	s.mu.Lock()
	defer s.unlock()
	for d := range s.all {
		if which(d) {
			change(d)
			s.save(d)
			s.poke()
		}
	}
}

// retry has the drafts of a chat tried again at once; reset: as if none had failed. It does not wait for the disk.
// Where too many chats are, the drafts wait for their time.
func (s *drafts) retry(chat relay.ChatID, reset bool) {
	s.nowMu.Lock()
	if len(s.now) < maxDrafts {
		s.now[chat] = s.now[chat] || reset
	}
	s.nowMu.Unlock()
	s.poke()
}

// retried does what retry was asked for. It is called with mu held.
func (s *drafts) retried() {
	s.nowMu.Lock()
	chats := s.now
	s.now = map[relay.ChatID]bool{}
	s.nowMu.Unlock()
	for d := range s.all {
		reset, now := chats[d.Message.ChatID]
		if now {
			d.retryAt = time.Time{}
		}
		if reset {
			d.tries = 0
		}
	}
}

// drop forgets the draft of a message and reports whether it would have been
// published.
func (s *drafts) drop(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.unlock()
	d := s.byMessage[id]
	if d == nil {
		return false
	}
	s.remove(d)
	s.poke() // what waited behind it may go out
	return d.Published == ""
}

// forget removes d, which was published or is dropped.
func (s *drafts) forget(d *draft) {
	s.mu.Lock()
	defer s.unlock()
	s.remove(d)
}

// published notes that d went out with a text, as it was when it was touched last, and
// keeps it where the bot may go on writing.
func (s *drafts) published(d *draft, text string, touched relay.Millis) {
	s.mu.Lock()
	defer s.unlock()
	if _, there := s.all[d]; !there {
		return // it was recalled meanwhile
	}
	if !d.mayChange() {
		s.remove(d)
		return
	}
	d.Published, d.tries, d.forced, d.untried = text, 0, false, false
	if d.Touched == touched {
		d.Wait = waitMore
	}
	var kept []*draft
	for other := range s.all {
		if other.Wait == waitMore {
			kept = append(kept, other)
		}
	}
	if len(kept) > maxPublished {
		s.remove(slices.MinFunc(kept, byOrder))
	}
	if _, there := s.all[d]; there {
		s.save(d)
	}
}

// failed notes that d could not be published, and returns when to try again.
func (s *drafts) failed(d *draft) time.Duration {
	s.mu.Lock()
	defer s.unlock()
	wait := backoff(d.tries)
	d.tries++
	d.retryAt, d.forced, d.untried = time.Now().Add(wait), false, false
	s.dropOldest()
	return wait
}

func byOrder(a, b *draft) int { return cmp.Compare(a.order, b.order) }

// remove takes d out, unless it was before. It is called with mu held.
func (s *drafts) remove(d *draft) {
	if _, there := s.all[d]; !there {
		return
	}
	delete(s.all, d)
	s.bytes -= d.bytes
	if s.byMessage[d.Message.ID] == d {
		delete(s.byMessage, d.Message.ID)
	}
	if s.byCard[d.CardID] == d {
		delete(s.byCard, d.CardID)
	}
	if s.files != nil {
		s.files.Remove(d.file)
	}
}

// save writes d; mu is held. Where the disk refuses, d stays in memory and is
// written later.
func (s *drafts) save(d *draft) {
	if s.files == nil {
		return
	}
	err := s.files.Save(d.file, *d)
	d.saved = err == nil
	if err == nil {
		if s.warned {
			s.log.Info("drafts can be written to disk again")
		}
		s.warned = false
		return
	}
	s.count(countedDraftUnsaved)
	if !s.warned {
		s.warned = true
		s.log.Error("drafts cannot be written and are kept in memory", "err", err)
	}
}

// saveRest writes what the disk refused before, until it refuses again.
func (s *drafts) saveRest() {
	s.mu.Lock()
	defer s.unlock()
	for d := range s.all {
		if s.files != nil && !d.saved {
			if s.save(d); !d.saved {
				return
			}
		}
	}
}

// sizes are how many drafts wait to be published, and how many of them are not on disk, as of the last change.
func (s *drafts) sizes() (n, unsaved int) { return int(s.waiting.Load()), int(s.unsaved.Load()) }

// unlock ends a change.
func (s *drafts) unlock() {
	n, unsaved := 0, 0
	for d := range s.all {
		if d.Wait == waitMore {
			continue
		}
		n++
		if !d.saved {
			unsaved++
		}
	}
	s.waiting.Store(int64(n))
	s.unsaved.Store(int64(unsaved))
	s.mu.Unlock()
}

// poke wakes Run, which looks at all of them again.
func (s *drafts) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// holds reports whether a message waits as a draft.
func (s *drafts) holds(id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byMessage[id] != nil
}

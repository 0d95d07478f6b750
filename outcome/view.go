package outcome

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	viewFor  = 2 * time.Minute // how long reading continues after the last viewer
	patience = 3 * time.Second // how long Recent waits for the queue to be read
)

// view holds the outcomes that are read while there are viewers.
type view struct {
	unneeded chan struct{} // closed when the last viewer is gone
	caught   chan struct{} // closed when the queue has been read to its end
	began    relay.Millis  // later changes are passed to watchers

	mu      sync.Mutex
	index   index // guarded by mu, as the next two are
	partial bool  // Recent returned before the queue was read: the rest is passed to watchers
	whole   bool  // the queue had every outcome ever published; set before caught is closed
}

// Recent returns at most limit outcomes of the newest messages of a chat at all
// bots, in the order of the messages, the newest last. complete reports that
// these are the newest limit, or all. Else some may be missing: the queue no
// longer holds them, or it was not read in time, and the watchers get the rest
// when it is read. An error is that of ctx: list is what is known then.
func (l *Log) Recent(ctx context.Context, channel string, chat relay.ChatID, limit int) (
	list []Outcome, complete bool, err error) {
	v := l.acquire()
	defer l.release()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	caught := false
	select {
	case <-v.caught:
		caught = true
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	in := chatKey{channel, chat}
	v.mu.Lock()
	found := v.index.of(in)
	all := caught && v.whole && !v.index.evicted
	v.partial = v.partial || !caught
	v.mu.Unlock()
	l.addPending(found, in)
	list = newest(found, max(0, limit))
	return list, all || caught && len(found) >= limit, err
}

// addPending adds the outcomes of this bot that are not written yet.
func (l *Log) addPending(found map[key]record, in chatKey) {
	add := func(o Outcome) {
		k := o.key()
		if k.chatKey != in {
			return
		}
		if known, ok := found[k]; ok {
			o = merge(known.Outcome, o)
			found[k] = record{o, min(known.since, o.At)}
			return
		}
		found[k] = record{o, o.At}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range [][]*Outcome{l.due, l.pending} {
		for _, o := range list {
			add(*o)
		}
	}
}

// Watch calls fn with each outcome of any bot that is new or changes from now
// on, until stop is called; one more call may come while stop runs. fn gets one
// outcome at a time and must return soon, since reading and writing wait for it.
// Earlier outcomes are returned by Recent: a caller that calls it after Watch
// misses none.
func (l *Log) Watch(fn func(Outcome)) (stop func()) {
	l.acquire()
	l.viewing.Lock()
	defer l.viewing.Unlock()
	l.watches[&fn] = struct{}{}
	return sync.OnceFunc(func() {
		l.viewing.Lock()
		delete(l.watches, &fn)
		l.viewing.Unlock()
		l.release()
	})
}

// acquire returns the view, which remains at least until the matching release.
func (l *Log) acquire() *view {
	l.viewing.Lock()
	defer l.viewing.Unlock()
	if l.idle != nil {
		l.idle.Stop()
	}
	l.users++
	if l.view == nil {
		l.view = &view{
			unneeded: make(chan struct{}),
			caught:   make(chan struct{}),
			began:    relay.MillisOf(time.Now()),
			index:    index{max: maxIndex, all: map[key]record{}},
		}
		wait.Wake(l.opened)
	}
	return l.view
}

func (l *Log) release() {
	l.viewing.Lock()
	defer l.viewing.Unlock()
	if l.users--; l.users == 0 {
		l.idle = time.AfterFunc(viewFor, l.forget)
	}
}

// forget ends the view unless it was acquired meanwhile.
func (l *Log) forget() {
	l.viewing.Lock()
	defer l.viewing.Unlock()
	if l.users == 0 && l.view != nil {
		close(l.view.unneeded)
		l.view = nil
	}
}

// follow reads for each view in turn until ctx is done.
func (l *Log) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		l.viewing.Lock()
		v := l.view
		l.viewing.Unlock()
		if v == nil {
			select {
			case <-l.opened:
			case <-ctx.Done():
			}
			continue
		}
		if err := l.read(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// read follows the queue for v.
func (l *Log) read(ctx context.Context, v *view) error {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-v.unneeded:
			cancel()
		case <-ctx.Done():
		}
	})
	defer waiting.Wait()
	defer cancel()
	live := false
	take := func(line []byte) {
		o, err := decode(line, l.opts.Secret, time.Now())
		if err != nil {
			l.stats.skipped.Add(1)
			return
		}
		l.show(v, o, live || o.At >= v.began)
	}
	// Some may not be in the queue yet, perhaps since before a restart.
	if err := l.opts.Box.Unpublished(take); err != nil {
		l.log.Warn("unpublished outcomes of this bot cannot be read", "err", err)
	}
	return l.opts.Queue.Follow(ctx, take, func(whole bool) {
		live = true
		v.mu.Lock()
		defer v.mu.Unlock()
		v.whole = whole
		select {
		case <-v.caught: // by an earlier Run
		default:
			close(v.caught)
		}
	})
}

// showWritten passes written outcomes of this bot to watchers, without waiting
// to read them back.
func (l *Log) showWritten(list []*Outcome) {
	l.viewing.Lock()
	v := l.view
	l.viewing.Unlock()
	if v == nil {
		return
	}
	for _, o := range list {
		l.show(v, *o, true)
	}
}

// show adds o to v, and passes it to the watchers if news is set and it changes
// the outcome.
func (l *Log) show(v *view, o Outcome, news bool) {
	l.showing.Lock()
	defer l.showing.Unlock()
	v.mu.Lock()
	o, changed := v.index.add(o)
	news = news || v.partial
	v.mu.Unlock()
	if !changed || !news {
		return
	}
	l.viewing.Lock()
	fns := slices.Collect(maps.Keys(l.watches))
	l.viewing.Unlock()
	for _, fn := range fns {
		(*fn)(o)
	}
}

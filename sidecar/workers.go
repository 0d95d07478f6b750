package sidecar

import (
	"context"
	"runtime"
	"sync"
)

// maxWaiting is how many messages wait in all chats together; beyond it the
// readers of the queues wait too. It is above what one reader may hold
// unsettled, so that it only stops floods from outside the queues' windows.
const maxWaiting = 2000

// workers run the work of each chat in order, and of different chats side by
// side. A chat's goroutine lives while it has work.
type workers struct {
	room chan struct{} // one token per waiting piece of work
	all  sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]func(context.Context) // a chat with a goroutine has an entry; guarded by mu
}

func newWorkers() *workers {
	return &workers{room: make(chan struct{}, maxWaiting), waiting: map[string][]func(context.Context){}}
}

// do enters work for a chat and returns; it waits only for room. After ctx is
// done work is dropped.
func (w *workers) do(ctx context.Context, chat string, work func(context.Context)) {
	select {
	case w.room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	w.mu.Lock()
	queue, running := w.waiting[chat]
	w.waiting[chat] = append(queue, work)
	if !running {
		w.all.Go(func() { w.run(ctx, chat) })
	}
	w.mu.Unlock()
	if !running {
		runtime.Gosched() // the bot's message first, then the reader's next request to the queue
	}
}

func (w *workers) run(ctx context.Context, chat string) {
	for {
		w.mu.Lock()
		queue := w.waiting[chat]
		if len(queue) == 0 {
			delete(w.waiting, chat)
			w.mu.Unlock()
			return
		}
		w.waiting[chat] = queue[1:]
		w.mu.Unlock()
		if ctx.Err() == nil {
			queue[0](ctx)
		}
		<-w.room
	}
}

// wait waits until no chat has work.
func (w *workers) wait() { w.all.Wait() }

// chatLocks let one at a time do something with a chat.
type chatLocks struct {
	mu    sync.Mutex
	locks map[string]*chatLock // of the chats in use; guarded by mu
}

type chatLock struct {
	sync.Mutex
	users int // guarded by chatLocks.mu
}

func (l *chatLocks) lock(chat string) (unlock func()) {
	l.mu.Lock()
	c := l.locks[chat]
	if c == nil {
		c = &chatLock{}
		l.locks[chat] = c
	}
	c.users++
	l.mu.Unlock()
	c.Lock()
	return func() {
		c.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if c.users--; c.users == 0 {
			delete(l.locks, chat)
		}
	}
}

// chatCounts counts something for each chat.
type chatCounts struct {
	mu     sync.Mutex
	counts map[string]int // only those above 0; guarded by mu
}

func (c *chatCounts) add(chat string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[chat]++
}

func (c *chatCounts) remove(chat string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[chat]--; c.counts[chat] <= 0 {
		delete(c.counts, chat)
	}
}

func (c *chatCounts) any(chat string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[chat] > 0
}

// inFlight knows what to settle together with a message that is on its way: its
// repeats. Settled earlier, a repeat could be the only copy left, and a crash
// would lose the message.
type inFlight struct {
	mu     sync.Mutex
	settle map[string][]func() // guarded by mu
}

func (f *inFlight) begin(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle[key] = nil
}

// follow settles with the message key, and reports whether that is on its way.
func (f *inFlight) follow(key string, settle func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	others, ok := f.settle[key]
	if ok {
		f.settle[key] = append(others, settle)
	}
	return ok
}

func (f *inFlight) has(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.settle[key]
	return ok
}

func (f *inFlight) end(key string) {
	f.mu.Lock()
	others := f.settle[key]
	delete(f.settle, key)
	f.mu.Unlock()
	for _, settle := range others {
		settle()
	}
}

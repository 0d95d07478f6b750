package redisrelay

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

const saveAfter = 200 * time.Millisecond // how old the stored position may get

// cursor is what a reader keeps on disk.
type cursor struct {
	place
	// History is the last entry that was there before this agent's first start.
	History redislink.EntryID `json:"history,omitzero"`
	// Waits: the stream was never seen, and History is when this agent began to wait for Redis.
	Waits bool `json:"waits,omitempty"`
}

// load reads the stored position. A file that cannot be understood means the stream's beginning: what
// was handled already is a repeat, nothing is lost.
func (r *reader) load() error {
	data, err := safefile.ReadFile(r.root, r.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.since = cursor{History: redislink.EntryID{MS: uint64(time.Now().UnixMilli())}, Waits: true}
		return nil
	case err != nil:
		return err
	case json.Unmarshal(data, &r.since) != nil:
		r.since = cursor{}
		r.q.log.Error("the stored position is unreadable; reading the stream from its beginning", "file", r.file)
	}
	r.at, r.waited = r.since.place, r.since.Waits
	r.window = relay.NewWindow(r.at)
	return nil
}

// store writes the position if it moved. It is called by one goroutine at a time.
func (r *reader) store() error {
	r.saver.Saved()
	r.q.mu.Lock()
	c := r.since
	r.q.mu.Unlock()
	if c.place = r.window.Position(); c == r.saved {
		return nil
	}
	data, err := json.Marshal(c)
	if err == nil {
		err = safefile.ReplaceFast(r.root, r.file, data)
	}
	if err != nil && !r.broken {
		r.q.log.Error("the position cannot be stored; a restart repeats messages", "file", r.file, "err", err)
	}
	if r.broken = err != nil; !r.broken {
		r.saved = c
	}
	return err
}

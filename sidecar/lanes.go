package sidecar

import (
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"feishu-relay/internal/redislink"
	"feishu-relay/mailbox"
	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/outbox"
	"feishu-relay/relay/redisrelay"
)

// The queues.
const (
	outboundQueue = "outbound" // bots' messages
	inboundQueue  = "inbound"  // users' messages, for transcripts only
	outcomesQueue = "outcomes" // what became of bots' messages at each bot, for watchers only
	marksQueue    = "marks"    // settings of groups, notices, commands and their answers

	// How much of the outcomes is kept: lines on Redis, and bytes in each of two files.
	maxOutcomes     = 20_000
	maxOutcomesFile = 8 << 20
	// The same of the marks. What they say of settings is in each sidecar's records, and what
	// people see of them beside the transcripts.
	maxMarks     = 20_000
	maxMarksFile = 8 << 20
)

// lanes are the queues, each with the outbox in which own lines wait for it.
type lanes struct {
	*base
	bots, users, outcomes, marks lane
}

// lane is one queue in both directions.
type lane struct {
	name       string
	queue      relay.Backend
	box        *outbox.Box
	folder     string // of the box
	publishing publishing
}

func openLanes(b *base) (*lanes, error) {
	ls := &lanes{base: b, bots: lane{name: outboundQueue}, users: lane{name: inboundQueue},
		outcomes: lane{name: outcomesQueue}, marks: lane{name: marksQueue}}
	for l := range ls.all() {
		if err := ls.open(l, outbox.Options{Secret: string(b.cfg.RelaySecret), KeepFor: b.cfg.MaxAge,
			Sync:   b.cfg.OutboxSync,
			Logger: b.log}); err != nil {
			return nil, err
		}
	}
	if err := ls.open(&ls.outcomes, outcome.BoxOptions(string(b.cfg.RelaySecret), b.cfg.MaxAge,
		b.log.With("queue", outcomesQueue))); err != nil {
		return nil, err
	}
	return ls, ls.open(&ls.marks, outbox.Options{Secret: string(b.cfg.RelaySecret), KeepFor: marksAgain,
		Size: maxMarksFile,
		Sync: b.cfg.OutboxSync, At: markedAt, Logger: b.log.With("queue", marksQueue)})
}

func (ls *lanes) open(l *lane, o outbox.Options) (err error) {
	if l.queue, err = ls.openQueue(l.name); err != nil {
		return err
	}
	ls.onClose(l.queue.Close)
	root, err := ls.folder("outbox", ls.name(), l.name)
	if err != nil {
		return err
	}
	l.folder = root.Name()
	if l.box, err = outbox.Open(root, o); err != nil {
		return err
	}
	ls.onClose(l.box.Close)
	return nil
}

// all lists the lanes of messages.
func (ls *lanes) all() iter.Seq[*lane] { return slices.Values([]*lane{&ls.bots, &ls.users}) }

func (ls *lanes) openQueue(name string) (relay.Backend, error) {
	if ls.cfg.Backend == "redis" {
		if _, err := redislink.ParseURL(string(ls.cfg.RedisURL)); err != nil {
			return nil, &setting{fmt.Errorf("REDIS_URL: %w", err)}
		}
		o := redisrelay.Options{URL: string(ls.cfg.RedisURL), Channel: redisChannel(ls.cfg.RelayChannel, name),
			Agent: string(ls.cfg.Agent), Dir: ls.cfg.RelayDir, Logger: ls.log}
		switch name {
		case outcomesQueue:
			o.Channel, o.Stream, o.MaxLen = ls.cfg.RelayChannel, ls.cfg.RelayChannel+":outcomes", maxOutcomes
		case marksQueue:
			o.Channel, o.Stream, o.MaxLen = ls.cfg.RelayChannel, ls.cfg.RelayChannel+":steer:marks", maxMarks
		}
		return redisrelay.New(o)
	}
	o := filerelay.Options{Dir: ls.cfg.RelayDir, Queue: name, Agent: string(ls.cfg.Agent), Logger: ls.log}
	switch name {
	case outcomesQueue:
		o.Capped, o.RotateSize = true, maxOutcomesFile
	case marksQueue:
		o.Dir, o.Capped, o.RotateSize = filepath.Join(ls.cfg.RelayDir, "steer"), true, maxMarksFile
	}
	return filerelay.New(o)
}

// redisChannel is the channel of a queue: RELAY_CHANNEL for the bots' messages,
// and the one beside it for the users'.
func redisChannel(channel, queue string) string {
	if queue == outboundQueue {
		return channel
	}
	if base, ok := strings.CutSuffix(channel, ":"+outboundQueue); ok {
		return base + ":" + queue
	}
	return channel + ":" + queue
}

// UsersChannel is where on Redis users' messages go, beside RELAY_CHANNEL.
func UsersChannel(relayChannel string) string { return redisChannel(relayChannel, inboundQueue) }

// counted is what a queue has counted since start, by its name in metrics and
// status.
func counted(q relay.Backend) map[string]float64 {
	switch q := q.(type) {
	case *filerelay.Queue:
		st := q.Stats()
		return map[string]float64{"skipped": float64(st.Skipped), "salvaged": float64(st.Salvaged),
			"truncated": float64(st.Truncated),
			"late":      float64(st.Late), "rotated": float64(st.Rotated), "removed": float64(st.Removed)}
	case *redisrelay.Queue:
		st := q.Stats()
		return map[string]float64{"foreign": float64(st.Foreign), "foreign_dropped": float64(st.ForeignDropped),
			"trimmed": float64(st.Trimmed), "junk": float64(st.Junk), "reconnects": float64(st.Reconnects), "restarts": float64(st.Restarts)}
	}
	return nil
}

// queues is what waits in the relay's queues, for the agent's card.
func (ls *lanes) queues() (q mailbox.Queues) {
	for l := range ls.all() {
		st := l.queue.Status()
		q.Lag += st.Lag
		q.Unsettled += st.Unsettled
		q.Outbox += l.box.Stats().Pending
	}
	return q
}

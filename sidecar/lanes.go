package sidecar

import (
	"fmt"
	"strings"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/outbox"
	"feishu-relay/relay/redisrelay"
)

func (s *Sidecar) openLanes() error {
	s.bots = lane{name: outboundQueue, way: s.metrics.measured(s.botsWay())}
	s.users = lane{name: inboundQueue, way: s.metrics.measured(s.usersWay())}
	for _, l := range []*lane{&s.bots, &s.users} {
		var err error
		if l.queue, err = s.openQueue(l.name); err != nil {
			return err
		}
		s.onClose(l.queue.Close)
		root, err := s.folder("outbox", safefile.Name(string(s.cfg.Agent)), l.name)
		if err != nil {
			return err
		}
		l.folder = root.Name()
		if l.box, err = outbox.Open(root, outbox.Options{Secret: string(s.cfg.RelaySecret), KeepFor: s.cfg.MaxAge,
			Sync: s.cfg.OutboxSync, Logger: s.log}); err != nil {
			return err
		}
		s.onClose(l.box.Close)
	}
	return nil
}

func (s *Sidecar) openQueue(name string) (relay.Backend, error) {
	if s.cfg.Backend == "redis" {
		if _, err := redisrelay.ParseURL(string(s.cfg.RedisURL)); err != nil {
			return nil, &setting{fmt.Errorf("REDIS_URL: %w", err)}
		}
		return redisrelay.New(redisrelay.Options{URL: string(s.cfg.RedisURL), Channel: redisChannel(s.cfg.RelayChannel, name),
			Agent: string(s.cfg.Agent), Dir: s.cfg.RelayDir, Logger: s.log})
	}
	return filerelay.New(filerelay.Options{Dir: s.cfg.RelayDir, Queue: name, Agent: string(s.cfg.Agent), Logger: s.log})
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

// OutcomesKey is the stream on Redis in which sidecars tell what became of messages.
func OutcomesKey(relayChannel string) string { return relayChannel + ":outcomes" }

// counted is what a queue has counted since start, by its name in metrics and
// status.
func counted(q relay.Backend) map[string]float64 {
	switch q := q.(type) {
	case *filerelay.Queue:
		st := q.Stats()
		return map[string]float64{"skipped": float64(st.Skipped), "salvaged": float64(st.Salvaged), "truncated": float64(st.Truncated),
			"late": float64(st.Late), "rotated": float64(st.Rotated), "removed": float64(st.Removed)}
	case *redisrelay.Queue:
		st := q.Stats()
		return map[string]float64{"foreign": float64(st.Foreign), "foreign_dropped": float64(st.ForeignDropped), "trimmed": float64(st.Trimmed),
			"junk": float64(st.Junk), "reconnects": float64(st.Reconnects), "restarts": float64(st.Restarts)}
	}
	return nil
}

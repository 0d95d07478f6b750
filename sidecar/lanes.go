package sidecar

import (
	"fmt"
	"path/filepath"
	"strings"

	"feishu-relay/core"
	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/redisrelay"
)

// How much of the side lane is kept: entries on Redis, and bytes in each of two files.
const (
	maxSide     = 20_000
	maxSideFile = 8 << 20
)

// laneNames are the queues between the sidecars, in the order in which they are shown.
var laneNames = []string{core.Outbound, core.Inbound, core.Side}

func (s *Sidecar) openLanes() (err error) {
	s.lanes = map[string]relay.Backend{}
	for _, name := range laneNames {
		if s.lanes[name], err = s.openQueue(name); err != nil {
			return err
		}
		s.onClose(s.lanes[name].Close)
	}
	return nil
}

func (b *base) openQueue(name string) (relay.Backend, error) {
	if b.cfg.Backend == "redis" {
		if _, err := redislink.ParseURL(string(b.cfg.RedisURL)); err != nil {
			return nil, &setting{fmt.Errorf("REDIS_URL: %w", err)}
		}
		o := redisrelay.Options{URL: string(b.cfg.RedisURL), Channel: redisChannel(b.cfg.RelayChannel, name),
			Agent: string(b.cfg.Agent), Dir: b.cfg.RelayDir, Logger: b.log}
		if name == core.Side {
			o.Channel, o.Stream, o.MaxLen = b.cfg.RelayChannel, SideKey(b.cfg.RelayChannel), maxSide
		}
		return redisrelay.New(o)
	}
	o := filerelay.Options{Dir: b.cfg.RelayDir, Queue: name, Agent: string(b.cfg.Agent), Sync: b.cfg.Sync, Logger: b.log}
	if name == core.Side {
		o.Dir, o.Capped, o.RotateSize = filepath.Join(b.cfg.RelayDir, name), true, maxSideFile
	}
	return filerelay.New(o)
}

// redisChannel is the channel of a queue: RELAY_CHANNEL for the bots' messages, and the one beside it for the people's.
func redisChannel(channel, queue string) string {
	if queue == core.Outbound {
		return channel
	}
	if base, ok := strings.CutSuffix(channel, ":"+core.Outbound); ok {
		return base + ":" + queue
	}
	return channel + ":" + queue
}

// SideKey is the stream on Redis of what the sidecars of a group agree on and show it.
func SideKey(relayChannel string) string { return relayChannel + ":" + core.Side }

// counted is what a queue has counted since start, by its name in metrics and status.
func counted(q relay.Backend) map[string]float64 {
	switch q := q.(type) {
	case *filerelay.Queue:
		st := q.Stats()
		return map[string]float64{"skipped": float64(st.Skipped), "salvaged": float64(st.Salvaged),
			"truncated": float64(st.Truncated), "late": float64(st.Late), "rotated": float64(st.Rotated),
			"removed": float64(st.Removed)}
	case *redisrelay.Queue:
		st := q.Stats()
		return map[string]float64{"foreign": float64(st.Foreign), "foreign_dropped": float64(st.ForeignDropped),
			"trimmed": float64(st.Trimmed), "junk": float64(st.Junk), "reconnects": float64(st.Reconnects),
			"restarts": float64(st.Restarts)}
	}
	return nil
}

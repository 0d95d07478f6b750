//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/group"
	"feishu-relay/relay"
)

// Whatever is set while bots talk, they come to an end after a person's last message: no limit goes
// beyond STEER_MAX_DEPTH, and nothing that stopped goes on by itself.
func TestTalksEndWhateverIsSet(t *testing.T) {
	t.Parallel()
	const most = 4
	c := newCircle(t, "file")
	var workers []*worker
	var all []*running
	var said, last atomic.Int64
	for _, agent := range []string{"agent_a", "agent_b"} {
		w := newWorker(t, nil)
		cfg := c.config(agent)
		cfg.InjectURL, cfg.Limits.MaxDepth, cfg.Steer.MaxDepth = w.hook.URL, 2, most
		workers, all = append(workers, w), append(all, c.start(cfg))
	}
	c.agree("they know each other", withBots(2), all...)
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	next := func() int64 { // a new time: what is said in a person's millisecond does not count as said after it
		for {
			before := last.Load()
			if at := max(before+1, time.Now().UnixMilli()); last.CompareAndSwap(before, at) {
				return at
			}
		}
	}
	say := func(s *running, to relay.MessageID) {
		body := fmt.Sprintf(`{"chat_id":"oc_1","content":"and you?","parent_id":%q,"message_id":"om_bot_%d","ts":%d}`,
			to, said.Add(1), next())
		if status, answer := c.posts(s, "/v1/outbound", body); status != http.StatusAccepted {
			t.Errorf("a send is answered %d: %s", status, answer)
		}
	}
	for i, w := range workers { // each answers whatever it is given
		go func() {
			for {
				select {
				case in := <-w.heard:
					say(all[i], relay.MessageID(in.Metadata["message_id"].(string)))
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	stopped := func() (n int) {
		for _, s := range all {
			shown := c.metrics(s)
			for _, why := range []relay.Reason{relay.MaxDepth, relay.Paused, relay.Muted, relay.Budget, relay.JudgeNo} {
				n += int(series(shown, `feishu_relay_stopped_total{reason="`+string(why)+`"}`))
			}
		}
		return n
	}
	settings := []func() string{
		func() string { return fmt.Sprintf(`{"limit":%d}`, 1+rand.IntN(most)) },
		func() string { return fmt.Sprintf(`{"judge":%t}`, rand.IntN(2) == 0) },
		func() string { return fmt.Sprintf(`{"paused":%t}`, rand.IntN(4) == 0) },
		func() string { return fmt.Sprintf(`{"muted":{"agent_b":%t}}`, rand.IntN(4) == 0) },
		func() string { return fmt.Sprintf(`{"budget":%d}`, 100+rand.IntN(100)) },
	}
	for round := range 8 {
		c.patch(all[0], `{"paused":false,"muted":{"agent_b":false},"answer":"all"}`)
		c.agree("all are heard", func(g group.Group) bool {
			return g.Settings.Paused == nil && len(g.Settings.Muted) == 0
		}, all...)
		before, stops := said.Load(), stopped()
		id := fmt.Sprintf("om_person_%d", round)
		at := next()
		for _, s := range all {
			c.reportsAt(s, id, "talk", at)
		}
		say(all[0], relay.MessageID(id))
		for range 6 {
			c.patch(all[rand.IntN(2)], settings[rand.IntN(len(settings))]())
		}
		c.until("the talk ends", func() bool { return stopped() > stops })
		if n := said.Load() - before; n > most {
			t.Errorf("the bots said %d messages after a person, at most %d may be", n, most)
		}
	}
}

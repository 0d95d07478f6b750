//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
)

// told is how often bots were told that a message is for them.
type told struct {
	mu    sync.Mutex
	times map[string]int // guarded by mu
}

// insists reports a person's message to a sidecar until that answers, over its ends, as a bot does.
func (o *told) insists(ctx context.Context, p *process, chat, id string, said time.Time) error {
	body := fmt.Sprintf(`{"chat_id":%q,"content":"who answers?","sender":"Tom","message_id":%q,"ts":%d}`, chat, id, said.UnixMilli())
	for {
		url, err := p.url(ctx)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/inbound", bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			var answer relay.Sent
			err = json.NewDecoder(resp.Body).Decode(&answer)
			_ = resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusAccepted && answer.ForMe != nil {
				if *answer.ForMe {
					o.mu.Lock()
					defer o.mu.Unlock()
					o.times[id]++
				}
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		breathe(ctx)
	}
}

// Of eight bots one is given each message of a person, while their sidecars are killed again and again.
func TestOneOfEightUnderKills(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ctx := limited(t)
			c := newCircle(t, backend)
			var all []*process
			for i := range 8 {
				cfg := c.config(fmt.Sprintf("agent_%c", 'a'+i))
				cfg.Steer.AnswerMode = "one"
				p := newProcess(t, c.dir, cfg)
				p.start("")
				all = append(all, p)
			}
			for _, p := range all {
				c.until("all know each other", func() bool {
					return strings.Count(httpGet(t, p, "/v1/groups/oc_1"), `"online":true`) == len(all)
				})
			}
			got := &told{times: map[string]int{}}
			kills, last := 0, ""
			var ids []string
			const messages = 6
			for i := range messages {
				dies := i == 1 || i == 3 // the first one dies when it has claimed the message
				if dies {
					all[0].kill()
					all[0].start("claimed:1")
					_, err := all[0].url(ctx)
					must(t, err)
				}
				report := func() (id string, done chan struct{}) {
					id, said, done := fmt.Sprintf("om_%d", len(ids)), time.Now(), make(chan struct{})
					ids = append(ids, id)
					var reports sync.WaitGroup
					for _, p := range all {
						reports.Go(func() {
							if err := got.insists(ctx, p, "oc_1", id, said); err != nil {
								t.Errorf("%s is not told of %s: %v", p.agent, id, err)
							}
						})
					}
					go func() {
						reports.Wait()
						close(done)
					}()
					return id, done
				}
				id, done := report()
				for dies && !all[0].isDead() {
					c.until("it dies, or lost its turn", func() bool { return all[0].isDead() || closed(done) })
					if !all[0].isDead() {
						_, done = report()
					}
				}
				if dies {
					all[0].start("")
				}
				if i == messages-1 { // at any time
					last = id
					for _, victim := range []int{0, 1 + rand.IntN(len(all)-1)} {
						all[victim].kill()
						all[victim].start("")
						kills++
					}
				}
				<-done
			}
			got.mu.Lock()
			defer got.mu.Unlock()
			double := 0
			for _, id := range ids {
				switch n := got.times[id]; {
				case n == 0:
					t.Errorf("nobody was given %s", id)
				case n > 1 && id != last:
					t.Errorf("%d bots were given %s, though none died behind a delivery", n, id)
				case n > 1:
					double += n - 1
				}
			}
			if double > kills {
				t.Errorf("%d messages too many were given at %d kills", double, kills)
			}
		})
	}
}

// A claim that an earlier process of the same sidecar left counts as another's: the others may take the message over
// before this process has delivered it.
func TestClaimOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	var all []*running
	for _, agent := range []string{"agent_a", "agent_b"} {
		cfg := c.config(agent)
		cfg.Steer.AnswerMode = "one"
		all = append(all, c.start(cfg))
	}
	c.agree("they know each other", withBots(2), all...)
	queue, err := filerelay.New(filerelay.Options{Dir: filepath.Join(c.dir, "relay"), Queue: "outbound", Agent: "test"})
	must(t, err)
	defer queue.Close()
	if _, err := queue.Claim(t.Context(), "feishu/oc_1/one/om_1#0", "agent_a/earlier", time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := c.reports(all[0], "om_1", "who answers?"); got.ForMe == nil || !*got.ForMe {
		t.Errorf("the only bot that is told is answered %+v", got)
	}
	holder, err := queue.Claim(t.Context(), "feishu/oc_1/one/om_1#1", "test", time.Hour)
	if must(t, err); holder == "test" {
		t.Error("the message was delivered by the claim of the earlier process")
	}
}

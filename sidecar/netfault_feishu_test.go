//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/netfault"
	"feishu-relay/internal/test/verify"
	"feishu-relay/policy"
	"feishu-relay/transcript"
)

// botPatience is how long a bot waits for Feishu's answer before it sends again.
const botPatience = 2 * time.Second

// Whatever happens between the sidecars and Feishu: what a bot says is in the group once and unchanged,
// as if there were no sidecar, the other bot is given it as one message, in the transcript it is in order, and what
// people say reaches both when the fault has ended. (The bots' SDK calls their handlers in any order.)
func TestNetworkFaultsBeforeFeishu(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	rounds, long := faultRounds(t)
	n, apps := newTenant(t, feishusim.Options{AckTimeout: time.Second, Redeliver: slices.Repeat([]time.Duration{time.Second}, 300),
		Client: feishusim.ClientConfig{ReconnectCount: -1, ReconnectInterval: 1, ReconnectNonce: 1, PingInterval: 1}},
		feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	path := netfault.Start(t, n.url.Host)
	n.url = &url.URL{Scheme: "http", Host: path.Addr()}
	var talkers []*talker
	for i, app := range apps {
		cfg := n.config("agent_" + string(rune('a'+i)))
		cfg.Limits = policy.Limits{MaxDepth: 1_000_000, Threshold: 1_000_000, Check: true}
		s := n.start(cfg)
		talkers = append(talkers, &talker{n: n, b: n.bot(app, "http://"+s.Gateway().String(), nil)})
		n.connected(s)
	}
	talkers[0].other, talkers[1].other = talkers[1], talkers[0]
	n.says("hello") // each sidecar has seen the group
	for _, s := range talkers {
		n.hears(s.b, "hello")
	}
	ctx := roundsLimit(t, 10*rounds)
	talking, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	for _, s := range talkers {
		parts.Go(func() { s.talk(talking, ctx) })
	}
	faults := netfault.Faults
	if !long {
		faults = slices.DeleteFunc(slices.Clone(faults), func(f netfault.Fault) bool { return f.Name != "reset" && f.Name != "latency" })
	}
	for range rounds {
		for _, f := range faults {
			begun := [2]int64{talkers[0].said.Load(), talkers[1].said.Load()}
			failed := [2]int64{talkers[0].failed.Load(), talkers[1].failed.Load()}
			must(t, path.Begin(f))
			for i, s := range talkers {
				n.until("BotA and BotB speak, or cannot", func() bool {
					return !f.Stops && s.said.Load() >= begun[i]+2 || s.failed.Load() >= failed[i]+2
				})
			}
			text := "to all, during " + f.Name
			n.says(text)
			path.End()
			ended := time.Now()
			for i, s := range talkers {
				begun[i] = s.said.Load()
			}
			for i, s := range talkers {
				n.until("BotA and BotB are given what the other says", func() bool { return s.heard() >= begun[1-i]+2 })
			}
			passed := time.Since(ended)
			for _, s := range talkers {
				n.until(s.b.app.Name+" is given what a person says", func() bool { return s.b.count(text) > 0 })
			}
			t.Logf("%s: messages passed %s after its end, a person's %s", f.Name, passed.Round(10*time.Millisecond),
				time.Since(ended).Round(10*time.Millisecond))
		}
	}
	stop()
	parts.Wait()
	var inGroup []string
	for _, m := range n.Messages(n.chat) {
		inGroup = append(inGroup, m.Text)
	}
	for _, s := range talkers {
		said := s.texts(int(s.said.Load()))
		n.until("all was given", func() bool { return s.other.heard() >= s.said.Load() })
		n.until("all is in the transcript", func() bool { return len(s.own(n.transcript())) >= len(said) })
		given := s.other.given()
		slices.Sort(given)
		for place, texts := range map[string][]string{"the group": inGroup, "the transcript": n.transcript(), "what the other bot was given": given} {
			if diff := cmp.Diff(said, s.own(texts)); diff != "" {
				t.Errorf("%s, of %s (-said +is):\n%s", place, s.b.app.Name, diff)
			}
		}
		t.Logf("%s said %d messages; %d calls failed", s.b.app.Name, len(said), s.failed.Load())
	}
}

// transcript is the texts of the group's transcript.
func (n *tenant) transcript() (texts []string) {
	for line := range linesOf(n.t, filepath.Join(n.dir, "transcripts", "feishu_"+n.chat+".jsonl")) {
		var e transcript.Entry
		must(n.t, json.Unmarshal(line, &e))
		texts = append(texts, e.Content)
	}
	return texts
}

// talker is a bot that speaks without a pause.
type talker struct {
	n            *tenant
	b            *sdkBot
	other        *talker
	said, failed atomic.Int64 // messages that Feishu has taken; calls without an answer
}

func (s *talker) prefix() string { return s.b.app.Name + " says " }

func (s *talker) texts(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("%s%04d &amp; 请看 😀", s.prefix(), i+1))
	}
	return texts
}

// own are the texts that s said.
func (s *talker) own(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !strings.HasPrefix(text, s.prefix()) })
}

// heard is how many messages of the other one s was given.
func (s *talker) heard() int64 { return int64(len(s.other.own(s.given()))) }

// given are the texts that s was given, each once for a message_id: where the connection ends before the bot has
// acknowledged an event, it is given that again, and knows it by its message_id.
func (s *talker) given() (texts []string) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	seen := map[string]bool{}
	for _, h := range s.b.all {
		if !seen[h.ID] {
			seen[h.ID] = true
			texts = append(texts, h.Text)
		}
	}
	return texts
}

// talk says one message after the other until talking is done: each until Feishu has taken it, as frameworks
// do, with one uuid. It is at most 20 messages ahead of the other bot.
func (s *talker) talk(talking, ctx context.Context) {
	for talking.Err() == nil {
		i := int(s.said.Load())
		if s.other.heard() < int64(i)-20 {
			breathe(ctx)
			continue
		}
		text := s.texts(i + 1)[i]
		for s.say(ctx, text) != nil {
			s.failed.Add(1)
			if ctx.Err() != nil {
				s.n.t.Errorf("%s could not say %q", s.b.app.Name, text)
				return
			}
			breathe(ctx)
		}
		s.said.Add(1)
	}
}

func (s *talker) say(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, botPatience)
	defer cancel()
	_, err := larktest.Send(ctx, s.b.client, s.n.chat, "text", quoted("text", text), text[:20])
	return err
}

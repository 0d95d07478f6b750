//go:build unix

package sidecar_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/sidecar"
)

// A bot that has no sidecar is heard where Feishu delivers it natively: through
// the same policy, once, as a bot.
func TestNativeBotWithoutSidecar(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{},
		feishusim.App{Name: "BotA", Scopes: append(feishusim.DefaultScopes(), feishusim.ScopeGroupBots)}, feishusim.App{Name: "Stranger"})
	a, botA := n.behind(apps[0], n.config("agent_a"), nil)
	stranger := n.bot(apps[1], n.url.String(), nil)
	asked := n.says("@Stranger tell them", apps[1].ID)
	n.reply(stranger, heard{ID: asked}, apps[0].ID, "the build is red, can you look?")
	h := n.hears(botA, "the build is red")
	if h.SenderType != "bot" || !n.mentioned(botA, h) || h.SenderID != n.OpenID(apps[0].ID, apps[1].ID) {
		t.Errorf("BotA was given %+v", h)
	}
	for last, i := h.ID, 0; i < 3; i++ { // it goes on talking to itself: depth, not the platform, ends that
		text := fmt.Sprintf("still red, what about job %d?", i)
		n.reply(stranger, heard{ID: last}, "", text)
		last = n.sees(text).ID
	}
	n.until("the stranger is stopped", func() bool { return n.stops(a, "max_depth") > 0 })
	n.eachOnce(botA)
}

// A bot whose sidecar is gone is heard as soon as one that never had any.
func TestNativeBotWhoseSidecarIsGone(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{},
		feishusim.App{Name: "BotA", Scopes: hearsBots}, feishusim.App{Name: "BotB"}, feishusim.App{Name: "Stranger"})
	a, b := n.start(n.steered("agent_a")), n.start(n.steered("agent_b"))
	botA, botB := n.bots(apps, a, b)
	n.reply(botB, heard{ID: n.says("go")}, "", "over the relay")
	n.until("BotA's sidecar knows BotB's open_id", func() bool {
		files, _ := filepath.Glob(filepath.Join(n.dir, "relay", "feishu", "agent_a", "*.jsonl"))
		var book []byte
		for _, file := range files {
			data, _ := os.ReadFile(file)
			book = append(book, data...)
		}
		id := n.OpenID(apps[0].ID, apps[1].ID)
		return regexp.MustCompile(`"open_id": ?"` + id + `"[^}]*"agent_name": ?"agent_b"`).Match(book)
	})
	b.stop()
	n.until("it is known that BotB's sidecar is gone", func() bool {
		return slices.ContainsFunc(a.Status().Agents, func(s sidecar.AgentStatus) bool { return s.Agent == "agent_b" && !s.Online })
	})
	botB, stranger := n.bot(apps[1], n.url.String(), nil), n.bot(apps[2], n.url.String(), nil)
	n.reply(botB, heard{ID: n.says("and now?")}, "", "without a sidecar")
	n.sees("without a sidecar")
	for _, text := range []string{"the stranger's first", "the stranger's second"} { // each waits for a copy
		n.reply(stranger, heard{ID: n.says("who else?")}, "", text)
		n.hears(botA, text)
	}
	botA.mu.Lock()
	if !slices.ContainsFunc(botA.all, func(h heard) bool { return strings.Contains(h.Text, "without a sidecar") }) {
		t.Errorf("BotA heard %+v", botA.all)
	}
	botA.mu.Unlock()
	n.reply(botB, heard{ID: n.says("go on")}, "", "still without") // its id is known as before
	n.hears(botA, "still without")
	if all := n.get(a, "/v1/transcripts/feishu/"+n.chat+"?q=still+without"); !strings.Contains(all, `"sender":"agent_b"`) {
		t.Errorf("the transcript has %s", all)
	}
}

// A group that a bot is not in reaches neither it nor its transcripts; one that
// it joins does from then on, and one that it leaves no longer.
func TestGroupsFollowMembership(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	cfgA, cfgB := n.config("agent_a"), n.config("agent_b")
	cfgA.TranscriptDir, cfgB.TranscriptDir = filepath.Join(n.dir, "a"), filepath.Join(n.dir, "b")
	a, b := n.start(cfgA), n.start(cfgB)
	botA, botB := n.bots(apps, a, b)
	secret := n.AddGroup("Secret", n.user.ID, apps[0].ID)
	say := func(text string) heard {
		t.Helper()
		id, err := n.Say(secret.ID, n.user.ID, text)
		must(t, err)
		return heard{ID: id, Chat: secret.ID}
	}
	n.reply(botA, say("BotB is not here"), "", "a secret, shall we go on?")
	n.until("BotB's sidecar asked Feishu", func() bool { return n.stops(b, "not_a_member") == 2 })
	if _, err := os.Stat(filepath.Join(cfgB.TranscriptDir, "feishu_"+secret.ID+".jsonl")); err == nil {
		t.Error("BotB's sidecar has a transcript of a group that its bot is not in")
	}
	must(t, n.Join(secret.ID, apps[1].ID))
	joined := say("now it is")
	n.hears(botB, "now it is") // else its sidecar may still think that it is not in the group
	n.reply(botA, joined, apps[1].ID, "welcome, what do you think?")
	n.hears(botB, "welcome")
	must(t, n.Leave(secret.ID, apps[1].ID))
	n.until("BotB's sidecar knows that it left", func() bool { return !strings.Contains(n.get(b, "/v1/transcripts"), secret.ID) })
	n.reply(botA, say("gone again"), apps[1].ID, "are you still here?")
	n.until("it is stopped", func() bool {
		return n.stops(b, "not_a_member") >= 4
	})
	n.eachOnce(botB)
	botB.mu.Lock()
	defer botB.mu.Unlock()
	for _, h := range botB.all {
		if strings.Contains(h.Text, "secret, shall") || strings.Contains(h.Text, "still here") {
			t.Errorf("BotB heard %q", h.Text)
		}
	}
}

// While Redis is gone the bot's calls are answered as ever; what it said
// arrives when Redis is back.
func TestGatewayWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	config := func(agent string) sidecar.Config {
		cfg := n.config(agent)
		cfg.Backend, cfg.RedisURL, cfg.RelayChannel = "redis", sidecar.Secret(srv.URL()), "test:outbound"
		return cfg
	}
	a, b := n.start(config("agent_a")), n.start(config("agent_b"))
	botA, botB := n.bots(apps, a, b)
	n.reply(botA, heard{ID: n.says("hello")}, apps[1].ID, "before, can you hear me?")
	n.hears(botB, "before")
	srv.Kill()
	n.reply(botA, heard{ID: n.says("and now?")}, apps[1].ID, "meanwhile, can you hear me?")
	n.sees("meanwhile") // Feishu has it: the bot's call went through
	must(t, srv.Restart())
	n.hears(botB, "meanwhile")
	n.eachOnce(botB)
}

// stops is how many messages a sidecar has stopped for a reason: what a bot said
// and what a person did.
func (n *tenant) stops(s *running, reason string) (count int) {
	return int(series(n.metrics(s), `feishu_relay_stopped_total{reason="`+reason+`"}`))
}

func (n *tenant) dirEntries(name string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(n.dir, name))
	must(n.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A disk that cannot be used at the start costs the bot nothing: its traffic passes, and the
// sidecar runs as soon as the disk can be used.
func TestGatewayBeforeTheDisk(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	_, botB := n.behind(apps[1], n.config("agent_b"), nil)
	cfg := n.config("agent_a")
	cfg.Gateway.Addr, cfg.ListenAddr = freeAddr(t), freeAddr(t)
	cfg.TranscriptDir = filepath.Join(n.dir, "of-a")
	must(t, os.WriteFile(cfg.TranscriptDir, []byte("in the way"), 0o600))
	stop := n.runGuarded(cfg)
	defer stop()
	n.until("the gateway answers", func() bool { return dials(cfg.Gateway.Addr) })
	botA := n.bot(apps[0], "http://"+cfg.Gateway.Addr, nil)
	must(t, n.WaitConnected(limited(t), apps[0].ID, 1))
	n.says("@BotA say it", apps[0].ID)
	n.reply(botA, n.hears(botA, "say it"), apps[1].ID, "said without a disk, can you hear it?")
	n.sees("said without a disk")
	if resp, err := http.Get("http://" + cfg.ListenAddr + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("it does not say that it is alive: %v %v", resp, err)
	}
	if resp, err := http.Get("http://" + cfg.ListenAddr + "/readyz"); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("it does not say that it is not ready: %v %v", resp, err)
	}
	must(t, os.Remove(cfg.TranscriptDir))
	n.until("the sidecar runs", func() bool {
		resp, err := http.Get("http://" + cfg.ListenAddr + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	must(t, n.WaitConnected(limited(t), apps[0].ID, 1))
	n.says("@BotA say more", apps[0].ID)
	n.reply(botA, n.hears(botA, "say more"), apps[1].ID, "said with a disk, can you hear it?")
	n.hears(botB, "said with a disk")
	n.eachOnce(botB)
}

// What a bot without an app in Feishu says is no message there. A reply to it
// goes to the message that it answers itself, or to the person's newest.
func TestReplyToABotWithoutAnApp(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.config("agent_a")
	cfg.Limits.MaxDepth, cfg.Limits.Threshold = 9, 9 // what is said within a millisecond has no order
	a, botA := n.behind(apps[0], cfg, nil)
	asked := n.says("who reviews this?", apps[0].ID)
	n.hears(botA, "who reviews")
	n.says("and when?", apps[0].ID)
	n.hears(botA, "and when")
	replied := func(said map[string]any, about string) {
		said["relay_msg_id"], said["chat_id"], said["sender_agent_name"] = fmt.Sprint("reviewer:", said["content"]), n.chat, "reviewer"
		n.publishes(said)
		text := fmt.Sprint(said["content"])
		n.reply(botA, n.hears(botA, text), "", "thanks for "+text)
		if got := n.sees("thanks for " + text); got.ParentID != about {
			t.Errorf("the reply to %q went to %s, want %s", text, got.ParentID, about)
		}
	}
	replied(map[string]any{"content": "me", "parent_id": asked}, asked)
	newest := n.says("good, and the tests?", apps[0].ID)
	n.hears(botA, "the tests")
	n.until("it is recorded, which the bot does not wait for", func() bool {
		return strings.Contains(n.get(a, "/v1/transcripts/feishu/"+n.chat), "the tests")
	})
	replied(map[string]any{"content": "tomorrow"}, newest)
}

//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/group"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// circle is sidecars of bots in one group that have the local API alone.
type circle struct {
	*tenant
	redis  *redistest.Server // nil: files
	secret sidecar.Secret
}

func newCircle(t *testing.T, backend string) *circle {
	c := &circle{tenant: &tenant{t: t, dir: t.TempDir(), chat: "oc_1"}}
	if backend == "redis" {
		c.redis = redistest.Start(t)
	}
	must(t, os.WriteFile(filepath.Join(c.dir, "groups.json"), []byte(`{"groups":{"oc_1":{"members":["agent_a","agent_b",
		"agent_c","agent_d","agent_e","agent_f","agent_g","agent_h"]}}}`), 0o600))
	return c
}

func (c *circle) config(agent string) sidecar.Config {
	cfg := c.steered(agent)
	home := filepath.Join(c.dir, agent)
	cfg.BotName, cfg.Gateway.Addr, cfg.BaseURL, cfg.DataDir = "Bot "+agent, "", nil, home
	cfg.TranscriptDir, cfg.RelayChannel, cfg.RelaySecret = filepath.Join(home, "transcripts"), "test:outbound", c.secret
	if c.redis != nil {
		cfg.Backend, cfg.RedisURL, cfg.RelayDir = "redis", sidecar.Secret(c.redis.URL()), filepath.Join(home, "relay")
	}
	return cfg
}

// raw is a client of the Redis.
func (c *circle) raw() *redis.Client {
	opts, err := redis.ParseURL(c.redis.URL())
	must(c.t, err)
	raw := redis.NewClient(opts)
	c.t.Cleanup(func() { _ = raw.Close() })
	return raw
}

// records are those of the chat on the side lane.
func (c *circle) records() []group.Record {
	if c.redis == nil {
		return sideRecords(filepath.Join(c.dir, "relay"), "oc_1")
	}
	entries, err := c.raw().XRange(c.t.Context(), sidecar.SideKey("test:outbound"), "-", "+").Result()
	must(c.t, err)
	var lines []string
	for _, e := range entries {
		lines = append(lines, fmt.Sprint(e.Values["payload"]))
	}
	return recordsIn(lines, "oc_1")
}

// injects writes lines to the side lane as they are.
func (c *circle) injects(lines ...string) {
	c.t.Helper()
	if c.redis != nil {
		raw := c.raw()
		for _, line := range lines {
			must(c.t, raw.XAdd(c.t.Context(), &redis.XAddArgs{Stream: sidecar.SideKey("test:outbound"), Values: []any{"payload", line}}).Err())
		}
		return
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "relay", "side", "side.jsonl"), os.O_APPEND|os.O_WRONLY, 0o600)
	must(c.t, err)
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	must(c.t, err)
	must(c.t, f.Close())
}

func (n *tenant) steeredGroup(s *running) (g group.Group) {
	n.t.Helper()
	body := n.get(s, "/v1/groups/"+n.chat)
	if err := json.Unmarshal([]byte(body), &g); err != nil {
		n.t.Fatalf("GET /v1/groups: %v: %s", err, body)
	}
	return g
}

// patch changes settings over the API.
func (n *tenant) patch(s *running, body string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodPatch, "http://"+s.Addr().String()+"/v1/groups/"+n.chat,
		strings.NewReader(body))
	must(n.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(n.t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		n.t.Fatalf("PATCH %s answered %d", body, resp.StatusCode)
	}
}

// reports has a bot report what a person said, and returns the answer.
func (n *tenant) reports(s *running, id, text string) relay.Sent {
	n.t.Helper()
	return n.reportsAt(s, id, text, time.Now().UnixMilli())
}

// reportsAt does so for a message of that time, in ms.
func (n *tenant) reportsAt(s *running, id, text string, at int64) (answer relay.Sent) {
	n.t.Helper()
	status, body := n.posts(s, "/v1/inbound", fmt.Sprintf(`{"chat_id":%q,"content":%q,"sender":"Tom","message_id":%q,"ts":%d}`,
		n.chat, text, id, at))
	if status != http.StatusAccepted || json.Unmarshal([]byte(body), &answer) != nil {
		n.t.Fatalf("POST /v1/inbound answered %d: %s", status, body)
	}
	return answer
}

// agree waits until all sidecars have the same version of the settings, in which want holds.
func (n *tenant) agree(what string, want func(g group.Group) bool, all ...*running) {
	n.t.Helper()
	n.until(what, func() bool {
		first := n.steeredGroup(all[0])
		for _, s := range all {
			if g := n.steeredGroup(s); !want(g) || g.Version != first.Version {
				return false
			}
		}
		return true
	})
}

func withBots(n int) func(group.Group) bool {
	return func(g group.Group) bool { return len(g.Bots) == n }
}

// Changes at several sidecars at once all hold, everywhere, for sidecars that were away, over
// restarts, and over the end of what Redis had.
func TestSettingsAreKept(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			c := newCircle(t, backend)
			a, b := c.start(c.config("agent_a")), c.start(c.config("agent_b"))
			c.agree("they know each other", withBots(2), a, b)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.patch(a, `{"limit":5}`)
			}()
			c.patch(b, `{"budget":7}`)
			<-done
			both := func(g group.Group) bool { return g.Settings.Limit == 5 && g.Settings.Budget == 7 }
			c.agree("both changes hold", both, a, b)

			b.stop()
			c.patch(a, `{"judge":false}`)
			if got := c.reports(a, "om_1", "/relay pause 2h"); got.ForMe == nil || *got.ForMe || got.Reason != relay.Command {
				t.Errorf("a command is answered %+v", got)
			}
			all := func(g group.Group) bool { return both(g) && !g.Settings.Judge && g.Settings.Paused != nil }
			b = c.start(c.config("agent_b"))
			c.agree("the one that was away learns them", all, a, b)

			a.stop()
			a = c.start(c.config("agent_a"))
			if g := c.steeredGroup(a); !all(g) {
				t.Errorf("after a restart %+v", g.Settings)
			}
			c.agree("a restart keeps them", all, a, b)
			fresh := c.start(c.config("agent_c"))
			c.agree("a new one gets them", all, a, b, fresh)
			if c.redis == nil {
				return
			}
			for _, s := range []*running{a, b, fresh} {
				s.stop()
			}
			a, b = c.start(c.config("agent_a")), c.start(c.config("agent_b"))
			c.agree("they go on", all, a, b)
			must(t, c.raw().FlushAll(t.Context()).Err())
			fresh = c.start(c.config("agent_d"))
			c.agree("a new one gets them though Redis was emptied", all, a, b, fresh)
			for _, s := range []*running{a, b, fresh} {
				s.stop()
			}
			must(t, c.raw().FlushAll(t.Context()).Err())
			fresh = c.start(c.config("agent_e"))
			a = c.start(c.config("agent_a"))
			c.agree("one that was started again restores them", all, a, fresh)
		})
	}
}

// Lines that nobody signed, or with another secret, and junk change nothing, and keep nobody from
// reading on.
func TestJunkMarksChangeNothing(t *testing.T) {
	t.Parallel()
	const secret = "the secret of all sidecars"
	now := time.Now().UnixMilli()
	command := func(id, chat string, values map[string]string) []byte {
		set := []string{}
		for key, v := range values {
			set = append(set, fmt.Sprintf(`%q:{"at":%d,"id":%q,"v":%s}`, key, now, id, v))
		}
		return fmt.Appendf(nil, `{"channel":"feishu","chat_id":%q,"agent":"agent_z","records":[{"kind":"command","id":%q,"act":"set",`+
			`"message_id":"notice:x","set":{%s},"ts":%d}]}`, chat, id, strings.Join(set, ","), now)
	}
	good := map[string]string{"limit": "9", "paused": `{"until":null}`}
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			signed := func(line []byte, secret string) string {
				line, err := relay.Sign(line, secret)
				must(t, err)
				return string(line)
			}
			c := newCircle(t, backend)
			c.secret = secret
			a, b := c.start(c.config("agent_a")), c.start(c.config("agent_b"))
			c.agree("they know each other", withBots(2), a, b)
			before := c.steeredGroup(a)
			c.injects("", "no JSON", "[]", "{}", "null", `{"id":1}`, "\x00\xff\xfe", strings.Repeat("x", 300<<10),
				string(command("x1", "oc_1", good)), signed(command("x1", "oc_1", good), "another secret"),
				strings.Replace(signed(command("x1", "oc_1", good), secret), `"v":9`, `"v":8`, 1),
				signed(command("", "oc_1", good), secret), signed(command("x2", "oc_2", good), secret),
				signed(command("x3", "oc_1", map[string]string{"limit": "-9"}), secret),
				signed(command("x4", "oc_1", map[string]string{"answer": `"nobody"`, "limit": `"9"`,
					"threshold": "1.5", "judge": `"yes"`, "in:agent_y": "7", "muted:agent_a": `"x"`}), secret))
			c.patch(a, `{"budget":7}`)
			c.agree("what comes behind is read", func(g group.Group) bool { return g.Settings.Budget == 7 }, a, b)
			b.stop()
			b = c.start(c.config("agent_b"))
			for _, s := range []*running{a, b} {
				g := c.steeredGroup(s)
				if g.Settings.Limit != before.Settings.Limit || g.Settings.Paused != nil || len(g.Settings.Muted) > 0 ||
					g.Settings.Answer != before.Settings.Answer || len(g.Bots) != 2 {
					t.Errorf("junk changed %+v to %+v", before, g)
				}
			}
			c.until("the status says something of wrong signatures", func() bool {
				return strings.Contains(c.get(a, "/v1/status"), `"part":"bad_signature"`)
			})
		})
	}
}

// Two sidecars with different environments do the same, and say that they differ.
func TestEnvironmentsThatDiffer(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	one := c.config("agent_b")
	one.Steer.AnswerMode, one.Steer.Budget = "one", 30
	a, b := c.start(c.config("agent_a")), c.start(one)
	c.agree("the first one's holds", func(g group.Group) bool {
		return len(g.Bots) == 2 && g.Settings.Answer == group.ModeAll && g.Sources["answer"] == group.FromEnv && g.Settings.Budget == 0
	}, a, b)
	for _, s := range []*running{a, b} {
		c.until("the status says so", func() bool {
			return strings.Contains(c.get(s, "/v1/status"), `"agent_name":"agent_b","answer_mode":"one","group_budget":30`)
		})
	}
	c.patch(b, `{"answer":"one"}`)
	c.agree("a change holds over both", func(g group.Group) bool { return g.Settings.Answer == group.ModeOne }, a, b)
}

// commands reports a command of a person to a sidecar.
func (c *circle) commands(s *running, id, text, sender, union string, at time.Time) {
	c.t.Helper()
	status, body := c.posts(s, "/v1/inbound", fmt.Sprintf(`{"chat_id":"oc_1","content":%q,"sender":%q,"sender_union_id":%q,"message_id":%q,"ts":%d}`,
		text, sender, union, id, at.UnixMilli()))
	if status != http.StatusAccepted || !strings.Contains(body, `"for_me":false`) || !strings.Contains(body, string(relay.Command)) {
		c.t.Errorf("%s is answered %d: %s", text, status, body)
	}
}

// answered waits for the answer to a command in the marks of a sidecar.
func (c *circle) answered(agent, command string) (text string) {
	c.t.Helper()
	c.until("the command is answered", func() bool {
		for _, r := range c.records() {
			if r.Kind == group.KindNotice && string(r.Of) == command {
				text = r.Text
				return true
			}
		}
		return false
	})
	return text
}

// Only who is on the list may change a group, by one of their ids; a sidecar that does not know the person
// leaves the command to one that does.
func TestWhoMaySteer(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	listed := func(agent string) sidecar.Config {
		cfg := c.config(agent)
		cfg.Steer.By = "ou_tom_at_a, on_tom"
		return cfg
	}
	a, b := c.start(listed("agent_a")), c.start(listed("agent_b"))
	c.agree("they know each other", withBots(2), a, b)
	now := time.Now()
	c.commands(b, "om_1", "/relay limit 9", "ou_tom_at_b", "", now) // an id of another app
	c.commands(a, "om_1", "/relay limit 9", "ou_tom_at_a", "", now)
	c.agree("the one that knows him does it", func(g group.Group) bool { return g.Settings.Limit == 9 }, a, b)
	c.commands(b, "om_2", "/relay limit 8", "ou_tom_at_b", "on_tom", now.Add(time.Millisecond))
	c.agree("his union_id counts", func(g group.Group) bool { return g.Settings.Limit == 8 }, a, b)
	c.commands(b, "om_3", "/relay limit 7", "ou_jerry", "on_jerry", now.Add(2*time.Millisecond))
	c.answered("agent_a", "om_3")
	c.commands(a, "om_4", "/relay limit 6", "ou_tom_at_a", "", now.Add(-time.Hour)) // older than RELAY_MAX_AGE
	c.commands(a, "om_5", "/relay status", "ou_jerry", "", now.Add(3*time.Millisecond))
	c.answered("agent_b", "om_5")
	c.agree("nothing else has changed", func(g group.Group) bool { return g.Settings.Limit == 8 }, a, b)
}

// A bot that the groups file or a relayed message names commands nothing, whatever is left out of what is said of it;
// what it says is no person's.
func TestAKnownBotSteersNothing(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	must(t, os.WriteFile(filepath.Join(c.dir, "groups.json"), []byte(`{"agents":[{"name":"Filed",
		"feishu_open_id":"ou_filed","app_id":"cli_filed"}],"groups":{"oc_1":{"members":["agent_b","agent_c"]}}}`), 0o600))
	b := c.start(c.config("agent_b"))
	now := time.Now().UnixMilli()
	c.publishes(map[string]any{"relay_msg_id": "om_relayed", "chat_id": "oc_1", "content": "Shall we?",
		"sender_agent_name": "agent_c", "sender_bot_open_id": "ou_relayed", "sender_app_id": "cli_relayed", "ts": now})
	c.until("it is recorded", func() bool { return c.shownOf(b, "om_relayed").Content != "" })
	for i, bot := range []string{"ou_filed", "cli_filed", "ou_relayed", "cli_relayed", "ou_tom"} {
		said := fmt.Sprintf(`{"chat_id":"oc_1","content":"/relay limit 7","role":"user","sender_id":%q,"message_id":"om_%d","ts":%d}`,
			bot, i, now+int64(i))
		for _, route := range []string{"/v1/decide", "/v1/inbound"} {
			if _, body := c.posts(b, route, said); strings.Contains(body, `"reason":"command"`) != (bot == "ou_tom") {
				t.Errorf("the command of %s at %s is answered %s", bot, route, body)
			}
		}
	}
	c.agree("the person's command holds", func(g group.Group) bool { return g.Settings.Limit == 7 }, b)
	all := c.get(b, "/v1/transcripts/feishu/oc_1")
	if people, bots := strings.Count(all, `"role":"user"`), strings.Count(all, `"role":"assistant"`); people > 0 || bots != 5 {
		t.Errorf("%d messages of people and %d of bots are recorded: %s", people, bots, all)
	}
}

//go:build unix

package sidecar_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/group"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

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

// A bot that the groups file or a relayed message names commands nothing, whatever is left out of what is said of it; what
// it says is no person's.
func TestAKnownBotSteersNothing(t *testing.T) {
	t.Parallel()
	c := newCircle(t, "file")
	must(t, os.WriteFile(filepath.Join(c.dir, "groups.json"), []byte(`{"agents":[{"name":"Filed","feishu_open_id":"ou_filed",
		"app_id":"cli_filed"}],"groups":{"oc_1":{"members":["agent_b","agent_c"]}}}`), 0o600))
	b := c.start(c.config("agent_b"))
	now := time.Now().UnixMilli()
	c.publishes(map[string]any{"relay_msg_id": "om_relayed", "chat_id": "oc_1", "content": "Shall we?", "sender_agent_name": "agent_c",
		"sender_bot_open_id": "ou_relayed", "sender_app_id": "cli_relayed", "ts": now})
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

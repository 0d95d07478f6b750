//go:build unix

package sidecar_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redistest"
	"feishu-relay/sidecar"
)

const redisPage = "../docs/redis.md"

// The user of docs/redis.md may do all that sidecars do, is refused nothing that they try, and
// has no right that could harm others.
func TestUserOfTheDocs(t *testing.T) {
	t.Parallel()
	t.Run("messages", func(t *testing.T) {
		t.Parallel()
		srv := redistest.StartRestricted(t, redisPage)
		c := newCluster(t, setup{redis: srv.RestrictedURL(), separate: true, bots: 2, webhooks: []int{1},
			change: func(_ int, cfg *sidecar.Config) { cfg.RelayChannel = "nanobot:feishu:outbound" }})
		ctx := limited(t)
		c.talk(ctx, 20, "oc_1", "oc_2")
		c.verify(ctx)
		srv.Refused(t)
		opts, err := redis.ParseURL(srv.URL())
		must(t, err)
		raw := redis.NewClient(opts)
		defer raw.Close()
		for _, key := range []string{"nanobot:feishu:outbound:log", sidecar.OutcomesKey("nanobot:feishu:outbound")} {
			if n, err := raw.XLen(t.Context(), key).Result(); err != nil || n == 0 {
				t.Errorf("%s has %d entries, %v: the test shows nothing", key, n, err)
			}
		}
		hasLittle(t, raw)
	})
	t.Run("steering and presence", func(t *testing.T) {
		t.Parallel()
		srv := redistest.StartRestricted(t, redisPage)
		groupsOverHTTP(t, srv.RestrictedURL())
		srv.Refused(t)
	})
	t.Run("tasks", func(t *testing.T) {
		t.Parallel()
		srv := redistest.StartRestricted(t, redisPage)
		handOver(t, srv.RestrictedURL(), "claimed")
		srv.Refused(t)
	})
}

// hasLittle looks at what the user is granted.
func hasLittle(t *testing.T, raw *redis.Client) {
	t.Helper()
	rules := redistest.UserRules(t, redisPage)
	for _, broad := range []string{"allkeys", "allchannels", "allcommands", "nopass", "~*", "&*"} {
		if slices.Contains(rules, broad) {
			t.Errorf("the rule %s is granted", broad)
		}
	}
	granted := 0
	for _, category := range []string{"admin", "dangerous"} {
		bad, err := raw.Do(t.Context(), "ACL", "CAT", category).StringSlice()
		must(t, err)
		for _, rule := range rules {
			command, ok := strings.CutPrefix(rule, "+")
			if ok && (strings.HasPrefix(command, "@") || slices.Contains(bad, command)) {
				t.Errorf("%s is granted, all of a category or one of @%s", rule, category)
			}
			if ok {
				granted++
			}
		}
	}
	if granted == 0 {
		t.Error("no commands are granted: the test shows nothing")
	}
}

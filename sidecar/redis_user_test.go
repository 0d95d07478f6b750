//go:build unix

package sidecar_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/txtar"

	"feishu-relay/internal/test/redistest"
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
		issuesWhatThePageNames(t, srv)
		srv.Refused(t)
		opts, err := redis.ParseURL(srv.URL())
		must(t, err)
		raw := redis.NewClient(opts)
		defer raw.Close()
		for _, key := range []string{"nanobot:feishu:outbound:log", sidecar.SideKey("nanobot:feishu:outbound")} {
			if n, err := raw.XLen(t.Context(), key).Result(); err != nil || n == 0 {
				t.Errorf("%s has %d entries, %v: the test shows nothing", key, n, err)
			}
		}
		hasLittle(t, raw)
	})
	t.Run("steering and presence", func(t *testing.T) {
		t.Parallel()
		srv := redistest.StartRestricted(t, redisPage)
		path := filepath.Join("testdata", "script", "group-api.txtar")
		archive, err := txtar.ParseFile(path)
		must(t, err)
		script, err := parseScript(archive)
		must(t, err)
		script.channel = "nanobot:feishu:outbound"
		newStory(t, script, redisOwn, srv.RestrictedURL()).tell(path)
		issuesWhatThePageNames(t, srv)
		srv.Refused(t)
	})
	t.Run("tasks", func(t *testing.T) {
		t.Parallel()
		srv := redistest.StartRestricted(t, redisPage)
		handOver(t, srv.RestrictedURL(), "claimed")
		issuesWhatThePageNames(t, srv)
		srv.Refused(t)
	})
}

// issuesWhatThePageNames compares the commands that sidecars gave a server with the table of docs/redis.md.
func issuesWhatThePageNames(t *testing.T, srv *redistest.Server) {
	t.Helper()
	named := redistest.PageCommands(t, redisPage)
	for _, command := range srv.Commands(t) {
		if !slices.Contains(named, command) {
			t.Errorf("sidecars use %s, which the table of %s lacks", command, redisPage)
		}
	}
}

// The user of docs/redis.md has the rights to the commands of the table there, and to no other.
func TestUserHasTheCommandsOfTheTable(t *testing.T) {
	t.Parallel()
	named := redistest.PageCommands(t, redisPage)
	rules := redistest.UserRules(t, redisPage)
	free := []string{"auth", "info|memory", "info"} // the first needs no right, and the others can be missed
	for _, command := range named {
		if !slices.Contains(rules, "+"+command) && !slices.Contains(free, command) {
			t.Errorf("the user lacks +%s", command)
		}
	}
	for _, rule := range rules {
		if command, ok := strings.CutPrefix(rule, "+"); ok && !slices.Contains(named, command) {
			t.Errorf("the table lacks %s", command)
		}
	}
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

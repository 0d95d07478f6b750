//go:build unix

package sidecar_test

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/browsertest"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// A group comes to life before the eyes of an operator who looks at agent_a:
// what people and bots say, what each sidecar decides, where the talk is
// stopped. The page shows what the API says, and takes nothing from the bots.
func viewStoryOverFiles(t *testing.T, browser *browsertest.Browser) {
	viewStory(t, browser, setup{change: withPresence})
}

// Over Redis, with folders of their own, agent_a's page shows what the others
// decided as well.
func viewStoryOverRedis(t *testing.T, browser *browsertest.Browser) {
	viewStory(t, browser, setup{redis: redistest.Start(t).URL(), separate: true, change: withPresence})
}

func viewStory(t *testing.T, browser *browsertest.Browser, s setup) {
	const chat = "oc_story"
	ctx := limited(t)
	c := newCluster(t, s)
	a, b, d := c.bots[0], c.bots[1], c.bots[2]
	p := view(t, browser, a, "", browsertest.Options{})
	shows(p, is("groups")+" "+is("empty"))
	shows(p, is("connection", "state", "live"))
	sameLoad := stays(t, p)

	a.hears(ctx, t, chat, "om_asks", "Tom", "@agent_a sort this, please")
	p.Click(is("group", "chat-id", chat))
	shows(p, message("om_asks")+`[data-role="user"]`)

	chip := func(id relay.MessageID, agent, tier, state string) {
		t.Helper()
		shows(p, message(id)+" "+is("outcome", "agent", agent, "tier", tier, "state", state))
	}
	a.says(ctx, t, chat, "om_first", "@agent_b please write the sort function, agent_c tests it", nil)
	chip("om_first", b.name, "threshold", "pass")
	chip("om_first", d.name, "threshold", "pass")
	b.says(ctx, t, chat, "om_second", "func sort(xs []int) is in main.go, agent_c please test it", map[string]any{"parent_id": "om_first"})
	chip("om_second", a.name, "judge", "pass")
	chip("om_second", d.name, "judge", "pass")
	d.says(ctx, t, chat, "om_third", "The tests of main.go fail at line 7, who mends that?", nil)
	chip("om_third", a.name, "hard_limit", "stop")
	chip("om_third", b.name, "hard_limit", "stop")
	shows(p, is("ended", "reason", "max_depth"))

	b.hears(ctx, t, chat, "om_again", "Tom", "@agent_a take line 7")
	shows(p, message("om_again"))
	a.says(ctx, t, chat, "om_fourth", "@agent_b line 7 is yours, please mend it", nil)
	chip("om_fourth", b.name, "threshold", "pass")
	b.says(ctx, t, chat, "om_thanks", "好的，谢谢！", nil)
	chip("om_thanks", a.name, "judge", "stop")
	chip("om_thanks", d.name, "judge", "stop")
	shows(p, is("ended", "reason", "judge_no"))

	sameAsAPI(ctx, t, p, a, chat)
	sameLoad()
	for bot, want := range map[*bot][]relay.MessageID{a: {"om_second"}, b: {"om_first", "om_fourth"}, d: {"om_first", "om_second", "om_fourth"}} {
		got := c.h.given(bot.name)
		for _, id := range want {
			if got[id] != 1 {
				t.Errorf("%s was given %s %d times, want once", bot.name, id, got[id])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s was given %v, want %v", bot.name, slices.Sorted(maps.Keys(got)), want)
		}
		if st, err := bot.status(ctx); err != nil || st.Door.Connected == nil || !*st.Door.Connected {
			t.Errorf("the stream of %s is not connected any more: %+v %v", bot.name, st.Door, err)
		}
	}
}

// shownMessage is a message as the page shows it, or as it should.
type shownMessage struct {
	ID, Role, Text string
	Depth          int
	Outcomes       []shownOutcome // by agent
}

type shownOutcome struct{ Agent, Tier, State, Reason string }

const readMessages = `[...document.querySelectorAll('[data-testid="message"]:not([data-role="notice"])')].map((m) => ({
	ID: m.dataset.messageId, Role: m.dataset.role, Text: m.querySelector('.text').textContent,
	Depth: Number(m.querySelector('[data-depth]')?.dataset.depth ?? 0),
	Outcomes: [...m.querySelectorAll('[data-testid="outcome"]')].map(({ dataset: d }) => ({ Agent: d.agent, Tier: d.tier ?? '', State: d.state, Reason: d.reason ?? '' })).sort((a, b) => (a.Agent < b.Agent ? -1 : 1)),
}))`

// sameAsAPI compares what the page shows of a chat with what the API says of it.
func sameAsAPI(ctx context.Context, t *testing.T, p *browsertest.Page, b *bot, chat string) {
	t.Helper()
	var told struct {
		Entries []struct {
			transcript.Entry
			Depth int
		}
	}
	must(t, b.get(ctx, "/v1/transcripts/feishu/"+url.PathEscape(chat)+"?limit=1000", &told))
	var became struct{ Outcomes []httpapi.Outcome }
	must(t, b.get(ctx, "/v1/outcomes?chat_id="+url.QueryEscape(chat), &became))
	var want []shownMessage
	for _, e := range told.Entries {
		if e.Role == transcript.RoleNotice {
			continue // what the sidecars showed is no message
		}
		m := shownMessage{ID: e.MessageID, Role: e.Role, Text: e.Content, Depth: e.Depth, Outcomes: []shownOutcome{}}
		for _, o := range became.Outcomes {
			if string(o.RelayMsgID) == e.MessageID {
				m.Outcomes = append(m.Outcomes, asShown(o))
			}
		}
		slices.SortFunc(m.Outcomes, func(a, b shownOutcome) int { return strings.Compare(a.Agent, b.Agent) })
		want = append(want, m)
	}
	if diff := cmp.Diff(want, browsertest.Eval[[]shownMessage](p, readMessages)); diff != "" {
		t.Errorf("the page differs from the API (-API +page):\n%s", diff)
	}
}

// asShown is how the page has to show an outcome.
func asShown(o httpapi.Outcome) shownOutcome {
	s := shownOutcome{Agent: string(o.Agent), State: "wait", Reason: string(o.Stopped)}
	if o.Decision != nil {
		s.Tier = string(o.Decision.Tier)
		if s.Reason == "" {
			s.Reason = o.Decision.Reason
		}
	}
	switch {
	case o.Stopped == relay.NotMentioned || o.Stopped == relay.NotAMember || o.Stopped == relay.Duplicate:
		s.State = "skip"
	case o.Stopped != "":
		s.State = "stop"
	case o.Delivered != 0:
		s.State = "pass"
	}
	return s
}

package viewer_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/chromedp"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/internal/test/browsertest"
)

// What seldom happens to a page that is open for days, before a stand-in for the
// sidecar. How it works with a real one, TestViewer of package sidecar tells.
func TestPage(t *testing.T) {
	browser := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, *browsertest.Browser){
		"a gap larger than what is repeated": pageAfterAGap,
		"messages while it connects":         pageWhileItConnects,
		"a sidecar that is away at first":    pageOfASidecarAway,
		"a first page that fails":            pageThatFails,
		"a page that is left often":          pageLeftOften,
		"a record that was cut":              pageOfACutRecord,
		"outcomes of older messages":         pageOfOlderOutcomes,
		"outcomes that come late":            pageOfLateOutcomes,
		"another group meanwhile":            pageOfAnotherGroup,
		"messages that grow":                 pageThatGrows,
		"a find that is chosen":              pageWithAFind,
		"names and sentences":                pageOfNames,
		"who gave no answer":                 pageOfSilence,
		"a bot that is away":                 pageOfAnAbsentBot,
		"an agent whose bot is away":         pageOfAnAbsentAgent,
		"several ends in a row":              pageOfManyEnds,
		"what is open at first":              pageAtFirst,
		"behind a reverse proxy":             pageBehindAProxy,
		"last hour":                          pageLastHour,
		"what ended a talk":                  pageOfAnEnd,
		"agents in no group":                 pageOfAgentsInNoGroup,
		"a round that stopped twice":         pageOfTwoStops,
		"thousands of groups":                pageOfManyGroups,
		"nobody looks":                       pageNobodyLooksAt,
		"outcomes in any order":              pageOfOutcomesInAnyOrder,
		"memory":                             pageMemory,
		"steering":                           pageSteering,
		"a group that is fixed":              pageOfAFixedGroup,
		"notices":                            pageOfNotices,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, browser)
		})
	}
}

// A browser has six connections to a host, and keeps pages for going back.
func pageLeftOften(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1)
	p := browser.Open(t, s.url, browsertest.Options{})
	for range 8 {
		p.Wait("the connection", isLive)
		p.Do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.url))
	}
	p.Wait("the connection", isLive)
	p.Do(chromedp.Navigate("about:blank"))
	browsertest.Eval[bool](p, `(setTimeout(() => history.back()), true)`)
	p.Wait("the connection again", isLive)
	s.say("oc_x", 1, 1)
	p.Wait("what is said now", `document.querySelector('[data-testid=group]').innerText.includes('message 1')`)
}

// shown are the ids of all messages of the open conversation, in view or not.
const shown = `[...document.querySelectorAll('#talk-list [data-message-id]')].map((e) => e.dataset.messageId)`

// wantShown waits until the messages om_<from> … om_<to> are shown, and checks
// that there are no others.
func wantShown(t *testing.T, p *browsertest.Page, from, to int) {
	t.Helper()
	p.Wait(fmt.Sprintf("message %d", to), fmt.Sprintf(`%s.at(-1) === 'om_%d'`, shown, to))
	got := browsertest.Eval[[]string](p, shown)
	for i, id := range got {
		if want := fmt.Sprintf("om_%d", to+1-len(got)+i); id != want {
			t.Fatalf("message %d of %d that are shown is %s, want %s", i, len(got), id, want)
		}
	}
	if len(got) < to+1-from {
		t.Errorf("%d messages are shown, want at least %d", len(got), to+1-from)
	}
}

const isLive = `document.querySelector('[data-testid=connection]').dataset.state === 'live'`

// hash goes to a place of the page.
func hash(p *browsertest.Page, place string) {
	browsertest.Eval[string](p, "location.hash = "+browsertest.JS(place))
}

func pageAfterAGap(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.say("oc_x", 0, 10)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Expect("503")
	p.Expect("ERR_")
	p.Wait("the connection", isLive)
	wantShown(t, p, 0, 9)
	s.say("oc_x", 10, 1)
	wantShown(t, p, 0, 10)
	s.goAway("/v1/events")
	p.Wait("that it is lost", "!("+isLive+")")
	s.say("oc_x", 11, 600)
	s.change(func() { s.kept1st = 511 }) // the last hundred are repeated
	s.comeBack()
	p.Wait("the connection again", isLive)
	p.Wait("the newest", shown+`.at(-1) === 'om_610' && `+shown+`.length > 190`)
	wantShown(t, p, 411, 610)
}

func pageWhileItConnects(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 10)
	release := s.hold("/v1/events")
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	wantShown(t, p, 0, 9)
	s.record("oc_x", 10, 1) // nobody watches yet
	release()
	p.Wait("the connection", isLive)
	wantShown(t, p, 0, 10)
}

func pageOfASidecarAway(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 10)
	s.goAway("/v1")
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Expect("503")
	p.Wait("that it is away", `document.querySelector('[data-testid=connection]').dataset.state === 'waiting'`)
	s.comeBack()
	p.Wait("the group", `document.querySelector('[data-testid=group]')`)
	wantShown(t, p, 0, 9)
}

func pageThatFails(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 10)
	s.goAway("/v1/transcripts/")
	p := browser.Open(t, s.url+"/", browsertest.Options{})
	p.Expect("503")
	p.Wait("the connection", isLive)
	hash(p, "#/groups/feishu/oc_x")
	top := `document.querySelector('#talk-top').innerText`
	p.Wait("why there is nothing", top+`.includes('try later')`)
	s.say("oc_x", 10, 1)
	wantShown(t, p, 10, 10)
	if got := browsertest.Eval[string](p, top); !strings.Contains(got, "try later") {
		t.Errorf("above the only message stands %q, want what failed", got)
	}
	s.comeBack()
	p.Click("#talk-top button")
	p.Wait("all", shown+`.length === 11`)
	wantShown(t, p, 0, 10)
}

func pageOfACutRecord(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1000)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Expect("410")
	wantShown(t, p, 800, 999)
	p.Wait("the connection", isLive)
	s.change(func() { s.gone = true })
	const top = `document.querySelector('#talk-top')`
	p.Wait("older messages to be asked for", `(document.querySelector('#talk-scroll').scrollTo(0, -1e9), `+top+`.innerText.includes('begin anew'))`)
	if got := browsertest.Eval[string](p, top+`.innerText`); strings.Contains(got, "20,000") {
		t.Errorf("above the messages stands %q, but the page has not as many", got)
	}
	s.change(func() { s.gone = false })
	p.Click("#talk-top button")
	p.Wait("that it begins anew", `!`+top+`.innerText.includes('begin anew')`)
	wantShown(t, p, 800, 999)
}

func pageOfOlderOutcomes(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 600)
	s.change(func() {
		for i := range 4500 { // more than are read at first, on bots' messages
			s.outcomes["oc_x"] = append(s.outcomes["oc_x"], object{"agent": fmt.Sprintf("agent_%d", i%15), "channel": "feishu", "chat_id": "oc_x",
				"relay_msg_id": fmt.Sprintf("om_%d", i/15*2+1), "at": began, "stopped": "expired"})
		}
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	wantShown(t, p, 400, 599)
	hash(p, "#/groups/feishu/oc_x/om_101")
	p.Wait("what became of an older message", `document.querySelectorAll('[data-message-id=om_101] [data-testid=outcome]').length === 15`)
	wantShown(t, p, 0, 599)
}

// Where Redis is away, a sidecar waits for it before it tells outcomes.
func pageOfLateOutcomes(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 2)
	s.change(func() {
		s.outcomes["oc_x"] = []object{{"agent": "agent_a", "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_1", "at": began, "stopped": "expired"}}
	})
	release := s.hold("/v1/outcomes")
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	wantShown(t, p, 0, 1)
	release()
	p.Wait("what became of it", `document.querySelector('[data-message-id=om_1] [data-testid=outcome]')`)
}

// The newest message stays in view when the messages before it grow, more than a screen at once.
func pageThatGrows(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 60)
	s.change(func() {
		for i := range 60 * 12 {
			s.outcomes["oc_x"] = append(s.outcomes["oc_x"], object{"agent": fmt.Sprintf("agent_%d", i%12), "channel": "feishu", "chat_id": "oc_x",
				"relay_msg_id": fmt.Sprintf("om_%d", i/12), "at": began, "stopped": fmt.Sprintf("reason %d", i%12)})
		}
	})
	release := s.hold("/v1/outcomes")
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	wantShown(t, p, 0, 59)
	release()
	p.Wait("what became of them", `document.querySelectorAll('[data-message-id=om_59] [data-testid=outcome]').length === 12`)
	browsertest.Eval[bool](p, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`) // what has grown is laid out
	p.Wait("the end", `document.querySelector('[data-message-id=om_59]').getBoundingClientRect().bottom <= innerHeight && document.querySelector('[data-testid=newest]').hidden`)
	p.Wheel("#talk-scroll", -600)
	p.Wait("that it goes up", `!document.querySelector('[data-testid=newest]').hidden`)
}

func pageOfAnotherGroup(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x", "oc_y")
	s.record("oc_x", 0, 10)
	s.record("oc_y", 1000, 2000)
	p := browser.Open(t, s.url+"/", browsertest.Options{})
	p.Wait("the connection", isLive)
	defer s.hold("/v1/transcripts/feishu/oc_x")()
	hash(p, "#/groups/feishu/oc_x/om_5")
	p.Wait("that it is loading", `document.querySelector('#talk-top').innerText.includes('Loading')`)
	hash(p, "#/groups/feishu/oc_y")
	wantShown(t, p, 2800, 2999)
	browsertest.Eval[bool](p, `new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 100)))`)
	if asked := s.calls("before="); len(asked) > 2 {
		t.Errorf("looking for a message of the group that was left, it asked for %v", asked)
	}
	if got := browsertest.Eval[string](p, `[...document.querySelectorAll('#details:not([hidden]), [data-testid=notice]')].map((e) => e.innerText).join()`); got != "" {
		t.Errorf("of the message of the group that was left is told %q", got)
	}
}

func pageWithAFind(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1000)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	wantShown(t, p, 800, 999)
	p.Click("[data-testid=search]")
	p.Press("message 7")
	p.Wait("the search", `document.querySelector('#talk-top button') && `+shown+`.length === 0`)
	for range 3 {
		p.Wait("quiet", `document.querySelector('#talk-top button')`)
		browsertest.Eval[bool](p, `(document.querySelector('#talk-top button').click(), true)`)
	}
	p.Wait("the last search", `!document.querySelector('#talk-top').textContent.includes('Loading')`)
	p.Wait("a find", `document.querySelector('[data-message-id=om_799]')`)
	before := len(s.calls("before="))
	hash(p, "#/groups/feishu/oc_x/om_799")
	p.Wait("the message", `document.activeElement?.dataset.messageId === 'om_799'`)
	if got := browsertest.Eval[bool](p, `(([...ids]) => new Set(ids).size === ids.length)(`+shown+`)`); !got {
		t.Error("messages are shown twice")
	}
	if after := s.calls("before="); len(after) > before {
		t.Errorf("for a message that is shown it asked for %v", after[before:])
	}
}

func pageOfAnEnd(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 2)
	outcome := func(agent string, more object) object {
		o := object{"agent": agent, "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_1", "at": began}
		maps.Copy(o, more)
		return o
	}
	s.change(func() {
		s.outcomes["oc_x"] = []object{
			outcome("agent_a", object{"stopped": "not_mentioned"}),
			outcome("agent_b", object{"stopped": "bad_signature"}), // it cannot read this sender, and says nothing about the limit
			outcome("agent_c", object{"stopped": "max_depth", "decision": object{"allow": false, "tier": "hard_limit", "reason": "max_depth", "depth": 3}}),
		}
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("the end", `document.querySelector('[data-testid=ended]')`)
	p.Wait("the wrong signature", `[...document.querySelectorAll('[data-message-id=om_1] [data-testid=sentence][data-state=stop]')].some((e) => e.innerText.includes('BotB did not get this: wrong signature'))`)
	end := `document.querySelector('%s').innerText.match(/limit (\S+) reached/)[1]`
	if got := browsertest.Eval[string](p, fmt.Sprintf(end, "[data-testid=ended]")); got != "3" {
		t.Errorf("the conversation ended at %s, want 3, as agent_c says", got)
	}
	hash(p, "#/groups/feishu/oc_x/om_1")
	p.Wait("details", `document.querySelector('#details [data-state=stop] .says')`)
	if got := browsertest.Eval[string](p, `[...document.querySelectorAll('#details [data-state=stop] .says')].map((e) => e.innerText).join()`); !strings.Contains(got, "limit 3 reached") {
		t.Errorf("by the details the conversation ended so: %q, want the limit 3", got)
	}
}

// Agents that the page knows by their cards alone have the name and the colour of their own everywhere. A task's result is
// shown as a message is.
func pageOfAgentsInNoGroup(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 2)
	s.change(func() {
		for _, agent := range []string{"agent_b", "agent_c", "coder", "planner", "reviewer"} {
			card := object{"agent_id": agent, "status": "idle", "last_heartbeat": "2023-11-14T22:13:20Z"}
			if agent == "planner" {
				card["bot_name"] = "规划师"
			}
			s.cards = append(s.cards, card)
		}
		s.tasks = []object{{"id": "task_1", "direction": "sent", "peer": "planner", "state": "completed", "text": "sort",
			"result": "Done:\n```go\nfunc Sort()\n```", "updated_at": "2023-11-14T22:13:20Z"}}
	})
	p := browser.Open(t, s.url+"/#/agents", browsertest.Options{})
	p.Wait("its name, and its first character", `document.querySelector('[data-testid=agent][data-agent=planner]')?.innerText.startsWith('规\n规划师')`)
	colours := `((all) => all.length === 6 && new Set(all).size === all.length)([...document.querySelectorAll('#agents [data-testid=agent] .avatar')].map((e) => e.className.match(/hue-\d/)[0]))`
	p.Wait("a colour for each", colours)
	hash(p, "#/mailbox")
	p.Wait("its name at the task", `document.querySelector('[data-testid=task]')?.innerText.includes('规划师')`)
	p.Wait("the code of the result", `document.querySelector('[data-testid=result] pre code')?.innerText === 'func Sort()' && !document.querySelector('[data-testid=result]').innerText.includes('\u0060')`)
}

// A bot has one name everywhere, with the agent's id on hover, and what became of a message is said
// in the page's language.
func pageOfNames(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 4)
	s.change(func() {
		s.entries["oc_x"][3]["sender_name"] = "an older name"
		row := func(agent string, more object) object {
			o := object{"agent": agent, "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_3", "at": began}
			maps.Copy(o, more)
			return o
		}
		s.outcomes["oc_x"] = []object{
			row("agent_a", object{"decision": object{"allow": true, "tier": "threshold", "reason": "depth 1 <= threshold 1"}, "delivered_at": began + 106}),
			row("agent_c", object{"stopped": "max_depth", "decision": object{"allow": false, "tier": "hard_limit", "reason": "max_depth", "detail": "depth 4 >= limit 4", "depth": 4}}),
			row("agent_d", object{"decision": object{"allow": true, "tier": "judge", "judge_ms": 20}}),
		}
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	says := func(want ...string) {
		t.Helper()
		p.Wait(fmt.Sprint(want), fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('[data-message-id=om_3] [data-testid=sentence] > span')].map((e) => e.innerText.replace(/\d\d:\d\d:\d\d/, 'TIME'))) === JSON.stringify(%s)`, browsertest.JS(want)))
	}
	says("BotA got this at TIME: no answer yet", "小C did not get this: limit 4 reached", "On its way to agent_d")
	p.Wait("one name", `[...document.querySelectorAll('[data-agent=agent_b] .name')].every((e) => e.innerText === 'BotB' && e.title === 'agent_b')`)
	if got := browsertest.Eval[string](p, `document.querySelector('[data-testid=outcome][data-agent=agent_c]').title`); got != "agent_c" {
		t.Errorf("over a name stands %q, want the agent's id", got)
	}
	s.say("oc_x", 4, 1)
	says("BotA got this", "小C did not get this: limit 4 reached", "On its way to agent_d")
	hash(p, "#/groups/feishu/oc_x/om_3")
	p.Wait("what to do", `[...document.querySelectorAll('#details [data-testid=advice]')].map((e) => e.innerText).join().includes('raise the limit')`)
	if got := browsertest.Eval[string](p, `document.querySelector('#details').innerText`); strings.Contains(got, "agent_b") || !strings.Contains(got, "ms after it was said") || strings.Contains(got, "hard_limit") {
		t.Errorf("the details are %q, want the times and no raw fields", got)
	}
	p.Click("[data-testid=raw] summary")
	p.Wait("the raw fields", `document.querySelector('#details').innerText.includes('hard_limit')`)
	hash(p, "#/groups/feishu/oc_x")
	p.Press("l")
	says("BotA 已收到", "小C 没有收到：已达上限 4", "正在投递给 agent_d")
}

// Of a person's message the page says without a click which bots have it and did not answer, and which have it not.
func pageOfSilence(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1)
	s.change(func() {
		s.group["bots"] = []object{{"agent": "agent_b", "name": "BotB", "online": true}, {"agent": "agent_c", "name": "小C", "online": true},
			{"agent": "agent_d", "name": "BotD", "online": true}, {"agent": "agent_e", "name": "BotE", "online": false}}
		for _, agent := range []string{"agent_b", "agent_c"} {
			s.outcomes["oc_x"] = append(s.outcomes["oc_x"], object{"agent": agent, "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_0",
				"at": began + 500, "delivered_at": began + 500, "door": "gateway"})
		}
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("the connection", isLive)
	says := func(id string, want ...string) {
		t.Helper()
		p.Wait(fmt.Sprint(id, " ", want), fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('[data-message-id=%s] [data-testid=sentence] > span')].map((e) => e.innerText.replace(/\d\d:\d\d:\d\d/, 'TIME'))) === JSON.stringify(%s)`, id, browsertest.JS(want)))
	}
	away, unheard := "BotE did not get this: the sidecar is offline", "Not known whether BotD got this"
	says("om_0", "BotB and 小C got this at TIME: no answer yet", away, unheard)
	s.say("oc_x", 1, 1) // of agent_b
	says("om_0", "BotB got this", "小C got this at TIME: no answer yet", away, unheard)
	s.say("oc_x", 2, 1) // of a person
	says("om_0", "BotB got this", "小C got this at TIME: no answer")
	s.say("oc_x", 3, 1)
	says("om_0", "BotB got this", "小C got this at TIME: no answer")
	p.Press("l")
	says("om_0", "BotB 已收到", "小C 于 TIME 收到，没有回答")
}

// A bot that is not connected though its sidecar is online is named as that. One that went offline after it was given
// a message is not waited for.
func pageOfAnAbsentBot(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1)
	at := func(second int) int { return began + 1000*second }
	s.change(func() {
		s.group["bots"] = []object{{"agent": "agent_b", "name": "BotB", "online": false}, {"agent": "agent_c", "name": "小C", "online": true,
			"away_since": at(5)}, {"agent": "agent_d", "name": "BotD", "online": true, "away_since": at(1)}, {"agent": "agent_e", "name": "BotE", "online": true}}
		given := func(agent string, more object) {
			o := object{"agent": agent, "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_0", "at": at(2)}
			maps.Copy(o, more)
			s.outcomes["oc_x"] = append(s.outcomes["oc_x"], o)
		}
		given("agent_b", object{"delivered_at": at(2), "door": "gateway"})
		given("agent_c", object{"delivered_at": at(2), "door": "gateway"})
		given("agent_e", object{"delivered_at": at(2), "door": "gateway"})
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("the connection", isLive)
	says := func(want ...string) {
		t.Helper()
		p.Wait(fmt.Sprint(want), fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('[data-message-id=om_0] [data-testid=sentence] > span')].map((e) => e.innerText.replace(/\d\d:\d\d:\d\d/, 'TIME'))) === JSON.stringify(%s)`, browsertest.JS(want)))
	}
	says("BotB and 小C got this at TIME, then went offline", "BotE got this at TIME: no answer yet", "BotD did not get this: the bot is not connected")
	p.Press("l")
	says("BotB、小C 于 TIME 收到，随后离线", "BotE 于 TIME 收到，尚未回答", "BotD 没有收到：机器人未连接")
	p.Press("l")
	p.Click("[data-testid=steer-toggle]")
	p.Wait("the bot in the settings", `document.querySelector('[data-testid=steer-bot][data-agent=agent_c]')?.innerText.includes('bot not connected')`)
}

// The cards of the agents show a bot that is not connected.
func pageOfAnAbsentAgent(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1)
	s.change(func() {
		card := func(agent string, connected bool) object {
			return object{"agent_id": agent, "status": "idle", "last_heartbeat": "2023-11-14T22:13:20Z", "bot": object{"connected": connected, "since": "2023-11-14T22:13:20Z"}}
		}
		s.cards = []object{card("agent_b", true), card("agent_c", false)}
	})
	p := browser.Open(t, s.url+"/#/agents", browsertest.Options{})
	p.Wait("both", `document.querySelector('[data-testid=agent][data-agent=agent_b][data-state=idle]') && document.querySelector('[data-testid=agent][data-agent=agent_c][data-state=absent]')?.innerText.includes('bot not connected since')`)
}

// Messages in a row that were stopped for one reason have one line that says so, with their number.
func pageOfManyEnds(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	stop := func(i int) object {
		return object{"agent": "agent_c", "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": fmt.Sprintf("om_%d", i), "at": began + 1000*i, "stopped": "max_depth",
			"decision": object{"allow": false, "tier": "hard_limit", "reason": "max_depth", "depth": 3}}
	}
	s.record("oc_x", 0, 4)
	s.change(func() {
		for _, e := range s.entries["oc_x"][1:] {
			e["role"], e["sender"] = "assistant", "agent_b"
		}
		s.outcomes["oc_x"] = []object{stop(2), stop(3)}
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("the connection", isLive)
	ends := func(want ...string) {
		t.Helper()
		p.Wait(fmt.Sprint(want), fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('.slot')].filter((e) => e.querySelector('.ended')).map((e) => e.querySelector('.message').dataset.messageId + ' ' + (e.querySelector('.ended').innerText.match(/\d+ messages/)?.[0] ?? ''))) === JSON.stringify(%s)`, browsertest.JS(want)))
	}
	ends("om_3 2 messages")
	s.change(func() { s.kept = append(s.kept, object{"type": "outcome", "time": began, "outcome": stop(1)}) })
	ends("om_3 3 messages")
	p.Press("l")
	p.Wait("Chinese", `document.querySelector('.ended').innerText.includes('（3 条消息）')`)
}

// What became of messages at this bot in the last hour is a bar for each minute.
func pageLastHour(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 2)
	p := browser.Open(t, s.url+"/#/system", browsertest.Options{})
	shown := `document.querySelector('[data-testid=hour]')?.innerText.includes(%q)`
	p.Wait("the sums", fmt.Sprintf(shown, "7 delivered to this bot, 3 stopped"))
	p.Wait("the bars", `[...document.querySelectorAll('.hour rect')].map((r) => r.dataset.state + r.getAttribute('height')).join() === 'pass6,stop3,pass1,stop0'`)
	p.Press("l")
	p.Wait("Chinese", fmt.Sprintf(shown, "送达这个机器人 7 条，停下 3 条"))
}

// A reverse proxy may serve the page under a path of its own.
func pageBehindAProxy(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 2)
	sidecar, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(sidecar) }, FlushInterval: -1}
	proxy := httptest.NewServer(http.StripPrefix("/team/relay", forward)) // all else is not found
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	p := browser.Open(t, proxy.URL+"/team/relay/#/groups/feishu/oc_x/om_1", browsertest.Options{})
	p.Wait("the connection", isLive)
	p.Wait("the details of the message", `!document.querySelector('#details').hidden && document.querySelector('#details').innerText.includes('message 1')`)
	s.say("oc_x", 2, 1)
	wantShown(t, p, 0, 2)
}

// Without a group in the address a wide screen shows the newest one, and a phone the list.
func pageAtFirst(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_old", "oc_x")
	s.record("oc_old", 0, 2)
	s.record("oc_x", 10, 2)
	s.change(func() { s.group["last_stop"].(object)["message_id"] = "om_11" })
	p := browser.Open(t, s.url, browsertest.Options{})
	wantShown(t, p, 10, 11)
	p.Wait("whose sidecar it is", `document.querySelector('[data-testid=whose]').innerText.endsWith('BotA')`)
	stopped := `[...document.querySelectorAll('[data-testid=group-stopped]')].map((e) => e.closest('a').dataset.chatId + ': ' + e.title).join()`
	p.Wait("the group that is stopped", stopped+` === 'oc_x: limit 3 reached'`)
	s.say("oc_old", 20, 2)
	p.Wait("the other group as the newest one", `document.querySelector('[data-testid=group]').dataset.chatId === 'oc_old'`)
	s.change(func() {
		s.kept = append(s.kept, object{"type": "outcome", "time": began, "outcome": object{"agent": "agent_c", "channel": "feishu", "chat_id": "oc_old",
			"relay_msg_id": "om_21", "at": began, "stopped": "judge_no"}})
	})
	p.Wait("that it is stopped", stopped+` === 'oc_old: the judge saw nothing to answer,oc_x: limit 3 reached'`)
	wantShown(t, p, 10, 11) // what is open stays open
	s.say("oc_x", 12, 1)
	p.Wait("that the other goes on", stopped+` === 'oc_old: the judge saw nothing to answer'`)

	phone := browser.Open(t, s.url, browsertest.Options{Width: 390, Height: 844, Touch: true})
	phone.Wait("the list alone", `document.querySelector('[data-testid=group]')?.checkVisibility() && !document.querySelector('#talk').checkVisibility()`)

	nothing := browser.Open(t, newStandIn(t).url, browsertest.Options{})
	nothing.Wait("the next command", `document.querySelector('#no-talk [data-testid=next-command]')?.innerText === 'feishu-relay check'`)
}

// A round may stop at two messages. The sidecar's last stop is the first of them.
func pageOfTwoStops(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 4)
	s.change(func() {
		for _, id := range []string{"om_1", "om_3"} {
			s.outcomes["oc_x"] = append(s.outcomes["oc_x"], object{"agent": "agent_c", "channel": "feishu", "chat_id": "oc_x",
				"relay_msg_id": id, "at": began, "stopped": "max_depth"})
		}
	})
	p := browser.Open(t, s.url, browsertest.Options{})
	p.Wait("that the group is stopped", `document.querySelector('[data-testid=group-stopped]')?.title === 'limit 3 reached'`)
}

func pageOfManyGroups(t *testing.T, browser *browsertest.Browser) {
	chats := make([]string, 3000)
	for i := range chats {
		chats[i] = fmt.Sprintf("oc_%d", i)
	}
	s := newStandIn(t, chats...)
	release := s.hold("/v1/transcripts")
	p := browser.Open(t, s.url+"/", browsertest.Options{})
	p.Wait("the connection", isLive)
	browsertest.Eval[bool](p, `(window.writes = 0, Storage.prototype.setItem = () => { writes++ }, true)`)
	release()
	p.Wait("the groups", `document.querySelectorAll('[data-testid=group]').length === 3000`)
	if n := browsertest.Eval[int](p, `writes`); n > 10 {
		t.Errorf("the storage was written to %d times for %d groups", n, len(chats))
	}
	browsertest.Eval[bool](p, `(document.querySelector('[data-chat-id=oc_1000]').focus(), true)`)
	browsertest.Eval[bool](p, `(window.drawn = 0, new MutationObserver((list) => { drawn += new Set(list.map((m) => m.target).filter((e) => e.dataset.testid === 'group')).size }).observe(document.querySelector('[data-testid=groups]'), { childList: true, subtree: true }), true)`)
	s.say("oc_2000", 5, 1)
	p.Wait("the group at the top", `document.querySelector('[data-testid=group]').dataset.chatId === 'oc_2000'`)
	if n := browsertest.Eval[int](p, `drawn`); n == 0 || n > 2 {
		t.Errorf("%d rows were drawn anew for a message in one group", n)
	}
	if got := browsertest.Eval[string](p, `document.activeElement.dataset.chatId ?? ''`); got != "oc_1000" {
		t.Errorf("the focus went from a group to %q", got)
	}
}

func pageNobodyLooksAt(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 1)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("the connection", isLive)
	wantShown(t, p, 0, 0)
	browsertest.Eval[bool](p, `(window.frames_ = 0, window.requestAnimationFrame = () => ++frames_, true)`) // a page that is hidden has no frames
	s.say("oc_x", 1, 1)
	p.Wait("an event", `frames_ > 0`)
	browsertest.Eval[bool](p, `(Object.defineProperty(document, 'hidden', { get: () => true }), document.dispatchEvent(new Event('visibilitychange')))`)
	s.say("oc_x", 2, 100)
	wantShown(t, p, 0, 101)
}

// What says more of the same moment counts, in whatever order it comes.
func pageOfOutcomesInAnyOrder(t *testing.T, browser *browsertest.Browser) {
	p := browser.Open(t, newStandIn(t).url, browsertest.Options{})
	for _, order := range []string{`[decided, given]`, `[given, decided]`} {
		got := browsertest.Eval[bool](p, `import('/viewer/conversation.js').then(({ Conversation }) => {
			const c = new Conversation('feishu', 'oc_x')
			const decided = { agent: 'agent_b', relay_msg_id: 'om_1', at: 5, decision: { allow: true } }
			const given = { ...decided, delivered_at: 5, door: 'stream' }
			for (const o of `+order+`) c.note(o)
			return c.outcomes('om_1')[0].delivered_at === 5
		})`)
		if !got {
			t.Errorf("%s: the delivery is not known", order)
		}
	}
}

// A page that is open for days keeps the newest messages alone.
func pageMemory(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 10)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("the connection", isLive)
	wantShown(t, p, 0, 9)
	browsertest.Eval[bool](p, `(window.oldest = new WeakRef(document.querySelector('[data-message-id=om_0]')), true)`)
	s.say("oc_x", 10, 5_100)
	p.Wait("the newest alone", shown+`.at(-1) === 'om_5109' && `+shown+`.length < 1000`)
	wantShown(t, p, 4_910, 5_109)
	apitest.Until(t, "a message that was dropped is forgotten", func() bool {
		p.Do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, heapprofiler.CollectGarbage, cdp.Empty{})
			return err
		}))
		return browsertest.Eval[bool](p, `oldest.deref() === undefined`)
	})
}

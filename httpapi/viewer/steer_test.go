package viewer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/internal/test/browsertest"
)

const steerValue = `document.querySelector('[data-testid=steer-%s]').value`

func pageSteering(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 2)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Expect("409")
	wantShown(t, p, 0, 1)
	p.Click("[data-testid=steer-toggle]")
	p.Wait("the panel", `document.querySelectorAll('[data-testid=steer-bot]').length === 2`)
	if got := browsertest.Eval[string](p, `document.querySelector('[data-testid=steer-last]').innerText`); !strings.Contains(got, "max_depth: bots reached the hard limit of messages in a row") {
		t.Errorf("the last stop is told as %q", got)
	}
	asked := 0
	want := func(change, is string) {
		t.Helper()
		asked++
		apitest.Until(t, change, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.changes) >= asked
		})
		p.Wait("that it holds: "+is, is)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.changes) != asked || s.changes[asked-1] != change {
			t.Fatalf("the changes are %q, want %q as the last", s.changes, change)
		}
	}
	has := func(selector string) string { return `document.querySelector('` + selector + `')` }
	p.Click("[data-testid=steer-pause]")
	want(`PATCH {"paused":true,"version":"v1"}`, has("#talk-head [data-testid=paused]"))
	p.Click("[data-testid=steer-resume]")
	want(`PATCH {"paused":false,"version":"v2"}`, has("[data-testid=steer-pause]"))
	browsertest.Eval[bool](p, choose("for", "30m"))
	p.Click("[data-agent=agent_c] [data-testid=steer-mute]")
	want(`PATCH {"muted":{"agent_c":"30m"},"version":"v3"}`, has("#talk-head [data-testid=muted]"))
	p.Click("[data-agent=agent_c] [data-testid=steer-unmute]")
	want(`PATCH {"muted":{"agent_c":false},"version":"v4"}`, `!`+has("#talk-head [data-testid=muted]"))
	browsertest.Eval[bool](p, choose("answer", "one"))
	want(`PATCH {"answer":"one","version":"v5"}`, fmt.Sprintf(steerValue, "answer")+` === 'one'`)
	browsertest.Eval[bool](p, choose("default_bot", "agent_b"))
	want(`PATCH {"default_bot":"agent_b","version":"v6"}`, fmt.Sprintf(steerValue, "default_bot")+` === 'agent_b'`)
	browsertest.Eval[bool](p, choose("limit", "7"))
	want(`PATCH {"limit":7,"version":"v7"}`, `document.querySelector('#talk-head').innerText.includes('limit 7')`)
	p.Click("[data-testid=steer-judge]")
	want(`PATCH {"judge":false,"version":"v8"}`, `document.querySelector('#talk-head').innerText.includes('judge off')`)
	p.Click("[data-testid=steer-stop]")
	want(`POST stop`, has("[data-testid=spoken]")+`.textContent === 'Done.'`)
	p.Click("[data-testid=steer-continue]")
	want(`POST continue`, `true`)
	p.Click(`[data-testid="steer-forget"]`)
	p.Wait("that it asks once more", `document.activeElement.dataset.testid === 'sure-yes'`)
	p.Click(`[data-testid="sure-no"]`)
	p.Wait("that it does not", `document.activeElement.dataset.testid === 'steer-forget'`)
	p.Press("\r")
	p.Wait("that it asks again", `document.activeElement.dataset.testid === 'sure-yes'`)
	p.Press("\r")
	want(`DELETE settings`, has(`[data-testid="steer-forget"]`))

	// What cannot be is not sent; somebody else was quicker: it is shown as it is, and said.
	browsertest.Eval[bool](p, choose("limit", "0"))
	s.change(func() { s.group["version"] = "other" })
	browsertest.Eval[bool](p, choose("budget", "50"))
	p.Wait("what happened", has("[data-testid=notice]")+`?.innerText.includes('just changed the group')`)
	want(`PATCH {"budget":50,"version":"v12"}`, fmt.Sprintf(steerValue, "budget")+` === '0' && `+fmt.Sprintf(steerValue, "limit")+` === '7'`)
	browsertest.Eval[bool](p, choose("budget", "40"))
	want(`PATCH {"budget":40,"version":"other"}`, fmt.Sprintf(steerValue, "budget")+` === '40'`)

	// Another person's change is shown when its notice comes; the keyboard stays where it was.
	browsertest.Eval[bool](p, `(document.querySelector('[data-testid=steer-threshold]').focus(), true)`)
	s.change(func() {
		group := newGroup()
		group["version"] = "later"
		group["settings"].(object)["limit"] = 9
		s.group = group
		s.kept = append(s.kept, object{"type": "notice", "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_c", "time": began + 5000,
			"ts": began + 5000, "role": "notice", "kind": "command", "act": "set", "by": "Ann", "content": "/relay limit 9", "sender": "agent_b"})
	})
	p.Wait("her change", fmt.Sprintf(steerValue, "limit")+` === '9'`)
	p.Wait("the notice", has(`[data-message-id="notice om_c"]`)+`?.innerText.includes('/relay limit 9')`)
	if got := browsertest.Eval[string](p, `document.activeElement.dataset.testid ?? ''`); got != "steer-threshold" {
		t.Errorf("the focus went to %q", got)
	}
	p.Press("\x1b")
	p.Wait("that Esc closes it", `document.querySelector('#talk-steer').hidden && document.activeElement.dataset.testid === 'steer-toggle' && document.activeElement.getAttribute('aria-expanded') === 'false'`)
}

// choose is as if somebody chose or typed a value.
func choose(name, value string) string {
	return fmt.Sprintf(`((e) => (e.focus(), e.value = %s, e.dispatchEvent(new Event('change', { bubbles: true }))))(document.querySelector('[data-testid=steer-%s]'))`,
		browsertest.JS(value), name)
}

func pageOfAFixedGroup(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.group["locked"] = true
	s.record("oc_x", 0, 2)
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	wantShown(t, p, 0, 1)
	p.Click("[data-testid=steer-toggle]")
	p.Wait("why nothing can be changed", `document.querySelector('[data-testid=steer-locked]')`)
	if n := browsertest.Eval[int](p, `document.querySelectorAll('#talk-steer :is(button, input, select):not(:disabled)').length`); n != 1 {
		t.Errorf("%d controls can be used, want the one that shows the last stop", n)
	}
	p.Press("l")
	p.Wait("Chinese", `document.querySelector('[data-testid=steer-locked]').innerText.includes('锁定')`)
}

func pageOfNotices(t *testing.T, browser *browsertest.Browser) {
	s := newStandIn(t, "oc_x")
	s.record("oc_x", 0, 4)
	notice := func(id string, ts int, more object) object {
		e := object{"role": "notice", "sender": "agent_b", "content": "", "message_id": id, "ts": began + ts}
		maps.Copy(e, more)
		return e
	}
	s.change(func() {
		s.group["settings"].(object)["paused"] = object{"until": nil}
		all := s.entries["oc_x"]
		all[0]["content"], all[0]["recalled"], all[1]["edited"] = "", true, true
		s.entries["oc_x"] = slices.Concat(all[:2], []object{
			// A word that is a message and a command, an answer, a stop, a change over the API.
			notice("om_2", 2000, object{"kind": "command", "act": "continue", "by": "Tom", "content": "继续", "of": "om_2"}),
			notice("om_n1", 2100, object{"kind": "notice", "act": "answer", "content": "Bots go on.", "of": "om_2"}),
			notice("notice:1", 2200, object{"kind": "notice", "act": "stop", "content": "BotB's message was not given to 小C", "of": "om_1"}),
			notice("notice:2", 2300, object{"kind": "command", "act": "set", "by": "api", "set": object{"limit": 5, "muted:agent_c": nil, "paused": object{"until": nil}}}),
		}, all[2:])
	})
	p := browser.Open(t, s.url+"/#/groups/feishu/oc_x", browsertest.Options{})
	p.Wait("all, with the names of bots", `document.querySelectorAll('.message').length === 8 && document.querySelector('[data-message-id="notice notice:2"]').innerText.includes('小C')`)
	text := func(id string) string {
		return browsertest.Eval[string](p, `document.querySelector('[data-message-id="`+id+`"]').innerText`)
	}
	for id, want := range map[string][]string{
		"om_0": {"recalled"}, "om_1": {"edited", "message 1"}, "om_2": {"message 2"}, "notice om_2": {"Tom", "command", "继续"}, "notice om_n1": {"answer", "Bots go on."},
		"notice notice:1": {"stop", "not given to", "message 1"}, "notice notice:2": {"over the API", "Settings were changed", "Limit 5", "小C no longer muted", "paused"},
	} {
		for _, part := range want {
			if got := text(id); !strings.Contains(got, part) {
				t.Errorf("%s is shown as %q, want %q in it", id, got, part)
			}
		}
	}
	p.Wait("that the group is paused", `document.querySelector('#talk-head [data-testid=paused]')`)
	s.say("oc_x", 4, 2)
	p.Wait("what is said", `document.querySelector('[data-message-id=om_5]')?.innerText.includes('message 5')`)
	s.change(func() {
		s.kept = append(s.kept, object{"type": "recall", "channel": "feishu", "chat_id": "oc_x", "relay_msg_id": "om_5", "time": began + 9000})
	})
	p.Wait("that it was recalled", `document.querySelector('[data-message-id=om_5] [data-testid=recalled]')`)
	if browsertest.Eval[bool](p, `document.body.innerHTML.includes('message 5')`) {
		t.Error("the text of a message that was recalled is on the page")
	}
	p.Click("[data-testid=filter-people]")
	p.Wait("people only", `document.querySelectorAll('.message').length === 3`)
	p.Click("[data-testid=filter-all]")
	hash(p, "#/groups/feishu/oc_x/"+`notice%20notice%3A1`)
	p.Wait("details", `!document.querySelector('#details').hidden && document.querySelector('#details').textContent.includes('notice:1')`)
}

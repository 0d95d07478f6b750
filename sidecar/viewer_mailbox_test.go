//go:build unix

package sidecar_test

import (
	"testing"

	"feishu-relay/internal/test/browsertest"
)

// noteNotices notes the kinds of the notices from now on: one is shown for seconds.
const noteNotices = `(window.noticed = [], new MutationObserver((list) => {
	for (const e of list.flatMap((change) => [...change.addedNodes])) noticed.push(e.dataset.kind)
}).observe(document.querySelector('#notices'), { childList: true }), true)`

// agent_a hands a task to agent_b before the eyes of the operator, a message to
// it gets no acknowledgement and is sent again from the page, and agent_b goes.
func viewMailbox(t *testing.T, browser *browsertest.Browser) {
	ctx := limited(t)
	c := prepare(t, setup{bots: 2, change: withMail(t.TempDir())})
	c.listening(ctx)
	a, b := c.bots[0], c.bots[1]
	post := func(by *bot, route string, body map[string]any) {
		t.Helper()
		if status, code, err := by.post(ctx, route, body); err != nil || status >= 300 {
			t.Fatalf("%s answered %d %s %v", route, status, code, err)
		}
	}
	agents := view(t, browser, a, "#/agents", browsertest.Options{})
	shows(agents, is("agent", "agent", "agent_b", "state", "idle"))
	shows(agents, is("agent", "agent", "agent_a")+" "+is("this-one"))
	p := view(t, browser, a, "#/mailbox", browsertest.Options{})
	sameLoad := stays(t, p)
	shows(p, is("empty"))

	const task = "task_sort"
	post(a, "/v1/mailbox/tasks", map[string]any{"to": "agent_b", "text": "write a sort function", "task_id": task})
	shows(p, is("task", "task-id", task))
	shows(p, is("task", "task-id", task, "state", "accepted"))
	for _, state := range []string{"working", "completed"} {
		post(b, "/v1/mailbox/tasks/"+task, map[string]any{"state": state, "text": "func sort"})
		shows(p, is("task", "task-id", task, "state", state))
	}
	p.Wait("the result", `document.querySelector('[data-testid=result]')?.innerText.endsWith('func sort')`)
	if got := count(p, is("task")); got != 1 {
		t.Errorf("%d tasks are shown, want one", got)
	}

	// It expires, and lives as long when it is sent again: by then there is somebody who takes it.
	post(a, "/v1/mailbox/messages", map[string]any{"to": "agent_b", "text": "anybody there?",
		"metadata": map[string]any{"requiresAck": true, "ttl": 15}})
	p.Click(is("tab-dead"))
	shows(p, is("dead-letter"))
	b.connect(t)
	eventually(ctx, t, "the bot is connected", func() bool {
		st, err := b.status(ctx)
		return err == nil && st.Door.Connected != nil && *st.Door.Connected
	})
	browsertest.Eval[bool](p, noteNotices)
	p.Click(is("replay"))
	p.Click(is("sure-yes"))
	p.Wait("that it is sent again", `performance.getEntriesByType('resource').some((e) => e.name.endsWith('/replay') && e.responseStatus === 202)`)
	p.Wait("that it says so", `noticed.includes('plain')`)
	p.Wait("no dead letter", `document.querySelector('#tabpanel [data-testid=empty]')`)
	var mail struct {
		Dead []any `json:"dead_letters"`
	}
	must(t, a.get(ctx, "/v1/mailbox/dead-letters", &mail))
	if len(mail.Dead) != 0 {
		t.Errorf("dead letters are left: %v", mail.Dead)
	}
	sameLoad()

	b.side.stop()
	shows(agents, is("agent", "agent", "agent_b", "state", "offline"))
}

//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/browsertest"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// devChat is the group of the scene in which most happens.
const devChat = "oc_dev"

// A group in which everything that the viewer shows has happened, looked at in
// many ways.
func viewLivelyGroup(t *testing.T, browser *browsertest.Browser) {
	c := lively(t)
	t.Run("figures", func(t *testing.T) {
		t.Parallel()
		viewFigures(t, browser, c.bots[2])
	})
	for name, test := range map[string]func(*testing.T, *browsertest.Browser, *bot){
		"keyboard":      viewByKeyboard,
		"phone":         viewOnPhone,
		"contrast":      viewContrast,
		"words":         viewWords,
		"accessibility": viewAccessibility,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, browser, c.bots[0])
		})
	}
}

// lively starts three sidecars of which the third has no bot, and lets happen
// what can happen.
func lively(t *testing.T) *cluster {
	ctx := limited(t)
	dir := t.TempDir()
	groups := filepath.Join(dir, "groups.json")
	must(t, os.WriteFile(groups, []byte(`{"agents":{"agent_a":{"name":"Planner"},"agent_b":{"name":"Coder 小B"},"agent_c":{"name":"Reviewer"}},"groups":{
		"oc_dev":{"name":"研发群 Development","members":["agent_a","agent_b","agent_c"]},
		"oc_ops":{"name":"运维群","members":["agent_a","agent_c"],"max_bot_reply_depth":6,"bot_reply_llm_threshold":2}}}`), 0o600))
	withMail := withMail(dir)
	roles := []string{"plans the work and talks to people", "writes code; 写代码", "reviews and tests code"}
	c := prepare(t, setup{change: func(i int, cfg *sidecar.Config) {
		withMail(i, cfg)
		cfg.GroupsFile, cfg.Role, cfg.Capabilities = groups, roles[i], []string{"plan", "code", "go"}[:i+1]
	}})
	c.listening(ctx)
	a, b, d := c.bots[0], c.bots[1], c.bots[2]
	a.connect(t)
	b.connect(t)
	eventually(ctx, t, "the bots are connected", func() bool {
		one, err1 := a.status(ctx)
		two, err2 := b.status(ctx)
		return err1 == nil && err2 == nil && *one.Door.Connected && *two.Door.Connected
	})
	groupTalk(ctx, t, a, b, d)
	mailTalk(ctx, t, a, b, d)
	return c
}

// groupTalk lets people and bots talk in two groups.
func groupTalk(ctx context.Context, t *testing.T, a, b, d *bot) {
	t.Helper()
	yesterday := time.Now().Add(-26 * time.Hour).UnixMilli()
	must(t, a.insist(ctx, "/v1/inbound", map[string]any{"chat_id": devChat, "content": "明天我们开始写排序库。", "sender": "王小明", "message_id": "om_yesterday", "ts": yesterday, "chat_type": "group"}))
	a.hears(ctx, t, "oc_ops", "om_ops", "李雷", "磁盘快满了，请看一下 /var/log")
	a.says(ctx, t, "oc_ops", "om_ops_answer", "92% full; I delete logs older than a week.", nil)

	// decided waits until somebody has come to a decision about a message.
	decided := func(by *bot, id relay.MessageID) {
		t.Helper()
		eventually(ctx, t, fmt.Sprintf("%s decides on %s", by.name, id), func() bool { return by.decided(ctx, devChat, id) })
	}
	a.hears(ctx, t, devChat, "om_1", "王小明", "@agent_a 请做一个 Go 的排序函数，要稳定，还要测试。\nSee https://go.dev/doc/effective_go for the style, please.")
	a.says(ctx, t, devChat, "om_2", "@agent_b please write **Sort(xs []int)**: stable, in place. agent_c reviews it.", map[string]any{"parent_id": "om_1"})
	decided(b, "om_2")
	b.says(ctx, t, devChat, "om_3", "Here it is, in main.go:\n```go\nfunc Sort(xs []int) {\n\tfor i := 1; i < len(xs); i++ {\n\t\tfor j := i; j > 0 && xs[j] < xs[j-1]; j-- {\n\t\t\txs[j], xs[j-1] = xs[j-1], xs[j]\n\t\t}\n\t}\n}\n```\n@agent_c can you review `Sort`?", map[string]any{"parent_id": "om_2"})
	decided(a, "om_3") // agent_c has no bot yet, and waits with om_2
	d.says(ctx, t, devChat, "om_4", "It is quadratic. Do you want a merge sort in its place?", map[string]any{"parent_id": "om_3", "thread_id": "omt_review"})
	decided(a, "om_4")
	a.hears(ctx, t, devChat, "om_5", "Tom", "Quadratic is fine for ten numbers. @agent_b finish it")
	b.says(ctx, t, devChat, "om_6", "Done: all 14 tests of main.go pass, see the log below.\n"+strings.Repeat("=== RUN   TestSort\n--- PASS: TestSort (0.00s)\n", 20), nil)
	decided(a, "om_6")
	a.says(ctx, t, devChat, "om_7", "好的，谢谢！👍", map[string]any{"parent_id": "om_6", "thread_id": "omt_review"})
	decided(b, "om_7")
	a.hears(ctx, t, devChat, "om_8", `<b>Mallory</b>`, "<img src=x onerror=alert(1)> \u202eevil\u202c and `code`")
}

// mailTalk lets agents hand each other work, of which some goes wrong.
func mailTalk(ctx context.Context, t *testing.T, a, b, d *bot) {
	t.Helper()
	post := func(by *bot, route string, body map[string]any) {
		t.Helper()
		if status, code, err := by.post(ctx, route, body); err != nil || status >= 300 {
			t.Fatalf("%s of %s answered %d %s %v", route, by.name, status, code, err)
		}
	}
	for i, state := range []string{"", "working", "completed", "failed"} {
		id := fmt.Sprintf("task_%d", i)
		post(a, "/v1/mailbox/tasks", map[string]any{"to": "agent_b", "text": fmt.Sprintf("写第 %d 个排序函数, with tests", i), "task_id": id, "deadline": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
		eventually(ctx, t, "the task is there", func() bool {
			status, _, err := b.post(ctx, "/v1/mailbox/tasks/"+id, map[string]any{"state": "working"})
			return err == nil && status < 300 || state == ""
		})
		if state == "completed" || state == "failed" {
			post(b, "/v1/mailbox/tasks/"+id, map[string]any{"state": state, "text": "the compiler says no"})
		}
	}
	post(b, "/v1/mailbox/tasks", map[string]any{"to": "agent_a", "text": "please decide: merge sort or quicksort?"})
	post(a, "/v1/mailbox/messages", map[string]any{"to": "agent_c", "text": "are you there?",
		"metadata": map[string]any{"requiresAck": true, "ttl": 1}})
	eventually(ctx, t, "a dead letter", func() bool {
		var mail struct {
			Dead []any `json:"dead_letters"`
		}
		return a.get(ctx, "/v1/mailbox/dead-letters", &mail) == nil && len(mail.Dead) == 1
	})
}

// decided reports whether b's sidecar has decided on a message.
func (b *bot) decided(ctx context.Context, chat string, id relay.MessageID) bool {
	var became struct {
		Outcomes []struct {
			Agent string
			ID    relay.MessageID `json:"relay_msg_id"`
		}
	}
	if b.get(ctx, "/v1/outcomes?chat_id="+chat, &became) != nil {
		return false
	}
	for _, o := range became.Outcomes {
		if o.Agent == b.name && o.ID == id {
			return true
		}
	}
	return false
}

// viewFigures looks at agent_c, whose bot is away, for what waits for it.
func viewFigures(t *testing.T, browser *browsertest.Browser, d *bot) {
	p := view(t, browser, d, "#/agents", browsertest.Options{})
	figure := is("agent", "agent", d.name) + " [data-queue=unsettled] dd"
	ctx := limited(t)
	eventually(ctx, t, "the page says how many messages wait", func() bool { // it reads them again every 15 s
		st, err := d.status(ctx)
		waits := st.Waiting.Messages
		return err == nil && waits > 0 && words(p, figure) == fmt.Sprint(waits)
	})
}

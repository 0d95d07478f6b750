package agent_test

import (
	"testing"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// A result arrives where this agent said that it belongs, and nowhere else:
// another agent must not choose what the bot says where.
func TestConversation(t *testing.T) {
	call := func(channel, chat, session string) *mailbox.Callback {
		return &mailbox.Callback{Channel: channel, ChatID: chat, SessionID: session}
	}
	for _, c := range []struct {
		name   string
		typ    mailbox.Type
		task   string // "t1" is x's, with the callback feishu oc_1 and a session; "t3" x's without any
		claims *mailbox.Callback
		want   *mailbox.Callback // nil: mailbox:<from>
	}{
		{"of the task", mailbox.TypeTaskUpdate, "t1", nil, call("feishu", "oc_1", "feishu:oc_1:topic")},
		{"as it was named", mailbox.TypeTaskComplete, "t1", call("feishu", "oc_1", "feishu:oc_1:topic"), call("feishu", "oc_1", "feishu:oc_1:topic")},
		{"with another session", mailbox.TypeTaskUpdate, "t1", call("feishu", "oc_1", "feishu:oc_private"), call("feishu", "oc_1", "feishu:oc_1:topic")},
		{"by its session alone", mailbox.TypeTaskUpdate, "t3", call("feishu", "", "feishu:oc_1"), call("feishu", "oc_1", "feishu:oc_1:topic")},
		{"of another task of that agent", mailbox.TypeTaskUpdate, "t3", call("feishu", "oc_1", ""), call("feishu", "oc_1", "feishu:oc_1:topic")},
		{"of another agent's task", mailbox.TypeTaskUpdate, "t1", call("feishu", "oc_2", ""), nil},
		{"never named", mailbox.TypeTaskUpdate, "t1", call("feishu", "oc_9", ""), nil},
		{"another channel", mailbox.TypeTaskUpdate, "t1", call("slack", "oc_1", ""), nil},
		{"the mailbox itself", mailbox.TypeTaskUpdate, "t1", call("mailbox", "y", ""), nil},
		{"no chat", mailbox.TypeTaskUpdate, "t1", call("feishu", "", "weird"), nil},
		{"none named", mailbox.TypeTaskUpdate, "t3", nil, nil},
		{"a group that the bot hears", mailbox.TypeTaskUpdate, "t3", call("feishu", "oc_group", "feishu:oc_private"), call("feishu", "oc_group", "")},
		{"an answer", mailbox.TypeAnswer, "", call("feishu", "oc_1", ""), call("feishu", "oc_1", "feishu:oc_1:topic")},
		{"an answer elsewhere", mailbox.TypeAnswer, "", call("feishu", "oc_9", ""), nil},
		{"a message", mailbox.TypeMessage, "", call("feishu", "oc_1", ""), nil},
		{"a task", mailbox.TypeTask, "t9", call("feishu", "oc_1", ""), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a := w.agent("a", func(o *agent.Options) {
					o.Hears = func(channel, chat string) bool { return channel == "feishu" && chat == "oc_group" }
				})
				for _, d := range []agent.TaskDraft{
					{To: "x", TaskID: "t1", Callback: call("feishu", "oc_1", "feishu:oc_1:topic")},
					{To: "y", TaskID: "t2", Callback: call("feishu", "oc_2", "")},
					{To: "x", TaskID: "t3"},
				} {
					d.Text = "do it"
					_, err := a.SendTask(t.Context(), d)
					must(t, err)
				}
				e := mailbox.Envelope{From: "x", Type: c.typ, Callback: c.claims, Content: textOf("words"), Hops: 3}
				if c.task != "" {
					e.Task = &mailbox.Task{ID: c.task, State: mailbox.Completed}
				}
				w.foreign(a, e)
				got := a.deliveries()
				if len(got) != 1 {
					t.Fatalf("given %+v", got)
				}
				where := got[0].Conversation
				if (where == nil) != (c.want == nil) || where != nil && *where != *c.want {
					t.Errorf("it came to %+v, want %+v", where, c.want)
				}
			})
		})
	}
}

package agent_test

import (
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

// Nothing that another agent or the bot said stands in the log, and no name or
// id of theirs begins a line of it.
func TestLog(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var log strings.Builder
		a, b := w.agent("a"), w.idle("b")
		b.logTo(&log)
		b.start()
		a.say(b, "SECRET one", wanted, func(e *mailbox.Envelope) { e.ID = "m1" })
		a.task(b, "t1", nil)
		b.waits(2)
		must(t, b.Nack(t.Context(), "m1", mailbox.InvalidMessage, "SECRET two"))
		b.update("t1", mailbox.Failed, "SECRET three")
		w.foreign(b, mailbox.Envelope{From: "x", ID: "level=ERROR msg=forged", Content: textOf("SECRET four"), Hops: 3})
		w.hub.put("b", []byte(`{"id":"m9","from":"x","to":"b","type":"SECRET five\nlevel=ERROR"}`))
		b.door.set(true)
		b.texts()
		b.stop()
		if text := log.String(); strings.Contains(text, "SECRET") || strings.Contains(text, "do t1") || strings.Contains(text, "\nlevel=ERROR") {
			t.Errorf("the log says\n%s", text)
		}
	})
}

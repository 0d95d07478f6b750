package agent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// results are the types that answer a question or a request of each kind.
var results = map[mailbox.Type]mailbox.Type{
	mailbox.TypeQuestion:          mailbox.TypeAnswer,
	mailbox.TypeCodeReviewRequest: mailbox.TypeCodeReviewResult,
	mailbox.TypeTestRequest:       mailbox.TypeTestResult,
	mailbox.TypeTask:              mailbox.TypeAnswer,
}

// resultTo is a result from an agent to another, about a message.
func resultTo(to mailbox.AgentID, typ mailbox.Type, about string) agent.Draft {
	return agent.Draft{Envelope: letterTo(to, "result", func(e *mailbox.Envelope) { e.Type, e.ReplyTo = typ, about })}
}

// Results of nothing that was asked count as messages do.
func TestMadeUpResultsAreLimited(t *testing.T) {
	for _, typ := range results {
		t.Run(string(typ), func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				a := w.agent("a")
				b := w.agent("b", func(o *agent.Options) { o.MaxExchanges = 4 })
				a.say(b, "no question", func(e *mailbox.Envelope) { e.ID = "m1" })
				synctest.Wait()
				sent := 1
				for i := range 20 {
					about := []string{"", "m1", fmt.Sprint("made-up-", i)}[i%3]
					_, err := b.Send(t.Context(), resultTo("a", typ, about))
					if err == nil {
						sent++
						continue
					}
					refusedAs(t, err, mailbox.RateLimited, "exchanged")
				}
				if sent != 4 {
					t.Errorf("%d messages were exchanged, want 4", sent)
				}
			})
		})
	}
}

// One result for each thing that was asked goes beyond the limit, whether the bot
// sends it while it is handed the question, later, or after a restart.
func TestOneResultForEachQuestion(t *testing.T) {
	for asked, typ := range results {
		for _, when := range []string{"at once", "later", "after a restart"} {
			t.Run(fmt.Sprint(asked, " ", when), func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					a := w.agent("a")
					b := w.agent("b", func(o *agent.Options) { o.MaxExchanges = 1 })
					answer := func() {
						if _, err := b.Send(t.Context(), resultTo("a", typ, "q1")); err != nil {
							t.Errorf("the first result: %v", err)
						}
						_, err := b.Send(t.Context(), resultTo("a", typ, "q1"))
						refusedAs(t, err, mailbox.RateLimited, "exchanged")
					}
					if when == "at once" {
						b.door.doing(func(context.Context, agent.Delivery) error { answer(); return nil })
					}
					a.say(b, "what?", func(e *mailbox.Envelope) { e.ID, e.Type = "q1", asked })
					synctest.Wait()
					switch when {
					case "later":
						answer()
					case "after a restart": // when what was exchanged does not count any more
						time.Sleep(10 * time.Minute)
						b.restart()
						b.say(a, "the only message")
						answer()
					}
					_, err := b.Send(t.Context(), resultTo("c", typ, "q1"))
					must(t, err) // the first message to c
					_, err = b.Send(t.Context(), resultTo("c", typ, "q1"))
					refusedAs(t, err, mailbox.RateLimited, "exchanged")
				})
			})
		}
	}
}

package agent_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// What an agent puts into inboxes is the same byte for byte as it was recorded: a letter, a question that
// is sent again, one that the store took late, a task, its steps, and acknowledgements, with a secret and without.
func TestWireBytes(t *testing.T) {
	for name, secret := range map[string]string{"plain": "", "signed": "s3cret"} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				with := func(*agent.Options) {}
				if secret != "" {
					with = w.signing()
				}
				got := w.wireBytes(with)
				file := filepath.Join("testdata", "wire-"+name+".jsonl")
				want, err := os.ReadFile(file)
				must(t, err)
				if !bytes.Equal(got, want) {
					t.Errorf("the bytes in the inboxes are not those of %s:\n%s", file, got)
				}
			})
		})
	}
}

// wireBytes sends mail of all kinds and returns what the inboxes were given.
func (w *world) wireBytes(with func(*agent.Options)) []byte {
	t := w.t
	var out bytes.Buffer
	record := func(what string) {
		synctest.Wait()
		out.WriteString(what + "\n")
		for _, id := range []mailbox.AgentID{"a", "b"} {
			for _, raw := range w.captured(id) {
				out.Write(raw)
				out.WriteByte('\n')
			}
		}
	}
	a, b := w.agent("a", with), w.idle("b", with)
	named := func(id string, typ mailbox.Type) func(*mailbox.Envelope) {
		return func(e *mailbox.Envelope) { e.ID, e.Type = id, typ }
	}
	a.say(b, "hello <b> & \u2028 你好", named("letter", mailbox.TypeMessage), func(e *mailbox.Envelope) {
		e.Content.Parts = append(e.Content.Parts, mailbox.Part{Type: mailbox.PartData, Data: []byte(`{"n": 1.50, "s":"x"}`)})
		e.Metadata.Tags = []string{"t"}
	})
	a.say(b, "ready?", named("question", mailbox.TypeQuestion), wanted)
	a.say(b, "do t1", named("task", mailbox.TypeTask), func(e *mailbox.Envelope) {
		e.Task = &mailbox.Task{ID: "t1", Deadline: time.Now().Add(time.Hour)}
		e.Callback = &mailbox.Callback{Channel: "feishu", ChatID: "oc_x"}
	})
	record("# sent")
	w.hub.refusing("put", "", errCrashed)
	a.say(b, "kept for a while", named("late", mailbox.TypeQuestion), wanted)
	w.hub.failing(nil)
	time.Sleep(5 * time.Second)
	record("# late")
	must(t, (&handle{hub: w.hub, dead: &b.dead}).SetCard(context.Background(),
		mailbox.Card{AgentID: "b", Status: mailbox.Idle, LastHeartbeat: time.Now().Add(time.Hour)}))
	time.Sleep(5 * time.Minute)
	record("# sent again")
	b.door.set(true)
	b.start()
	synctest.Wait()
	a.stop()
	_, err := b.Send(t.Context(), agent.Draft{Envelope: mailbox.Envelope{ID: "step", To: "a", Type: mailbox.TypeTaskUpdate,
		Task: &mailbox.Task{ID: "t1", State: mailbox.Completed}, Content: textOf("done")}})
	must(t, err)
	record("# answered")
	return out.Bytes()
}

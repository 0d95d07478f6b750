package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// waitFor waits for what no event tells.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it did not come to pass")
}

// desk drives the taps without HTTP, so that a test's clock can be turned.
type desk struct {
	*rig
	n int
}

// atDesk runs f with a gateway at the default times; Run is under way.
func atDesk(t *testing.T, f func(d *desk)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { withDesk(t, dir, f) })
}

func withDesk(t *testing.T, dir string, f func(d *desk)) {
	t.Helper()
	withDeskOf(t, dir, func(*Options) {}, f)
}

func withDeskOf(t *testing.T, dir string, change func(*Options), f func(d *desk)) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	bookDir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer bookDir.Close()
	r := &rig{t: t, app: "cli_desk", host: &host{said: make(chan Sent, 64)}, counts: &counts{m: map[string]int{}}}
	r.book = feishu.OpenBook(bookDir, "book.json", slog.New(slog.DiscardHandler))
	defer r.book.Close()
	r.book.LearnSelf(feishu.Self{AppID: r.app, OpenID: "ou_self"})
	r.book.SawChat(group, feishu.ChatGroup)
	o := Options{Upstream: mustURL("http://127.0.0.1:1"), AppID: r.app, Root: root, Book: r.book, Host: r.host,
		API: feishu.NewAPI("http://127.0.0.1:1", r.app, ""), Counter: r.counts.add,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	change(&o)
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Gateway = g
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); g.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	f(&desk{rig: r})
	r.stop()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// do taps a call with its answer's data.
func (d *desk) do(method, path string, request any, data any) {
	d.t.Helper()
	c := match(method, "/open-apis/"+path)
	if c.op == opNone {
		d.t.Fatalf("%s %s is not watched", method, path)
	}
	req, err := http.NewRequest(method, "http://x/open-apis/"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.observe(&tapped{call: c, http: req, token: "t-" + d.app, request: []byte(js(request)), status: 200, answer: []byte(js(map[string]any{"code": 0, "data": data}))})
}

// send is an accepted send; it returns the message's id.
func (d *desk) send(chat, msgType, content string) string {
	d.t.Helper()
	d.n++
	id := fmt.Sprintf("om_%d", d.n)
	d.do("POST", "im/v1/messages", map[string]any{"receive_id": chat, "msg_type": msgType, "content": content}, d.message(id, chat, msgType, content))
	return id
}

func (d *desk) message(id, chat, msgType, content string) map[string]any {
	return map[string]any{"message_id": id, "chat_id": chat, "msg_type": msgType, "create_time": fmt.Sprint(time.Now().UnixMilli()),
		"sender": map[string]any{"id": d.app, "id_type": "app_id", "sender_type": "app"}, "body": map[string]any{"content": content}}
}

func (d *desk) text(text string) string { return d.send(group, "text", textOf(text)) }

func (d *desk) edit(id, text string) {
	d.t.Helper()
	d.do("PUT", "im/v1/messages/"+id, map[string]any{"msg_type": "text", "content": textOf(text)}, d.message(id, group, "text", textOf(text)))
}

func (d *desk) card(text string, streaming bool) string {
	return js(map[string]any{"schema": "2.0", "config": map[string]any{"streaming_mode": streaming},
		"body": map[string]any{"elements": []any{map[string]any{"tag": "markdown", "element_id": "content", "content": text}}}})
}

func textOf(text string) string { return js(map[string]any{"text": text}) }

// after expects silence for the time before, and text right behind it.
func (d *desk) after(quiet time.Duration, text string) (got Sent) {
	d.t.Helper()
	start := time.Now()
	time.Sleep(quiet - time.Millisecond)
	synctest.Wait()
	d.silent()
	time.Sleep(2 * time.Millisecond)
	synctest.Wait()
	select {
	case got = <-d.host.said:
		if got.Text != text {
			d.t.Errorf("published %q, want %q", got.Text, text)
		}
	default:
		d.t.Errorf("nothing was published %v after, want %q", time.Since(start), text)
	}
	return got
}

// never expects silence for a long time.
func (d *desk) never(quiet time.Duration) {
	d.t.Helper()
	time.Sleep(quiet)
	synctest.Wait()
	d.silent()
}

// now expects text without any wait.
func (d *desk) now(text string) {
	d.t.Helper()
	synctest.Wait()
	select {
	case m := <-d.host.said:
		if m.Text != text {
			d.t.Errorf("published %q, want %q", m.Text, text)
		}
	default:
		d.t.Errorf("nothing was published, want %q", text)
	}
}

const (
	settle = 1500 * time.Millisecond
	quiet  = 8 * time.Second

	streamLife = 10 * time.Minute
)

func TestInlineCardSettles(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.send(group, "interactive", d.card("done", false))
		d.after(settle, "done")
	})
}

func TestPatchedCardWaitsForQuiet(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", d.card("a", false))
		time.Sleep(time.Second)
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("a b", false)}, nil)
		time.Sleep(5 * time.Second)
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("a b c", false)}, nil)
		d.after(quiet, "a b c")
		// From then on a card waits from the start.
		d.send(group, "interactive", d.card("next", false))
		d.after(quiet, "next")
	})
}

func TestStreamingInlineCardWaitsForItsEnd(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", d.card("a", true))
		d.never(time.Minute)
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("all", false)}, nil)
		d.after(quiet, "all")
	})
}

func TestEditedTextsWaitOnceThatIsKnown(t *testing.T) {
	atDesk(t, func(d *desk) {
		first := d.text("fi")
		d.now("fi") // cannot be told from a finished one
		time.Sleep(time.Second)
		d.edit(first, "first")
		d.never(time.Minute) // it is out
		second := d.text("se")
		time.Sleep(2 * time.Second)
		d.edit(second, "sec")
		time.Sleep(2 * time.Second)
		d.edit(second, "second")
		d.after(quiet, "second")
	})
}

func TestTypingSignTakenBackEndsEdits(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.habits.edits(false, time.Now(), time.Now())
		d.recent.chats.Add("om_question", group)
		d.do("POST", "im/v1/messages/om_question/reactions", map[string]any{"reaction_type": map[string]any{"emoji_type": "Typing"}}, map[string]any{"reaction_id": "re_1"})
		id := d.text("Thinking…")
		time.Sleep(time.Second)
		d.edit(id, "the answer")
		d.never(time.Second)
		d.do("DELETE", "im/v1/messages/om_question/reactions/re_1", nil, nil)
		d.now("the answer")
	})
}

func TestNextMessageEndsEdits(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.habits.edits(false, time.Now(), time.Now())
		d.text("one")
		d.never(time.Second)
		d.text("two")
		d.now("one")
		d.after(quiet, "two")
	})
}

func TestPlaceholderWaitsForWords(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.text("Thinking…")
		d.never(time.Minute)
		d.edit(id, "思考中...")
		d.never(time.Minute)
		d.edit(id, "42")
		d.after(quiet, "42")
	})
}

func TestPlaceholderExpires(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.text("Thinking…")
		d.never(time.Hour)
		if n, _ := d.drafts.sizes(); n != 0 || d.counts.of("draft_expired") != 1 {
			t.Errorf("%d drafts, %v", n, d.counts.m)
		}
	})
}

func TestRecalledDraft(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", d.card("oops", false))
		d.do("DELETE", "im/v1/messages/"+id, nil, map[string]any{})
		d.never(time.Hour)
	})
}

// The calls of OpenClaw's streaming (docs/feishu.md 7.2).
func TestCardKitOpenClaw(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": js(map[string]any{"schema": "2.0", "config": map[string]any{"streaming_mode": true},
			"body": map[string]any{"elements": []any{map[string]any{"tag": "markdown", "element_id": "content", "content": "⏳ Thinking..."},
				map[string]any{"tag": "hr"}, map[string]any{"tag": "markdown", "element_id": "note", "content": ""}}}})}, map[string]any{"card_id": "77"})
		id := d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
		for i, text := range []string{"a", "a b", "a b c"} {
			time.Sleep(3 * time.Second)
			d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": text, "sequence": i + 2}, nil)
		}
		d.never(time.Minute)
		d.do("PUT", "cardkit/v1/cards/77/elements/note/content", map[string]any{"content": "<font color='grey'>Agent: main | Model: m</font>", "sequence": 6}, nil)
		d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 7}, nil)
		d.after(settle, "a b c")
		d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "later", "sequence": 9}, nil)
		d.afterEdit(editQuiet, "later", id)
	})
}

// afterEdit expects silence for a time, and then text as an edit of a message.
func (d *desk) afterEdit(quiet time.Duration, text, of string) {
	d.t.Helper()
	d.never(quiet - time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	synctest.Wait()
	select {
	case m := <-d.host.said:
		if m.Text != text || string(m.EditOf) != of || string(m.ID) == of {
			d.t.Errorf("published %s %q, an edit of %q; want %q, an edit of %s", m.ID, m.Text, m.EditOf, text, of)
		}
	default:
		d.t.Errorf("nothing was published, want %q", text)
	}
}

// A card that goes on after its time to stream is over is published as it is then,
// and its final text as an edit, also over a restart.
func TestCardThatGoesOnAfterItWasPublished(t *testing.T) {
	dir := t.TempDir()
	put := func(d *desk, text string, seq int) {
		d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": text, "sequence": seq}, nil)
	}
	var id string
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
			id = d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
			put(d, "half", 1)
			d.after(streamLife, "half")
			time.Sleep(3 * time.Minute)
			put(d, "half of", 2)
			put(d, "half", 3)
			d.never(5 * time.Minute) // nothing new
		})
	})
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			put(d, "half and more", 4)
			time.Sleep(30 * time.Second)
			d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":true}}`, "sequence": 5}, nil)
			d.never(5 * time.Minute)
			put(d, "the whole", 6)
			d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 7}, nil)
			d.afterEdit(settle, "the whole", id)
			d.never(time.Hour)
		})
	})
	if files := draftFiles(t, dir); len(files) != 0 {
		t.Errorf("left on disk: %v", files)
	}
}

// So does a text that was edited, and quiet for a while.
func TestTextThatGoesOnAfterItWasPublished(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.habits.edits(false, time.Now(), time.Now())
		id := d.text("I look it up")
		d.after(quiet, "I look it up")
		time.Sleep(3 * time.Minute)
		for _, text := range []string{"I look it up:", "I look it up: 4", "I look it up: 42"} {
			time.Sleep(20 * time.Second)
			d.edit(id, text)
		}
		d.afterEdit(editQuiet, "I look it up: 42", id)
		d.do("DELETE", "im/v1/messages/"+id, nil, map[string]any{})
		d.never(time.Hour)
		if d.counts.of("draft_recalled") != 0 {
			t.Error("what is published is counted as recalled")
		}
	})
}

// elements is a card with some elements.
func elements(streaming bool, list ...map[string]any) string {
	return js(map[string]any{"schema": "2.0", "config": map[string]any{"streaming_mode": streaming}, "body": map[string]any{"elements": list}})
}

func markdown(text string) map[string]any { return map[string]any{"tag": "markdown", "content": text} }

func panelOf(title, text string) map[string]any {
	return map[string]any{"tag": "collapsible_panel", "element_id": "panel", "elements": []any{markdown(text)},
		"header": map[string]any{"title": map[string]any{"tag": "plain_text", "content": title}}}
}

func TestAClockInACardIsNoEdit(t *testing.T) {
	atDesk(t, func(d *desk) {
		status := func(line string) string {
			return elements(false, markdown("Build 7 is running on ci-3"), markdown(line))
		}
		id := d.send(group, "interactive", status("updated 12:00 · 已用时 3s"))
		d.after(settle, "Build 7 is running on ci-3\nupdated 12:00 · 已用时 3s")
		for _, line := range []string{"updated 12:01 · 已用时 63s", "updated 12:02 · 已用时 126s"} {
			d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": status(line)}, nil)
			d.never(5 * time.Minute)
		}
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": elements(false, markdown("Build 7 failed"))}, nil)
		d.afterEdit(editQuiet, "Build 7 failed", id)
	})
}

func TestThoughtsAreNoText(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", elements(false, panelOf("Thinking", "ask <at id=ou_b></at>?"), markdown("42")))
		if m := d.after(settle, "42"); len(m.Mentions) != 0 {
			t.Errorf("a thought mentions %+v", m.Mentions)
		}
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": elements(false, panelOf("思考过程（已完成）", "done"), markdown("42"))}, nil)
		d.never(5 * time.Minute)
		d.send(group, "interactive", elements(false, panelOf("Thinking", "hmm")))
		d.never(time.Hour)
	})
}

func TestACardOfButtonsIsHeard(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.send(group, "interactive", elements(false, map[string]any{"tag": "button", "text": map[string]any{"tag": "plain_text", "content": "Approve"}}))
		d.after(settle, "[Approve]")
	})
}

func TestPublishedDraftsAreBounded(t *testing.T) {
	atDesk(t, func(d *desk) {
		all := func() int {
			d.drafts.mu.Lock()
			defer d.drafts.mu.Unlock()
			return len(d.drafts.all)
		}
		for range 2 * maxPublished {
			d.send(group, "interactive", d.card("done", false))
			d.after(settle, "done")
		}
		if kept := all(); kept != maxPublished {
			t.Errorf("%d drafts are kept", kept)
		}
		if n, _ := d.drafts.sizes(); n != 0 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if kept := all(); kept != 0 {
			t.Errorf("%d drafts are kept for ever", kept)
		}
	})
}

// openclaw-lark ends the stream first and sends the words after, docs/feishu.md 5.2.
func TestCardKitFullCardAfterTheEnd(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
		d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"streaming_mode":false}`, "sequence": 2}, nil)
		time.Sleep(time.Second)
		d.do("PUT", "cardkit/v1/cards/77", map[string]any{"card": map[string]any{"type": "card_json", "data": d.card("short answer", false)}, "sequence": 3}, nil)
		d.after(settle, "short answer")
	})
}

func TestCardKitWithoutAnEnd(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
		d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "half", "sequence": 2}, nil)
		d.after(streamLife, "half")
	})
}

// An agent's tools take minutes. What it wrote before is not published half.
func TestCardKitPausedByATool(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
		put := func(text string, seq int) {
			d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": text, "sequence": seq}, nil)
		}
		settings := func(text string, seq int) {
			d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": text, "sequence": seq}, nil)
		}
		put("I look", 1)
		d.never(3 * time.Minute)
		put("I look it up", 2)
		d.never(6 * time.Minute)
		settings(`{"config":{"streaming_mode":true}}`, 3) // again, since Feishu ends it after 10 minutes
		d.never(4 * time.Minute)
		settings(`{"config":{"summary":{"content":"nearly"}}}`, 4)
		put("I look it up: 42", 5)
		d.never(5 * time.Minute)
		settings(`{"config":{"streaming_mode":false}}`, 6)
		d.after(settle, "I look it up: 42")
	})
}

func TestCardKitUnknownCard(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"99"}}`) // made before we were there
		d.never(time.Minute)
		d.do("PUT", "cardkit/v1/cards/99/elements/content/content", map[string]any{"content": "words", "sequence": 5}, nil)
		d.after(settle, "words")
	})
}

func TestInlineCardBecomesCardKit(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", d.card("", true))
		d.do("POST", "cardkit/v1/cards/id_convert", map[string]any{"message_id": id}, map[string]any{"card_id": "55"})
		d.do("PUT", "cardkit/v1/cards/55/elements/content/content", map[string]any{"content": "words", "sequence": 1}, nil)
		d.do("PATCH", "cardkit/v1/cards/55/settings", map[string]any{"settings": `{"streaming_mode":false}`, "sequence": 2}, nil)
		d.after(settle, "words")
	})
}

// Every way to write a card, in one story.
func TestCardKitOperations(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("one", true)}, map[string]any{"card_id": "7"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"7"}}`)
		d.do("POST", "cardkit/v1/cards/7/elements", map[string]any{"type": "append", "elements": `[{"tag":"markdown","element_id":"b","content":"two"},{"tag":"markdown","element_id":"c","content":"three"},{"tag":"markdown","element_id":"d","content":"four"}]`, "sequence": 1}, nil)
		d.do("PUT", "cardkit/v1/cards/7/elements/b", map[string]any{"element": `{"tag":"markdown","element_id":"b","content":"TWO"}`, "sequence": 2}, nil)
		d.do("PATCH", "cardkit/v1/cards/7/elements/c", map[string]any{"partial_element": `{"content":"THREE"}`, "sequence": 3}, nil)
		d.do("DELETE", "cardkit/v1/cards/7/elements/d", map[string]any{"sequence": 4}, nil)
		d.do("PUT", "cardkit/v1/cards/7/elements/c/content", map[string]any{"content": "stale", "sequence": 3}, nil) // came in late
		d.do("POST", "cardkit/v1/cards/7/batch_update", map[string]any{"actions": `[{"action":"partial_update_setting","params":{"settings":{"config":{"streaming_mode":false}}}}]`, "sequence": 5}, nil)
		d.after(settle, "one\nTWO\nTHREE")
	})
}

func TestRefusedWritesChangeNothing(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", d.card("good", false))
		d.observe(&tapped{call: match("PATCH", "/open-apis/im/v1/messages/"+id), http: &http.Request{}, request: []byte(js(map[string]any{"content": d.card("bad", false)})),
			status: 400, answer: []byte(`{"code":230099,"msg":"x"}`)})
		d.after(settle, "good")
	})
}

func TestHostFailsAndRecovers(t *testing.T) {
	atDesk(t, func(d *desk) {
		var full atomic.Bool
		full.Store(true)
		d.host.sent = func(context.Context, Sent) error {
			if full.Load() {
				return errTest
			}
			return nil
		}
		d.text("hello")
		d.never(2 * time.Minute)
		full.Store(false)
		time.Sleep(time.Minute + time.Second)
		d.now("hello")
	})
}

// A restart goes on where the last run ended: drafts, cards and habits.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			d.habits.edits(false, time.Now(), time.Now())
			d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("a", true)}, map[string]any{"card_id": "77"})
			d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
			d.text("edited text")
		})
	})
	if files := draftFiles(t, dir); len(files) != 2 {
		t.Fatalf("on disk: %v", files)
	}
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			d.n = 10
			d.after(quiet, "edited text")
			d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "a b", "sequence": 2}, nil)
			d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 3}, nil)
			d.after(settle, "a b")
			d.text("more")
			d.after(quiet, "more")
			d.never(time.Hour) // for which they are kept, since the bot may go on
		})
	})
	if files := draftFiles(t, dir); len(files) != 0 {
		t.Errorf("left on disk: %v", files)
	}
}

func draftFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, draftPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestBrokenDraftsAreKeptAside(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"draft-a.json": "{", "draft-b.json": `{}`, "draft-c.json": `{"card_id":"7"}`, "draft-d.json.x.tmp": "", "draft-e.json": "null", "habits.json": "?"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) { d.text("hi"); d.now("hi") })
	})
	files := draftFiles(t, dir)
	for _, f := range files {
		if !strings.HasSuffix(f, ".broken") {
			t.Errorf("left: %s", f)
		}
	}
	if len(files) != 4 {
		t.Errorf("kept aside: %v", files)
	}
}

// A disk that takes nothing costs no message while the process lives.
func TestDraftsWithoutADisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			_ = d.opts.Root.Close() // every write fails from here on
			d.send(group, "interactive", d.card("x", false))
			if _, unsaved := d.drafts.sizes(); unsaved != 1 {
				t.Errorf("%d unsaved", unsaved)
			}
			d.after(settle, "x")
			d.send(group, "interactive", d.card("y", true))
			d.stop() // what no disk holds goes out as it is
			d.now("y")
		})
	})
}

func TestManyDrafts(t *testing.T) {
	atDesk(t, func(d *desk) {
		first := d.send(group, "interactive", d.card("oldest", true))
		for i := range maxDrafts {
			d.drafts.add(&draft{Message: feishu.Message{ID: relay.MessageID(fmt.Sprint("om_x", i)), ChatID: group}, Card: &feishu.Card{}, Wait: waitEnd,
				Created: relay.MillisOf(time.Now()), Touched: relay.MillisOf(time.Now())})
		}
		d.now("oldest")
		_ = first
	})
}

// Few large drafts fill the memory as many small ones do.
func TestLargeDraftsAreBounded(t *testing.T) {
	lost := 0
	s := loadDrafts(nil, slog.New(slog.DiscardHandler), func(c feishu.Counted) {
		if c == countedDraftLost {
			lost++
		}
	})
	add := func(i int, content string) {
		s.add(&draft{Message: feishu.Message{ID: relay.MessageID(fmt.Sprint("om_", i)), ChatID: group, Content: content}})
	}
	large := strings.Repeat("x", 1<<20)
	const fit = (maxBytes + stuckBytes) >> 20
	for i := range fit {
		add(i, large)
	}
	goOut := 0
	for d := range s.all {
		if d.forced {
			goOut++
		}
	}
	if n, _ := s.sizes(); n != fit || lost > 0 || goOut != stuckBytes>>20 {
		t.Errorf("%d drafts, %d of them go out as they are, %d lost", n, goOut, lost)
	}
	add(fit, "one more")
	if s.holds("om_0") || !s.holds("om_1") || lost != 1 {
		t.Errorf("not the oldest went; %d lost", lost)
	}
	card, err := feishu.NewCard([]byte(`{"elements":[{"tag":"markdown","content":"` + large[:1<<19] + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s.onMessage(relay.MessageID(fmt.Sprint("om_", fit)), func(d *draft) { d.Message.Content, d.Card = large, card })
	if s.holds("om_1") || !s.holds("om_2") || lost != 2 {
		t.Errorf("a draft that grew did not move the oldest; %d lost", lost)
	}
}

// An agent that is killed again and again before it has published any draft does not gather ever more of them.
func TestDraftsOfManyRunsAreBounded(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	const most = 2 * (maxDrafts + maxStuck)
	for run := range 2 {
		s := loadDrafts(root, slog.New(slog.DiscardHandler), func(feishu.Counted) {})
		if n, _ := s.sizes(); n > most {
			t.Errorf("run %d begins with %d drafts", run, n)
		}
		for i := range maxDrafts + maxStuck + 100 {
			now := relay.MillisOf(time.Now())
			s.add(&draft{Message: feishu.Message{ID: relay.MessageID(fmt.Sprint("om_", run, "_", i)), ChatID: group},
				Wait: waitEdit, Created: now, Touched: now})
		}
		if n, _ := s.sizes(); n > most {
			t.Errorf("run %d has %d drafts", run, n)
		}
	}
	more := loadDrafts(root, slog.New(slog.DiscardHandler), func(feishu.Counted) {})
	for i := range most {
		id := fmt.Sprint("om_left_", i)
		if err := more.files.Save(id, draft{Wait: waitEdit, Message: feishu.Message{ID: relay.MessageID(id), ChatID: group}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := loadDrafts(root, slog.New(slog.DiscardHandler), func(feishu.Counted) {}).sizes(); n != most {
		t.Errorf("%d of too many drafts are left after a start, want %d", n, most)
	}
}

func FuzzReadDraft(f *testing.F) {
	f.Add([]byte(`{"message":{"ID":"om_1","ChatID":"oc_1"},"created":1,"touched":2}`))
	f.Add([]byte(`{"card_id":"7","card":{"schema":"2.0"},"seq":{"a":1}}`))
	dir := f.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := root.WriteFile("draft-x.json", data, 0o600); err != nil {
			t.Fatal(err)
		}
		for d := range loadDrafts(root, slog.New(slog.DiscardHandler), func(feishu.Counted) {}).all {
			d.finished()
			d.due(&Options{})
			d.touch(time.Now(), true, true)
			out, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			again := &draft{}
			if err := json.Unmarshal(out, again); err != nil || said(again) != said(d) || again.key() != d.key() {
				t.Errorf("%v: %q became %q", err, said(d), said(again))
			}
		}
	})
}

// Killed between the host's record and the removal of the draft, the next run
// publishes the same message again, and the host knows it by its id.
func TestCrashAfterPublishing(t *testing.T) {
	dir, image := t.TempDir(), t.TempDir()
	var first relay.MessageID
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			d.host.sent = func(_ context.Context, m Sent) error {
				first = m.ID
				return os.CopyFS(image, os.DirFS(dir)) // what a crash now leaves
			}
			d.send(group, "interactive", d.card("once", false))
			d.after(settle, "once")
		})
	})
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, image, func(d *desk) {
			time.Sleep(settle)
			synctest.Wait()
			if m := <-d.host.said; m.ID != first || m.Text != "once" {
				t.Errorf("published %+v, want %s again", m, first)
			}
		})
	})
}

// OpenClaw edits posts by PATCH, docs/feishu.md 5.
func TestPostEditedByPatch(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.habits.edits(false, time.Now(), time.Now())
		post := func(text string) string {
			return js(map[string]any{"zh_cn": map[string]any{"content": []any{[]any{map[string]any{"tag": "md", "text": text}}}}})
		}
		id := d.send(group, "post", post("a"))
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": post("a b")}, nil)
		d.after(quiet, "a b")
	})
}

func said(d *draft) string {
	doc := d.doc()
	return doc.Text()
}

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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

// desk is a bot behind a gateway with the default times, in one process, so that a test's clock can be turned.
type desk struct {
	*rig
	n      int
	parent string // that each message answers
}

// inProcess makes calls to a handler without a network.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
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
	store, err := feishu.OpenStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, up: newState(), app: "cli_desk", host: &host{said: make(chan Sent, 64)}, store: store,
		counts: &counts{m: map[string]int{}}, url: "http://127.0.0.1"}
	up := inProcess{r.up}
	r.api = feishu.NewAPI("http://feishu", r.app, "", feishu.WithHTTPClient(&http.Client{Transport: up}))
	r.book = feishu.NewDirectory(store, r.api, nil)
	r.book.LearnSelf(feishu.Self{AppID: r.app, OpenID: "ou_self"})
	r.book.SawChat(group, feishu.ChatGroup)
	o := Options{Upstream: mustURL("http://feishu"), Book: r.book, Host: r.host, API: r.api,
		Counter: r.counts.add, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	change(&o)
	if r.Gateway, err = New(o); err != nil {
		t.Fatal(err)
	}
	r.proxy, r.Gateway.client.Transport = r.newProxy(up), up
	r.client = &http.Client{Transport: inProcess{r.Handler()}}
	r.proved("t-"+r.app, r.app)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	f(&desk{rig: r, parent: "om_question"})
	r.stop()
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
	_, _ = r.book.Close(), store.Close() // a test may have closed it
}

// do makes a call that Feishu accepts with an answer's data.
func (d *desk) do(method, path string, request any, data any) {
	d.t.Helper()
	d.up.say(method+" /open-apis/"+path, 200, js(map[string]any{"code": 0, "data": data}))
	d.call(method, "/open-apis/"+path, js(request))
	d.up.on(method+" /open-apis/"+path, nil)
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
	return map[string]any{"message_id": id, "chat_id": chat, "msg_type": msgType, "parent_id": d.parent, "create_time": fmt.Sprint(time.Now().UnixMilli()),
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

	streamLife = 10*time.Minute + quiet // a bot that goes on is refused in the end
)

func TestPatchedCardWaitsForQuiet(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.send(group, "interactive", d.card("a", false))
		time.Sleep(time.Second)
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("a b", false)}, nil)
		time.Sleep(5 * time.Second)
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("a b c", false)}, nil)
		d.after(quiet, "a b c")
		// What the bot did then does not delay its next card.
		d.send(group, "interactive", d.card("next", false))
		d.after(settle, "next")
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

// The first answer that a bot streams by edits goes out whole and once, and delays no later text.
func TestATextStreamedByEdits(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.text("Let me")
		for i := range 20 {
			time.Sleep(settle - time.Millisecond)
			d.edit(id, "Let me look"+strings.Repeat(" on", i))
		}
		d.after(quiet, "Let me look"+strings.Repeat(" on", 19))
		d.text("next")
		d.after(settle, "next")
	})
}

// A text that is finished by its look goes out at once. If it was only the beginning of the answer, the whole one is an
// edit of it.
func TestATextThatEndsLikeASentence(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			id := d.text("Sure.")
			d.now("Sure.")
			if n := d.stored(); n > 0 {
				t.Errorf("%d drafts are stored", n)
			}
			for _, text := range []string{"Sure. It", "Sure. It is", "Sure. It is 42."} {
				time.Sleep(settle)
				d.edit(id, text)
			}
			d.never(quiet + time.Millisecond)
			d.shows("Sure. It is 42.")
			d.afterEdit(editQuiet-quiet-time.Millisecond, "Sure. It is 42.", id)
			d.text("好的。")
			d.now("好的。")
			d.parent = "" // nor is an alert streamed
			d.text("hello")
			d.now("hello")
		})
	})
}

// A host that hangs in one chat holds up no text elsewhere, and keeps the order in its own.
func TestOneSlowChat(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.book.SawChat("oc_2", feishu.ChatGroup)
		goOn := make(chan struct{})
		d.host.sent = func(_ context.Context, m Sent) error {
			if m.ChatID == group {
				<-goOn
			}
			return nil
		}
		d.send(group, "interactive", d.card("one", false))
		time.Sleep(settle + time.Millisecond)
		d.text("two.")
		d.send("oc_2", "text", textOf("elsewhere."))
		d.now("elsewhere.")
		close(goOn)
		d.now("one")
		d.now("two.")
	})
}

// A text whose end shows that more is to come waits for an edit.
func TestATextWithAnEllipsis(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.text("cold …")
		time.Sleep(5 * time.Second)
		d.edit(id, "cold as ice")
		d.after(quiet, "cold as ice")
		d.text("and so on …")
		d.after(quiet, "and so on …")
	})
}

// A typo that is corrected after its text was published is shown to readers; a correction that says something else is
// given to the bots as well.
func TestACorrectedText(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.text("I meen tomorrow")
		d.after(settle, "I meen tomorrow")
		time.Sleep(4 * time.Second)
		d.edit(id, "I mean tomorrow")
		d.never(quiet + time.Millisecond)
		d.shows("I mean tomorrow")
		d.text("next")
		d.after(settle, "next")
		for range 20 {
			d.edit(id, "I mean on Friday")
		}
		d.never(quiet + time.Millisecond)
		d.shows("I mean on Friday")
		d.afterEdit(editQuiet-quiet-time.Millisecond, "I mean on Friday", id)
	})
}

// An edit of a message that was published long ago is shown, and wakes as well as long as it is known what it said.
func TestAnEditOfAnOldText(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.text("the wrong answer")
		d.after(settle, "the wrong answer")
		d.never(time.Hour)
		for _, text := range []string{"the", "the right", "the right answer"} {
			d.edit(id, text)
		}
		d.never(quiet + time.Millisecond)
		d.shows("the right answer")
		d.afterEdit(editQuiet-quiet-time.Millisecond, "the right answer", id)
		for i := range maxRecent {
			d.recent.sent.Add(relay.MessageID(fmt.Sprint("om_x", i)), feishu.Message{})
		}
		d.never(time.Hour)
		d.edit(id, "the very answer") // what it said is forgotten
		d.never(time.Hour)
		d.shows("the very answer")
	})
}

// shows expects that readers were shown a text as an edit, and nothing else.
func (d *desk) shows(text string) {
	d.t.Helper()
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	var texts []string
	for _, m := range d.host.edited {
		texts = append(texts, m.Text)
	}
	if d.host.edited = nil; len(texts) != 1 || texts[0] != text {
		d.t.Errorf("readers were shown %q, want %q", texts, text)
	}
}

// refuse makes a call that Feishu refuses.
func (d *desk) refuse(code int, method, path string, request any) {
	d.t.Helper()
	d.up.say(method+" /open-apis/"+path, 400, js(map[string]any{"code": code, "msg": "no"}))
	d.call(method, "/open-apis/"+path, js(request))
	d.up.on(method+" /open-apis/"+path, nil)
}

// An answer that the bot cannot finish in one way and then writes in another is one message.
func TestAnAnswerWrittenInTwoWays(t *testing.T) {
	const whole = "Let me look. It is **42**, see below."
	stream := func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
		d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "Let me look. It", "sequence": 1}, nil)
	}
	content := func(d *desk, code, sequence int) {
		d.refuse(code, "PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "Let me look. It is", "sequence": sequence})
	}
	end := func(d *desk) {
		d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 9}, nil)
	}
	for name, first := range map[string]func(d *desk){
		"a card that Feishu no longer streams": func(d *desk) {
			stream(d)
			content(d, 200850, 2)
			content(d, 300309, 3)
			end(d)
			time.Sleep(20 * time.Second)
		},
		"a card that streams for too long": func(d *desk) {
			stream(d)
			time.Sleep(streamLife - 20*time.Second)
			content(d, 200850, 2)
			time.Sleep(30 * time.Second)
		},
		"a card with too many tables": func(d *desk) {
			stream(d)
			content(d, 230099, 2)
			time.Sleep(5 * time.Second)
		},
		"a text that was edited too often, and is recalled": func(d *desk) {
			id := d.text("Let me")
			time.Sleep(time.Second)
			d.edit(id, "Let me look. It")
			time.Sleep(time.Second)
			d.refuse(230072, "PUT", "im/v1/messages/"+id, map[string]any{"msg_type": "text", "content": textOf("Let me look. It is")})
			time.Sleep(10 * time.Second)
			d.do("DELETE", "im/v1/messages/"+id, nil, map[string]any{})
		},
		"the same, and it stays": func(d *desk) {
			id := d.text("I look it up")
			d.refuse(230072, "PUT", "im/v1/messages/"+id, map[string]any{"msg_type": "text", "content": textOf("Let me look. It is")})
			time.Sleep(30 * time.Second)
		},
		"an edited text": func(d *desk) {
			id := d.text("Let me")
			time.Sleep(time.Second)
			d.edit(id, "Let me look. It is 4")
			time.Sleep(2 * time.Second)
		},
		"an inline card": func(d *desk) { d.send(group, "interactive", d.card("Let me look. It is", false)) },
		"a text while the bot types": func(d *desk) {
			d.recent.chats.Add("om_question", group)
			d.do("POST", "im/v1/messages/om_question/reactions", map[string]any{"reaction_type": map[string]any{"emoji_type": "Typing"}}, map[string]any{"reaction_id": "re_1"})
			d.text("Let me look.")
			time.Sleep(30 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				first(d)
				d.silent()
				d.recent.typing.Purge()
				d.send(group, "post", js(map[string]any{"zh_cn": map[string]any{"content": []any{[]any{map[string]any{"tag": "md", "text": whole}}}}}))
				d.now(whole)
				d.never(time.Hour)
				if len(d.host.edited) > 0 {
					t.Errorf("shown %+v", d.host.edited)
				}
			})
		})
	}
}

// Messages that only look alike are messages of their own.
func TestMessagesThatLookAlike(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.text("ping")
		d.text("ping")
		d.now("ping")
		d.after(settle, "ping")
		id := d.text("the step")
		time.Sleep(time.Second)
		d.edit(id, "step one")
		d.text("another thing")
		d.now("step one")
		d.after(settle, "another thing")
	})
}

// A bot that has too many calls refused goes on with its card, whatever it says beside it.
func TestARefusalForNow(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
		put := map[string]any{"content": "the whole", "sequence": 1}
		d.refuse(230020, "PUT", "cardkit/v1/cards/77/elements/content/content", put)
		d.text("An alert.")
		d.now("An alert.")
		d.do("PUT", "cardkit/v1/cards/77/elements/content/content", put, nil)
		d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"streaming_mode":false}`, "sequence": 2}, nil)
		d.after(settle, "the whole")
		id := d.text("Let me")
		d.refuse(99991400, "PUT", "im/v1/messages/"+id, map[string]any{"msg_type": "text", "content": textOf("Let me look")})
		time.Sleep(20 * time.Second)
		d.edit(id, "Let me look")
		d.after(quiet, "Let me look")
	})
}

// A bot that does not remove its typing sign waits for it once.
func TestATypingSignThatStays(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.recent.chats.Add("om_question", group)
		d.do("POST", "im/v1/messages/om_question/reactions", map[string]any{"reaction_type": map[string]any{"emoji_type": "Typing"}}, map[string]any{"reaction_id": "re_1"})
		d.send(group, "image", `{"image_key":"img_1"}`)
		d.now("[图片]")
		d.text("It is 42.")
		d.after(editQuiet, "It is 42.")
		d.text("And 43.")
		d.now("And 43.")
		d.do("DELETE", "im/v1/messages/om_question/reactions/re_1", nil, nil)
		d.do("POST", "im/v1/messages/om_question/reactions", map[string]any{"reaction_type": map[string]any{"emoji_type": "Typing"}}, map[string]any{"reaction_id": "re_2"})
		d.text("It is done.")
		d.after(editQuiet, "It is done.")
	})
}

func TestTypingSignTakenBackEndsEdits(t *testing.T) {
	atDesk(t, func(d *desk) {
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
		if n := d.drafts.waiting(); n != 0 || d.counts.of("draft_expired") != 1 {
			t.Errorf("%d drafts, %v", n, d.counts.m)
		}
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
		if m.Text != text || string(m.EditOf) != of || string(m.ID) == of || string(m.ParentID) != d.parent {
			d.t.Errorf("published %s %q, an edit of %q, to %q; want %q, an edit of %s", m.ID, m.Text, m.EditOf, m.ParentID, text, of)
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
}

// So does a text that was edited, and quiet for a while.
func TestTextThatGoesOnAfterItWasPublished(t *testing.T) {
	atDesk(t, func(d *desk) {
		id := d.text("I look it up")
		d.after(settle, "I look it up")
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

// What is published goes first where there are too many, then the oldest that waits; none is kept for ever.
func TestDraftsAreBounded(t *testing.T) {
	atDesk(t, func(d *desk) {
		published := d.send(group, "interactive", d.card("done", false))
		d.after(settle, "done")
		first := d.send(group, "interactive", d.card("first", true))
		d.drafts.mu.Lock()
		for i := range maxDrafts - 2 {
			d.drafts.all = append(d.drafts.all, &draft{Message: feishu.Message{ID: relay.MessageID(fmt.Sprint("om_x", i)),
				ChatID: "oc_x"}, Touched: relay.MillisOf(time.Now()), Due: relay.MillisOf(time.Now().Add(time.Minute))})
		}
		d.drafts.mu.Unlock()
		d.send(group, "interactive", d.card("second", true))
		if d.drafts.holds(relay.MessageID(published)) || d.counts.of("draft_lost") != 0 {
			t.Errorf("what is published does not go first; %d are lost", d.counts.of("draft_lost"))
		}
		d.send(group, "interactive", d.card("last", true))
		if n := d.drafts.waiting(); n != maxDrafts || d.counts.of("draft_lost") != 1 || d.drafts.holds(relay.MessageID(first)) {
			t.Errorf("%d drafts, %d lost", n, d.counts.of("draft_lost"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := d.stored(); n != 0 {
			t.Errorf("%d drafts are kept for ever", n)
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
		d.refuse(230099, "PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("bad", false)})
		d.after(editQuiet, "good") // for which the bot may write another one
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

// A restart goes on where the last run ended.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("a", true)}, map[string]any{"card_id": "77"})
			d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
			d.edit(d.text("edited"), "edited text")
		})
	})
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			d.n = 10
			d.after(quiet, "edited text")
			d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "a b", "sequence": 2}, nil)
			d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 3}, nil)
			d.after(settle, "a b")
			d.text("more")
			d.after(settle, "more")
			d.never(time.Hour) // for which they are kept, since the bot may go on
		})
	})
}

// A disk that takes nothing costs no message while the process lives.
func TestDraftsWithoutADisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		withDesk(t, dir, func(d *desk) {
			_ = d.store.Close() // every write fails from here on
			d.send(group, "interactive", d.card("x", false))
			d.after(settle, "x")
			d.send(group, "interactive", d.card("y", true))
			d.stop() // what no disk holds goes out as it is
			d.now("y")
		})
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
		post := func(text string) string {
			return js(map[string]any{"zh_cn": map[string]any{"content": []any{[]any{map[string]any{"tag": "md", "text": text}}}}})
		}
		id := d.send(group, "post", post("a"))
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": post("a b")}, nil)
		d.after(quiet, "a b")
		id = d.send(group, "post", post("It is 41."))
		d.now("It is 41.")
		d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": post("It is 42.")}, nil)
		d.afterEdit(editQuiet, "It is 42.", id)
	})
}

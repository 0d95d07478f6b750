package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/internal/test/talktest"
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
	n       int
	parent  string            // that each message answers
	mail    *peerchat.Message // that each message answers in its place; nil: none
	ids     map[string]string // of messages and reactions in chats with agents
	refuses int               // the code with which Feishu refuses the next call
	last    Sent              // what was published last
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
	o.Peers, err = peerchat.Open(chatsOf(&o))
	if err != nil {
		t.Fatal(err)
	}
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
	f(&desk{rig: r, parent: "om_question", ids: map[string]string{}})
	r.stop()
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
	_, _ = r.book.Close(), store.Close() // a test may have closed it
}

// do makes a call that Feishu answers with data, or refuses.
func (d *desk) do(method, path string, request any, data any) (answer string) {
	d.t.Helper()
	status := http.StatusOK
	if d.refuses != 0 {
		status = http.StatusBadRequest
	}
	d.up.say(method+" /open-apis/"+path, status, js(map[string]any{"code": d.refuses, "msg": "m", "data": data}))
	_, answer = d.call(method, "/open-apis/"+path, js(request))
	d.up.on(method+" /open-apis/"+path, nil)
	d.refuses = 0
	return answer
}

// send is an accepted send; it returns the message's id.
func (d *desk) send(chat, msgType, content string) string {
	d.t.Helper()
	body := map[string]any{"receive_id": chat, "msg_type": msgType, "content": content}
	d.n++
	if d.mail != nil {
		path := "im/v1/messages/" + string(d.mail.ID) + "/reply"
		if d.parent == "" {
			path, body["receive_id"] = "im/v1/messages", d.mail.Chat
		}
		id := idIn(d.t, d.do("POST", path, body, nil), "message_id")
		d.ids[fmt.Sprint("$", d.n)] = id
		return id
	}
	id := fmt.Sprint("om_", d.n)
	d.do("POST", "im/v1/messages", body, d.message(id, chat, msgType, content))
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

func postOf(text string) string {
	return js(map[string]any{"zh_cn": map[string]any{"content": []any{[]any{map[string]any{"tag": "md", "text": text}}}}})
}

// after expects silence for the time before, and text right behind it.
func (d *desk) after(quiet time.Duration, text string) {
	d.t.Helper()
	d.never(quiet - time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	d.now(text)
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
	case d.last = <-d.host.said:
		if d.last.Text != text || peerchat.IsID(d.last.ChatID) != (d.mail != nil) {
			d.t.Errorf("published %q in %s, want %q", d.last.Text, d.last.ChatID, text)
		}
	default:
		d.t.Errorf("nothing was published, want %q", text)
	}
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

const (
	settle = 1500 * time.Millisecond
	quiet  = 8 * time.Second
)

// The conversations of testdata/drafts.txt: a call of the bot, or what is to be seen of it, a line.
func TestDrafts(t *testing.T) {
	talktest.Run(t, "testdata/drafts.txt", func(t *testing.T, talk string) {
		dir := t.TempDir()
		for i, part := range strings.Split(talk, "\nrestart\n") {
			synctest.Test(t, func(t *testing.T) {
				if line, _, _ := strings.Cut(part, "\n"); strings.HasPrefix(line, "down ") {
					time.Sleep(duration(t, line[len("down "):]))
				}
				withDesk(t, dir, func(d *desk) {
					d.n = 100 * i
					for line := range talktest.Steps(t, part) {
						d.step(line)
					}
				})
			})
		}
	})
}

func duration(t testing.TB, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// step is a line of a conversation.
func (d *desk) step(line string) {
	const cards = "cardkit/v1/cards/77"
	verb, rest, _ := strings.Cut(strings.ReplaceAll(line, `\n`, "\n"), " ")
	arg, text, _ := strings.Cut(rest, " ")
	arg = cmp.Or(d.ids[arg], arg)
	message, pause := "im/v1/messages/"+arg, func() time.Duration { return duration(d.t, arg) }
	switch verb {
	case "down": // for this long the sidecar was down
	case "mail": // another agent has written
		mail, err := d.opts.Peers.Receive("writer", time.Now().String(), "please write it", nil)
		if err != nil {
			d.t.Fatal(err)
		}
		d.mail = &mail
	case "text":
		d.text(rest)
	case "alert": // which answers nothing
		parent := d.parent
		d.parent = ""
		d.text(rest)
		d.parent = parent
	case "post":
		d.send(group, "post", postOf(rest))
	case "card", "stream":
		d.send(group, "interactive", d.card(rest, verb == "stream"))
	case "elsewhere":
		d.book.SawChat("oc_2", feishu.ChatGroup)
		d.send("oc_2", "interactive", d.card(rest, false))
	case "elements":
		d.send(group, "interactive", `{"schema":"2.0","body":{"elements":[`+rest+`]}}`)
	case "image":
		d.send(group, "image", `{"image_key":"img_1"}`)
	case "edit":
		d.edit(arg, text)
	case "patch":
		d.do("PATCH", message, map[string]any{"content": d.card(text, false)}, nil)
	case "patchpost":
		d.do("PATCH", message, map[string]any{"content": postOf(text)}, nil)
	case "delete":
		d.do("DELETE", message, nil, map[string]any{})
	case "recalled": // by somebody else
		d.tapEvent(recallOf(d.app, group, arg))
	case "cardkit", "plainkit": // makes and sends a card of CardKit, which streams or does not
		d.do("POST", "cardkit/v1/cards", map[string]any{"data": d.card(rest, verb == "cardkit")}, map[string]any{"card_id": "77"})
		d.step("send77")
	case "send77":
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
	case "put":
		d.do("PUT", cards+"/elements/content/content", map[string]any{"content": text, "sequence": json.Number(arg)}, nil)
	case "whole":
		card := map[string]any{"type": "card_json", "data": d.card(text, false)}
		d.do("PUT", cards, map[string]any{"card": card, "sequence": json.Number(arg)}, nil)
	case "settings":
		d.do("PATCH", cards+"/settings", map[string]any{"settings": text, "sequence": json.Number(arg)}, nil)
	case "end":
		d.step("settings " + arg + ` {"config":{"streaming_mode":false}}`)
	case "types", "untypes":
		on := d.parent
		if d.mail != nil {
			on = string(d.mail.ID)
		}
		d.recent.chats.Add(relay.MessageID(d.parent), group)
		if path := "im/v1/messages/" + on + "/reactions"; verb == "types" {
			request := map[string]any{"reaction_type": map[string]any{"emoji_type": "Typing"}}
			answer := d.do("POST", path, request, map[string]any{"reaction_id": "re_" + arg})
			d.ids["re_"+arg] = idIn(d.t, answer, "reaction_id")
		} else {
			d.do("DELETE", path+"/"+d.ids["re_"+arg], nil, nil)
		}
	case "call": // METHOD PATH REQUEST ANSWER
		if d.mail != nil {
			text = strings.ReplaceAll(text, "{mail}", string(d.mail.ID))
		}
		path, request, _ := strings.Cut(text, " ")
		request, data, _ := strings.Cut(request, "} {")
		if data != "" {
			request, data = request+"}", "{"+data
		}
		d.do(arg, path, json.RawMessage(request), json.RawMessage(cmp.Or(data, "{}")))
	case "refuse": // Feishu refuses a call with a code
		fmt.Sscan(arg, &d.refuses)
		d.step(text)
	case "fails": // the host takes nothing for some times
		n := 0
		fmt.Sscan(arg, &n)
		d.host.sent = func(context.Context, Sent) error {
			if n--; n >= 0 {
				return errTest
			}
			return nil
		}
	case "forget": // what the last messages said
		d.recent.sent.Purge()
	case "wait":
		time.Sleep(pause())
	case "now":
		d.now(rest)
	case "after":
		d.after(pause(), text)
	case "within":
		time.Sleep(pause())
		d.now(text)
	case "never":
		d.never(pause())
	case "edited": // as after, as an edit of a message
		of, text, _ := strings.Cut(text, " ")
		d.after(pause(), text)
		if m := d.last; string(m.EditOf) != of || string(m.ID) == of || string(m.ParentID) != d.parent {
			d.t.Errorf("published %s, an edit of %q, to %q", m.ID, m.EditOf, m.ParentID)
		}
	case "shows":
		d.shows(rest)
	case "mentions":
		d.is(len(d.last.Mentions), arg)
	case "stored":
		d.is(d.stored(), arg)
	case "waiting":
		d.is(d.drafts.waiting(), arg)
	case "counted":
		d.is(d.counts.of(text), arg)
	case "gone": // it was recalled twice and is never published
		d.never(time.Hour)
		if got := d.host.recalls(); len(got) != 2 || got[0].chat != group || string(got[0].id) != arg || got[0].at == 0 {
			d.t.Errorf("the host was told %v", got)
		}
		d.is(d.drafts.waiting(), "0")
	default:
		d.t.Fatalf("%q is not a verb", verb)
	}
}

func (d *desk) is(got int, want string) {
	if fmt.Sprint(got) != want {
		d.t.Errorf("got %d, want %s", got, want)
	}
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
		time.Sleep(draftLife)
		synctest.Wait()
		if n := d.stored(); n != 0 {
			t.Errorf("%d drafts are kept for ever", n)
		}
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
		})
	})
}

// What a disk did not take is on it once it does.
func TestDraftsWaitForADisk(t *testing.T) {
	atDesk(t, func(d *desk) {
		full, err := feishu.OpenStore(t.TempDir(), nil)
		if err != nil || full.Close() != nil { // every write fails from here on
			t.Fatal(err)
		}
		d.drafts.store = full
		d.send(group, "interactive", d.card("half", true))
		d.never(time.Second)
		d.drafts.mu.Lock()
		d.drafts.store = d.store
		d.drafts.mu.Unlock()
		d.never(lookAgain)
		d.is(d.stored(), "1")
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

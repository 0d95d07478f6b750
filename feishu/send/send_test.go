package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// refuse answers the calls of which n says so with a status and a code.
func refuse(status, code int, which func(n int, c call) bool) func(http.ResponseWriter, call) bool {
	n := 0
	return func(w http.ResponseWriter, c call) bool {
		n++
		if !which(n, c) {
			return false
		}
		respond(w, status, fmt.Sprintf(`{"code":%d,"msg":"no"}`, code))
		return true
	}
}

// sendAll sends m and returns what Feishu accepted.
func sendAll(t *testing.T, c *Sender, m Message) (sent []feishu.Message, err error) {
	err = c.Send(t.Context(), m, func(m feishu.Message) error {
		sent = append(sent, m)
		return nil
	})
	return sent, err
}

func always(int, call) bool { return true }

func isReply(_ int, c call) bool { return strings.HasSuffix(c.path, "/reply") }

func TestSendText(t *testing.T) {
	f := newFake(t)
	c := f.sender(t)
	c.book.LearnBot(feishu.Bot{OpenID: "ou_b", Name: "BotB"})
	got, err := sendAll(t, c, Message{ChatID: "oc_1", Content: "@BotB hi <b> & co"})
	if m := got[0]; err != nil || m.ID != "om_1" || m.ChatID != "oc_1" || m.Type != "text" || m.CreateTime != 1615380573411 || m.Sender.AppID != "cli_a" {
		t.Errorf("got %+v, %v", m, err)
	}
	call := f.sends()[0]
	if call.path != "/open-apis/im/v1/messages?receive_id_type=chat_id" || call.chat != "oc_1" || call.token != "Bearer t-1" {
		t.Errorf("call %+v", call)
	}
	if want := `<at user_id="ou_b">BotB</at> hi <b> & co`; call.text != want {
		t.Errorf("sent %s, want %s", call.text, want)
	}
	if chat := c.book.Chat("oc_1"); chat.In != feishu.Yes {
		t.Errorf("the chat is not known: %+v", chat)
	}
}

func TestSendInPieces(t *testing.T) {
	f := newFake(t)
	c := f.sender(t)
	text := "# Title\n" + strings.Repeat(strings.Repeat("好", 99)+"\n", 100)
	var when []int // sends made when each piece was reported
	err := c.Send(t.Context(), Message{ChatID: "oc_1", Content: text, ReplyTo: "om_q", InThread: true, IdempotencyKey: "k"}, func(feishu.Message) error {
		when = append(when, len(f.sends()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(when, []int{1, 2, 3}) {
		t.Errorf("reported after %v sends", when)
	}
	var all strings.Builder
	ids := map[string]bool{}
	for _, c := range f.sends() {
		if c.path != "/open-apis/im/v1/messages/om_q/reply" || !c.inThread || c.kind != "post" {
			t.Errorf("call %s %s, in thread %t", c.path, c.kind, c.inThread)
		}
		if c.size > 30_000 || len(c.uuid) > 50 {
			t.Errorf("%d bytes, uuid %s", c.size, c.uuid)
		}
		ids[c.uuid] = true
		all.WriteString(c.text + "\n")
	}
	if words(all.String()) != words(text) || len(ids) != 3 {
		t.Errorf("%d ids, text of %d bytes", len(ids), all.Len())
	}
}

func TestARepeatHasTheSameIDs(t *testing.T) {
	f := newFake(t)
	c := f.sender(t)
	for _, s := range []Message{
		{ChatID: "oc_1", Content: "a", IdempotencyKey: "k"},
		{ChatID: "oc_1", Content: "a", IdempotencyKey: "k"},
		{ChatID: "oc_2", Content: "a", IdempotencyKey: "k"},
		{ChatID: "oc_1", Content: "a", IdempotencyKey: "l"},
		{ChatID: "oc_1", Content: "a"},
		{ChatID: "oc_1", Content: "a"},
	} {
		if _, err := sendAll(t, c, s); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, c := range f.sends() {
		ids = append(ids, c.uuid)
	}
	if ids[0] != ids[1] {
		t.Error("a repeat has another uuid")
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 5 {
		t.Errorf("%d different uuids, want 5", n)
	}
}

func TestAReplyToWhatIsGone(t *testing.T) {
	for _, code := range []int{230011, 231003, 230110} {
		f := newFake(t)
		f.send = refuse(400, code, isReply)
		c := f.sender(t)
		got, err := sendAll(t, c, Message{ChatID: "oc_1", Content: strings.Repeat("x", 5000), ReplyTo: "om_q"})
		if err != nil || len(got) != 2 {
			t.Fatalf("%d: %d messages, %v", code, len(got), err)
		}
		var paths []string
		for _, c := range f.sends() {
			paths = append(paths, strings.TrimPrefix(c.path, "/open-apis/im/v1/messages"))
			if c.inThread || c.tellsThread != strings.HasSuffix(c.path, "/reply") {
				t.Errorf("%s: reply_in_thread is %t, there %t", c.path, c.inThread, c.tellsThread)
			}
		}
		want := []string{"/om_q/reply", "?receive_id_type=chat_id", "?receive_id_type=chat_id"}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSendFails(t *testing.T) {
	f := newFake(t)
	f.send = refuse(400, 230002, func(n int, _ call) bool { return n == 2 })
	c := f.sender(t)
	got, err := sendAll(t, c, Message{ChatID: "oc_1", Content: strings.Repeat("x", 9000)})
	if len(got) != 1 || !strings.HasPrefix(err.Error(), "sent 1 of 3 messages: ") {
		t.Errorf("%d messages, %v", len(got), err)
	}
	if code, ok := errors.AsType[*feishu.CodeError](err); !ok || code.Code != 230002 {
		t.Errorf("no code in %v", err)
	}
	if chat := c.book.Chat("oc_1"); chat.In != feishu.No {
		t.Errorf("the bot is still in %+v", chat)
	}
	for _, s := range []Message{{Content: "x"}, {ChatID: "oc_1"}} {
		if _, err := sendAll(t, c, s); !errors.Is(err, ErrNoChat) && !errors.Is(err, ErrNoText) {
			t.Errorf("got %v", err)
		}
	}
}

func TestWhatCannotBeRelayedIsStillSent(t *testing.T) {
	f := newFake(t)
	full := errors.New("disk full")
	m := Message{ChatID: "oc_1", Content: strings.Repeat("x", 5000)}
	err := f.sender(t).Send(t.Context(), m, func(feishu.Message) error { return full })
	if n := len(f.sends()); n != 2 || !errors.Is(err, full) {
		t.Errorf("%d messages, %v", n, err)
	}
}

func TestPassingErrorsAreTriedAgain(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"HTTP status":    func(w http.ResponseWriter) { respond(w, 502, `<html>`) },
		"gateway":        func(w http.ResponseWriter) { w.WriteHeader(504) },
		"with a code":    func(w http.ResponseWriter) { respond(w, 500, `{"code":1,"msg":"x"}`) },
		"being sent":     func(w http.ResponseWriter) { respond(w, 400, `{"code":230049,"msg":"x"}`) },
		"token":          func(w http.ResponseWriter) { respond(w, 200, `{"code":99991668,"msg":"x"}`) },
		"a cut answer":   func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99"); respond(w, 200, `{"code"`) },
		"no answer":      func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"Feishu's limit": func(w http.ResponseWriter) { respond(w, 400, `{"code":230020,"msg":"x"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			n := 0
			f.send = func(w http.ResponseWriter, _ call) bool {
				if n++; n > maxAgain {
					return false
				}
				answer(w)
				return true
			}
			c := f.sender(t)
			if _, err := sendAll(t, c, Message{ChatID: "oc_1", Content: "x"}); err != nil {
				t.Fatal(err)
			}
			calls := f.sends()
			for _, c := range calls {
				if c.uuid != calls[0].uuid {
					t.Error("another uuid")
				}
			}
			if name == "token" && calls[0].token == calls[1].token {
				t.Error("the refused token was used again")
			}
		})
	}
}

func TestErrorsThatStayAreGivenUp(t *testing.T) {
	for _, tt := range []struct{ status, code, calls int }{
		{500, 1, 1 + maxAgain},
		{400, 230025, 1},
		{403, 99991672, 1},
		{404, 99991201, 1},
	} {
		f := newFake(t)
		f.send = refuse(tt.status, tt.code, always)
		_, err := sendAll(t, f.sender(t), Message{ChatID: "oc_1", Content: "x"})
		if code, ok := errors.AsType[*feishu.CodeError](err); !ok || code.Code != tt.code {
			t.Errorf("%d: %v", tt.code, err)
		}
		if n := len(f.sends()); n != tt.calls {
			t.Errorf("%d: %d calls, want %d", tt.code, n, tt.calls)
		}
	}
}

// A token that Feishu does not give out just now is asked for again.
func TestATokenIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := inBubble(t, accept, func(w http.ResponseWriter, r *http.Request) {
			if n++; n > 2 {
				token(w, r)
				return
			}
			respond(w, 400, `{"code":99991400,"msg":"request trigger frequency limit"}`)
		})
		if _, err := sendAll(t, c, Message{ChatID: "oc_1", Content: "x"}); err != nil {
			t.Error(err)
		}
	})
}

// trip lets the tests of time do without a network.
type trip func(*http.Request) *http.Response

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return t(r), nil
}

// inBubble gives a sender whose sends are answered by answer, and whose questions for a token by tokens.
func inBubble(t *testing.T, answer, tokens http.HandlerFunc) *Sender {
	client := &http.Client{Transport: trip(func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		if strings.Contains(r.URL.Path, "/auth/") {
			tokens(w, r)
		} else {
			answer(w, r)
		}
		return w.Result()
	})}
	return New(feishu.NewAPI("http://feishu.test", "cli_a", "secret", feishu.WithHTTPClient(client)), book(t), func(feishu.Counted) {})
}

func token(w http.ResponseWriter, _ *http.Request) {
	respond(w, 200, `{"code":0,"tenant_access_token":"t-1","expire":7200}`)
}

func accept(w http.ResponseWriter, _ *http.Request) {
	respond(w, 200, `{"code":0,"data":{"message_id":"om_1","chat_id":"oc_1"}}`)
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var times []time.Duration
		start := time.Now()
		c := inBubble(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			times = append(times, time.Since(start))
			mu.Unlock()
			accept(w, r)
		}, token)
		send := func(chat string, n int) {
			for range n {
				if _, err := sendAll(t, c, Message{ChatID: relay.ChatID(chat), Content: "x"}); err != nil {
					t.Error(err)
				}
			}
		}
		send("oc_1", 20)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("20 messages to one chat took %v, want 3s", took)
		}
		time.Sleep(10 * time.Second)
		start, times = time.Now(), nil
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() { send(fmt.Sprint("oc_", i), 5) })
		}
		wg.Wait()
		if took := time.Since(start).Round(time.Millisecond); took != 2*time.Second {
			t.Errorf("150 messages to 30 chats took %v, want 2s", took)
		}
	})
}

func TestFeishusLimitsAreWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name        string
		status      int
		code        int
		reset       string
		refusals    int
		least, most time.Duration
	}{
		{"told", 429, 99991400, "7", 2, 14 * time.Second, 14 * time.Second},
		{"a fraction", 429, 99991400, "0.5", 1, time.Second / 2, time.Second / 2},
		{"not told", 400, 230020, "", 3, 3500 * time.Millisecond, 3500 * time.Millisecond},
		{"nonsense", 429, 99991400, "1e99", 1, 500 * time.Millisecond, 500 * time.Millisecond},
		{"for ever", 429, 99991400, "7", 1 << 30, 50 * time.Second, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				c := inBubble(t, func(w http.ResponseWriter, r *http.Request) {
					if n++; n > tt.refusals {
						accept(w, r)
						return
					}
					w.Header().Set("x-ogw-ratelimit-reset", tt.reset)
					respond(w, tt.status, fmt.Sprintf(`{"code":%d,"msg":"slow down"}`, tt.code))
				}, token)
				start := time.Now()
				_, err := sendAll(t, c, Message{ChatID: "oc_1", Content: "x"})
				if took := time.Since(start); took < tt.least || took > tt.most {
					t.Errorf("took %v, want %v to %v", took, tt.least, tt.most)
				}
				if forEver := tt.refusals > 100; forEver != (err != nil) {
					t.Errorf("got %v", err)
				} else if code, ok := errors.AsType[*feishu.CodeError](err); forEver && (!ok || code.Code != tt.code) {
					t.Errorf("no code in %v", err)
				}
			})
		})
	}
}

func TestAnswersToOneChatAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []byte
		c := inBubble(t, func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			order = append(order, raw[bytes.LastIndex(raw, []byte(`text\":\"`))+len(`text\":\"`)])
			accept(w, r)
		}, token)
		var wg sync.WaitGroup
		for _, s := range []string{"a", "b", "c"} {
			wg.Go(func() {
				if _, err := sendAll(t, c, Message{ChatID: "oc_1", Content: strings.Repeat(s, 11_000)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := string(slices.Compact(order)); len(order) != 9 || len(got) != 3 {
			t.Errorf("sent in the order %s", order)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Send(ctx, Message{ChatID: "oc_1", Content: "x"}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestChatsAreBounded(t *testing.T) {
	l := New(nil, nil, nil)
	first := l.chat("oc_first")
	for i := range 2 * maxChats {
		l.chat(relay.ChatID(fmt.Sprint(i)))
		if l.chat("oc_first") != first {
			t.Fatal("a chat in use was forgotten")
		}
	}
	if n := l.chats.Len(); n != maxChats {
		t.Errorf("%d chats", n)
	}
}

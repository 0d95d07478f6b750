package feishu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// fakeAnswers is a Feishu in this process, which counts what it is asked.
type fakeAnswers struct {
	mu     sync.Mutex
	asked  map[string]int
	answer func(path string) string
}

func (f *fakeAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/open-apis/")
	f.mu.Lock()
	f.asked[path]++
	f.mu.Unlock()
	w := httptest.NewRecorder()
	body := f.answer(path)
	if body == "" {
		return nil, errors.New("no network")
	}
	_, _ = io.WriteString(w, body)
	return w.Result(), nil
}

// calls is how many calls there were since the last time.
func (f *fakeAnswers) calls() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, times := range f.asked {
		n += times
	}
	clear(f.asked)
	return n
}

// asking runs a test with a directory and its Feishu, and a clock that can be turned.
func asking(t *testing.T, f func(t *testing.T, d *feishu.Directory, up *fakeAnswers)) {
	synctest.Test(t, func(t *testing.T) {
		up := &fakeAnswers{asked: map[string]int{}}
		api := feishu.NewAPI("http://feishu", "cli_a", "secret", feishu.WithHTTPClient(&http.Client{Transport: up}))
		api.SawToken("t-a")
		d := feishu.NewDirectory(nil, api, nil)
		defer d.Close()
		f(t, d, up)
	})
}

// In a company where 1,500 people write, Feishu is asked for each name once, and not once a message.
func TestEachPersonIsAskedAboutOnce(t *testing.T) {
	asking(t, func(t *testing.T, d *feishu.Directory, up *fakeAnswers) {
		up.answer = func(path string) string { return `{"code":0,"data":{"user":{"name":"` + path + `"}}}` }
		for range 3 {
			for i := range 1500 {
				id := relay.OpenID(fmt.Sprint("ou_", i))
				if err := d.AskPerson(t.Context(), id, 24*time.Hour); err != nil {
					t.Fatal(err)
				}
				if who, _ := d.Name(string(id)); who.Name != "contact/v3/users/"+string(id) {
					t.Fatalf("%s is called %q", id, who.Name)
				}
			}
		}
		if n := up.calls(); n != 1500 {
			t.Errorf("%d questions", n)
		}
		time.Sleep(24 * time.Hour)
		_ = d.AskPerson(t.Context(), "ou_1", 24*time.Hour)
		if n := up.calls(); n != 1 {
			t.Errorf("%d questions a day later", n)
		}
	})
}

// A refusal is an answer; a network that fails is tried again soon.
func TestQuestionsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		again  time.Duration
	}{
		"refused":    {`{"code":99991672,"msg":"no scope"}`, time.Hour},
		"no network": {"", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, d *feishu.Directory, up *fakeAnswers) {
				up.answer = func(string) string { return c.answer }
				for _, pause := range []time.Duration{0, c.again - time.Second, time.Second} {
					time.Sleep(pause)
					if err := d.AskBots(t.Context(), "oc_1", time.Hour); err == nil {
						t.Error("no error")
					}
				}
				if n := up.calls(); n != 2 {
					t.Errorf("%d questions", n)
				}
			})
		})
	}
}

// Many who ask at the same time wait for one answer, none longer than it wants; a panic is an error.
func TestQuestionsAtTheSameTime(t *testing.T) {
	asking(t, func(t *testing.T, d *feishu.Directory, up *fakeAnswers) {
		asked := 0
		slow := func(context.Context) error {
			asked++
			time.Sleep(5 * time.Second)
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Ask(ctx, "key", time.Minute, slow); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		for range 3 {
			if err := d.Ask(t.Context(), "key", time.Minute, slow); err != nil {
				t.Error(err)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		if err := d.Ask(t.Context(), "other", time.Minute, func(context.Context) error { panic("boom") }); err == nil {
			t.Error("no error")
		}
		up.answer = func(string) string { panic("boom") }
		api := feishu.NewAPI("http://feishu", "cli_a", "secret", feishu.WithHTTPClient(&http.Client{Transport: up}))
		if _, err := api.BotInfo(t.Context()); err == nil {
			t.Error("no error of a token")
		}
	})
}

// While Feishu is slow, few questions are under way. One more is not asked, and can be asked again at once.
func TestQuestionsTooMany(t *testing.T) {
	asking(t, func(t *testing.T, d *feishu.Directory, _ *fakeAnswers) {
		ctx, cancel := context.WithCancel(t.Context())
		asked, hang := 0, make(chan struct{})
		ask := func(key int) error {
			return d.Ask(ctx, fmt.Sprint(key), time.Minute, func(context.Context) error {
				asked++
				<-hang
				return nil
			})
		}
		for i := range 20 {
			go func() { _ = ask(i) }()
			synctest.Wait()
		}
		if err := ask(19); asked != 16 || err == nil {
			t.Errorf("%d questions, and one more got %v", asked, err)
		}
		close(hang)
		synctest.Wait()
		if err := ask(19); asked != 17 || err != nil {
			t.Errorf("%d questions, and one later got %v", asked, err)
		}
		cancel()
	})
}

// Each way to find out whether the bot is in a chat needs another scope. A dissolved group has no bot.
func TestMembership(t *testing.T) {
	const refused, group = `{"code":99991672,"msg":"no scope"}`, `{"code":0,"data":{"chat_mode":"group"}}`
	for name, c := range map[string]struct {
		chat, inChat string
		want         feishu.Membership
	}{
		"in it":     {group, `{"code":0,"data":{"is_in_chat":true}}`, feishu.Yes},
		"not in it": {group, `{"code":0,"data":{"is_in_chat":false}}`, feishu.No},
		"dissolved": {`{"code":0,"data":{"chat_status":"dissolved_save"}}`,
			`{"code":0,"data":{"is_in_chat":true}}`, feishu.No},
		"by the chat":      {`{"code":232009,"msg":"x"}`, refused, feishu.No},
		"nobody answers":   {refused, refused, feishu.Unknown},
		"the basics alone": {group, refused, feishu.Unknown}, // everybody is shown those
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, d *feishu.Directory, up *fakeAnswers) {
				up.answer = func(path string) string {
					if strings.HasSuffix(path, "/is_in_chat") {
						return c.inChat
					}
					return c.chat
				}
				err := d.AskMember(t.Context(), "oc_1", time.Hour)
				if got := d.Chat("oc_1").In; got != c.want || (err == nil) != (c.want != feishu.Unknown) {
					t.Errorf("got %v, %v", got, err)
				}
			})
		})
	}
}

// Questions about chats that the bot is not in are made with its own token and count against its own limits, 50 a second
// and 1000 a minute (docs/feishu.md 6.3).
func TestQuestionsAboutChatsAreFew(t *testing.T) {
	asking(t, func(t *testing.T, d *feishu.Directory, up *fakeAnswers) {
		up.answer = func(string) string { return `{"code":99991672,"msg":"Access denied."}` }
		inAMinute := 0
		for second := range 60 {
			for i := range 50 {
				_ = d.AskMember(t.Context(), relay.ChatID(fmt.Sprintf("oc_%d_%d", second, i)), time.Hour)
			}
			calls := up.calls()
			if inAMinute += calls; calls == 0 || calls > 50 || inAMinute > 1000 {
				t.Errorf("%d calls in second %d, %d so far", calls, second, inAMinute)
			}
			time.Sleep(time.Second)
		}
		_ = d.AskMember(t.Context(), "oc_59_49", time.Hour) // which was one too many
		if up.calls() == 0 {
			t.Error("a question too many is not asked later")
		}
	})
}

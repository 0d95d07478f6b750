package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
)

func TestPostsAndAnswersPassByteForByte(t *testing.T) {
	type seen struct {
		uri, host string
		header    http.Header
		body      []byte
	}
	got := make(chan seen, 1)
	bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.RequestURI, r.Host, r.Header, body}
		w.Header()["X-Two"] = []string{"a", "b"}
		w.Header().Set("Content-Type", "text/odd")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "the bot's answer")
	}))
	defer bot.Close()
	r := newRig(t, bot.URL+"/hook%2fa?own=1", nil).serve()
	p := signed(t, event("e1"))
	p.header.Set("User-Agent", "Go-http-client/1.1 Feishu")
	p.header.Set("X-Tt-Logid", "log1")
	p.header["X-Many"] = []string{"1", "2"}
	sent := p.header.Clone()
	sent.Set("Connection", "X-Hop")
	sent.Set("X-Hop", "1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+webhook.EventPath+"?a=%2f&b", bytes.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = sent
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := <-got
	s.header.Del("Content-Length")
	if s.uri != "/hook%2fa?own=1&a=%2f&b" || s.host != strings.TrimPrefix(bot.URL, "http://") || !bytes.Equal(s.body, p.body) || len(s.header) != len(p.header) {
		t.Errorf("the bot got %s %s %v %s, want %v", s.uri, s.host, s.header, s.body, p.header)
	}
	for k, v := range p.header {
		if strings.Join(s.header[k], "|") != strings.Join(v, "|") {
			t.Errorf("%s: got %q, want %q", k, s.header[k], v)
		}
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusTeapot || string(answer) != "the bot's answer" ||
		resp.Header.Get("Content-Type") != "text/odd" || len(resp.Header["X-Two"]) != 2 {
		t.Errorf("Feishu got %d %v %s %v", resp.StatusCode, resp.Header, answer, err)
	}
}

func TestWhatIsNotFeishus(t *testing.T) {
	with := func(p post, change func(*post)) post {
		p.header = p.header.Clone()
		change(&p)
		return p
	}
	both := func(*webhook.Options) {}
	keyOnly := func(o *webhook.Options) { o.VerificationToken = "" }
	tokenOnly := func(o *webhook.Options) { o.EncryptKey = "" }
	card := func(p *post) { p.path = webhook.CardPath }
	otherToken := strings.ReplaceAll(event("e1"), token, "other")
	sig := func(v string) func(*post) { return func(p *post) { p.header.Set("X-Lark-Signature", v) } }
	for _, c := range []struct {
		name    string
		secrets func(*webhook.Options)
		post    post
		passes  bool
	}{
		{"signed", both, signed(t, event("e1")), true},
		{"signed card", both, with(signed(t, event("e1")), card), true},
		{"signed, no token wanted", keyOnly, signed(t, otherToken), true},
		{"token", tokenOnly, plain(event("e1")), true},
		{"token of the 1.0 schema", tokenOnly, plain(`{"token":"` + token + `","type":"event_callback","event":{"app_id":"x"}}`), true},
		{"old card", both, oldCard(`{"token":"c-1","action":{}}`), true},
		{"old card, token only", tokenOnly, oldCard(`{"token":"c-1","action":{}}`), true},

		{"no signature", both, with(signed(t, event("e1")), func(p *post) { p.header.Del("X-Lark-Signature") }), false},
		{"empty signature", keyOnly, with(signed(t, event("e1")), sig("")), false},
		{"wrong signature", both, with(signed(t, event("e1")), sig(strings.Repeat("0", 64))), false},
		{"other body", both, with(signed(t, event("e1")), func(p *post) { p.body = signed(t, event("e2")).body }), false},
		{"other nonce", both, with(signed(t, event("e1")), func(p *post) { p.header.Set("X-Lark-Request-Nonce", "x") }), false},
		{"signed, wrong token", both, signed(t, otherToken), false},
		{"plain, where a key is set", both, plain(event("e1")), false},
		{"wrong token", tokenOnly, plain(otherToken), false},
		{"no token", tokenOnly, plain(`{"schema":"2.0"}`), false},
		{"encrypted, where no key is set", tokenOnly, signed(t, event("e1")), false},
		{"encrypted with another key", both, plain(`{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}`), false},
		{"challenge with a wrong token", both, signed(t, challenge("x")), false},
		{"challenge with a wrong signature", both, with(signed(t, challenge(token)), sig("00")), false},
		{"plain challenge, where a key is set", keyOnly, plain(challenge(token)), false},
		{"plain challenge, wrong token", tokenOnly, plain(challenge("x")), false},
		{"an old card's signature on an event", both, with(oldCard(event("e1")), func(p *post) { p.path = webhook.EventPath }), false},
		{"an old card, no token set", keyOnly, oldCard(`{}`), false},
		{"an old card, other body", tokenOnly, with(oldCard(`{}`), func(p *post) { p.body = []byte(`{"a":1}`) }), false},
		{"no JSON", both, plain("hello"), false},
		{"nothing", both, plain(""), false},
		{"an array", both, plain("[]"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reached := 0
			r := newRig(t, "http://bot/", via(func(*http.Request) (*http.Response, error) {
				reached++
				return says(200, "ok"), nil
			}, c.secrets))
			w := r.take(c.post)
			want, status := 0, http.StatusForbidden
			if c.passes {
				want, status = 1, http.StatusOK
			}
			if reached != want || w.Code != status || r.counted("forged") != 1-want {
				t.Errorf("got %d %s; it reached the bot %d times", w.Code, w.Body, reached)
			}
			if !c.passes && (!strings.HasPrefix(w.Body.String(), `{"msg":"`) || w.Header().Get("Content-Type") != "application/json; charset=utf-8") {
				t.Errorf("got %v %s", w.Header(), w.Body)
			}
		})
	}
}

func TestOtherPathsAndSizes(t *testing.T) {
	r := newRig(t, "http://bot/", via(func(*http.Request) (*http.Response, error) { t.Error("it reached the bot"); return says(200, ""), nil })).serve()
	for _, c := range []struct {
		method, path string
		body         io.Reader
		want         int
	}{
		{"GET", "/webhook/event", nil, 404}, {"POST", "/webhook", nil, 404}, {"POST", "/webhook/event/", nil, 404}, {"POST", "/", nil, 404},
		{"POST", "/webhook/event", io.LimitReader(zeros{}, 21<<20), 413},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, r.url+c.path, c.body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %s: got %d, want %d", c.method, c.path, resp.StatusCode, c.want)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A challenge is answered here, also an encrypted one without a signature; the bot does not get it.
func TestChallenge(t *testing.T) {
	unsigned := signed(t, challenge(token))
	unsigned.header = http.Header{}
	for name, c := range map[string]struct {
		post post
		key  string
	}{
		"signed": {signed(t, challenge(token)), key}, "encrypted": {unsigned, key}, "plain": {plain(challenge(token)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "http://bot/", via(func(*http.Request) (*http.Response, error) {
				t.Error("it reached the bot")
				return says(200, ""), nil
			}, func(o *webhook.Options) {
				o.EncryptKey = c.key
				o.Tap = func([]byte) (feishu.Verdict, []byte) { t.Error("tapped"); return feishu.Keep, nil }
				o.Verified = func(string) { t.Error("a challenge tells no app") }
			}))
			if w := r.take(c.post); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"challenge":"c-1"}` {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		verdict feishu.Verdict
		code    int
		body    string
		word    string
		bot     int
	}{
		{feishu.Pass, 200, "the bot's", "passed", 1},
		{feishu.Keep, 200, `{"msg":"success"}`, "kept", 0},
		{feishu.Refuse, 503, `{"msg":"the event could not be stored"}`, "refused", 0},
	} {
		reached := 0
		var apps []string
		r := newRig(t, "http://bot/", via(func(*http.Request) (*http.Response, error) { reached++; return says(200, "the bot's"), nil },
			func(o *webhook.Options) {
				o.Tap = func(e []byte) (feishu.Verdict, []byte) {
					if string(e) != event("e1") {
						t.Errorf("the tap saw %s", e)
					}
					return c.verdict, nil
				}
				o.Verified = func(id string) { apps = append(apps, id) }
			}))
		w := r.take(signed(t, event("e1")))
		if w.Code != c.code || w.Body.String() != c.body || reached != c.bot || r.counted(c.word) != 1 || len(apps) != 1 || apps[0] != app {
			t.Errorf("%s: got %d %s; bot %d, apps %v", c.word, w.Code, w.Body, reached, apps)
		}
	}
}

// What goes to the bot since the tap is slow is told, unless the bot did not take it.
func TestEventsThatPassASlowTapAreTold(t *testing.T) {
	for status, want := range map[int]string{200: event("e2"), 500: "", 503: ""} {
		synctest.Test(t, func(t *testing.T) {
			told := ""
			r := newRig(t, "http://bot/", via(func(*http.Request) (*http.Response, error) { return says(status, "ok"), nil }, func(o *webhook.Options) {
				o.Tap = func(e []byte) (feishu.Verdict, []byte) {
					if string(e) == event("e2") {
						time.Sleep(time.Minute)
					}
					return feishu.Keep, nil
				}
				o.Passed = func(e []byte) { told += string(e) }
			}))
			r.take(signed(t, event("e1")))
			r.take(signed(t, event("e2")))
			time.Sleep(time.Hour)
			synctest.Wait()
			if told != want {
				t.Errorf("a bot that answers %d: told of %q, want %q", status, told, want)
			}
		})
	}
}

func TestABotThatIsAway(t *testing.T) {
	var err error = errors.New("connection refused")
	status := 200
	r := newRig(t, "http://bot/", via(func(*http.Request) (*http.Response, error) {
		if err != nil {
			return nil, err
		}
		return says(status, "x"), nil
	}))
	if !r.s.Connected() {
		t.Error("away before anything was tried")
	}
	for _, c := range []struct {
		err       error
		status    int
		want      int
		connected bool
	}{{err, 0, 502, false}, {nil, 500, 500, true}, {nil, 503, 503, false}, {nil, 200, 200, true}} {
		err, status = c.err, c.status
		if w := r.take(signed(t, event("e1"))); w.Code != c.want || r.s.Connected() != c.connected {
			t.Errorf("got %d, connected %v; want %+v", w.Code, r.s.Connected(), c)
		}
	}
}

// Feishu stops waiting after 3 s; the bot finishes all the same.
func TestFeishuHangsUp(t *testing.T) {
	started, finish, finished := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(started)
		select {
		case <-finish:
		case <-r.Context().Done():
		}
		finished <- r.Context().Err()
	}))
	defer bot.Close()
	r := newRig(t, bot.URL, nil).serve()
	ctx, hangUp := context.WithCancel(t.Context())
	p := signed(t, event("e1"))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+webhook.EventPath, bytes.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = p.header
	go func() {
		<-started
		hangUp() // while the bot still works
	}()
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Error("there was an answer")
	}
	close(finish)
	if err := <-finished; err != nil {
		t.Error("the bot was cut off")
	}
}

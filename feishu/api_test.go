package feishu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

// open is a Feishu that answers by path and notes what it was asked.
type open struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // by path, or path and query
	good    map[string]bool   // tokens; nil: any
	asked   []string          // guarded by mu
	expire  int
	fetched int // guarded by mu; tokens
}

func newOpen(t *testing.T, answers map[string]string) *open {
	o := &open{answers: answers, expire: 7200}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *open) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/open-apis/")
	o.asked = append(o.asked, path)
	w.Header().Set("Content-Type", "application/json")
	if path == "auth/v3/tenant_access_token/internal" {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"app_id":"cli_1","app_secret":"SECRET"}` {
			fmt.Fprint(w, `{"code":10014,"msg":"app id not exists"}`)
			return
		}
		o.fetched++
		token := fmt.Sprintf("t-fetched%d", o.fetched)
		fmt.Fprintf(w, `{"code":0,"msg":"ok","tenant_access_token":%q,"expire":%d}`, token, o.expire)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if o.good != nil && !o.good[token] {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"code":99991663,"msg":"Invalid access token for authorization."}`)
		return
	}
	if body, ok := o.answers[path+"?"+r.URL.RawQuery]; ok {
		fmt.Fprint(w, body)
		return
	}
	body, ok := o.answers[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		body = `{"code":99991201,"msg":"resource not find"}`
	}
	fmt.Fprint(w, body)
}

func (o *open) calls() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.asked
	o.asked = nil
	return list
}

func withToken(o *open) *feishu.API {
	a := feishu.NewAPI(o.URL+"/", "cli_1", "")
	a.SawToken("t-bot")
	return a
}

func TestAPIAnswers(t *testing.T) {
	o := newOpen(t, map[string]string{
		"bot/v3/info":                                                   `{"code":0,"msg":"ok","bot":{"activate_status":2,"app_name":"BotB","open_id":"ou_self"}}`,
		"im/v1/chats/oc_group":                                          `{"code":0,"data":{"chat_mode":"group","name":"群","chat_type":"private"}}`,
		"im/v1/chats/oc_topic":                                          `{"code":0,"data":{"chat_mode":"topic","name":"t"}}`,
		"im/v1/chats/oc_p2p":                                            `{"code":0,"data":{"chat_mode":"p2p"}}`,
		"im/v1/chats/oc_new":                                            `{"code":0,"data":{"chat_mode":"hologram"}}`,
		"im/v1/chats/oc_out":                                            `{"code":232011,"msg":"Operator can NOT be out of the chat."}`,
		"im/v1/chats/oc_gone":                                           `{"code":232009,"msg":"dissolved"}`,
		"im/v1/chats/oc_denied":                                         `{"code":99991672,"msg":"Access denied."}`,
		"im/v1/chats/oc_group/members/is_in_chat":                       `{"code":0,"data":{"is_in_chat":true}}`,
		"im/v1/chats/oc_topic/members/is_in_chat":                       `{"code":0,"data":{"is_in_chat":false}}`,
		"im/v1/chats/oc_out/members/is_in_chat":                         `{"code":230002,"msg":"out"}`,
		"im/v1/chats/oc_group/members/bots?page_size=100":               `{"code":0,"data":{"items":[{"bot_id":"ou_a","bot_name":"A"},{"open_id":"ou_b","name":"B"},{"bot_name":"none"},7],"has_more":true,"page_token":"p2"}}`,
		"im/v1/chats/oc_group/members/bots?page_size=100&page_token=p2": `{"code":0,"data":{"items":[],"has_more":true,"page_token":"p2"}}`,
		"im/v1/chats/oc_group/members/bots?page_token=p2&page_size=100": `{"code":0}`,
		"im/v1/chats/a/b?c":                                             `{"code":0}`,
		"im/v1/messages/om_1":                                           strings.Replace(sentAnswer, `"data":{`, `"data":{"items":[{`, 1) + "",
	})
	o.answers["im/v1/messages/om_1"] = strings.TrimSuffix(o.answers["im/v1/messages/om_1"], "}}") + `}]}}`
	o.answers["im/v1/messages/om_2"] = o.answers["im/v1/messages/om_1"]
	o.answers["im/v1/messages/om_m"] = `{"code":0,"data":{"items":[{"message_id":"om_m","chat_id":"oc_1",
		"msg_type":"merge_forward","body":{"content":"Merged and Forwarded Message"}},{"message_id":"om_n","chat_id":"oc_2",
		"msg_type":"text","upper_message_id":"om_m","body":{"content":"{\"text\":\"one\"}"}},{"message_id":"om_n2",
		"upper_message_id":"om_n"},7]}}`
	o.answers["im/v1/chats/oc_owned"] = `{"code":0,"data":{"owner_id":"ou_ann","user_manager_id_list":["ou_bob"]}}`
	o.answers["event/v1/connection"] = `{"code":0,"data":{"online_instance_cnt":2}}`
	a := withToken(o)
	ctx := t.Context()
	self, err := a.BotInfo(ctx)
	if want := (feishu.Self{AppID: "cli_1", Name: "BotB", OpenID: "ou_self"}); err != nil || self != want {
		t.Errorf("bot %+v, %v", self, err)
	}
	for id, want := range map[relay.ChatID]feishu.Chat{
		"oc_group": {Kind: "group", Name: "群"}, "oc_topic": {Kind: "group", Topic: true, Name: "t"}, "oc_p2p": {Kind: "p2p"}, "oc_new": {Kind: "group"},
		"oc_out": {In: feishu.No}, "oc_gone": {In: feishu.No},
	} {
		chat, err := a.Chat(ctx, id)
		want.ID = id
		if diff := cmp.Diff(chat, want); err != nil || diff != "" {
			t.Errorf("%s: %v (-got +want):\n%s", id, err, diff)
		}
	}
	if _, err := a.Chat(ctx, "oc_denied"); codeOf(err) != 99991672 || !strings.Contains(err.Error(), "GET im/v1/chats/oc_denied") {
		t.Errorf("denied: %v", err)
	}
	for id, want := range map[relay.ChatID]bool{"oc_group": true, "oc_topic": false, "oc_out": false} {
		if in, err := a.InChat(ctx, id); in != want || err != nil {
			t.Errorf("in %s: %v, %v", id, in, err)
		}
	}
	if _, err := a.InChat(ctx, "oc_x"); codeOf(err) != 99991201 {
		t.Errorf("in an unknown chat: %v", err)
	}
	owner, managers, err := a.Managers(ctx, "oc_owned")
	if owner != "ou_ann" || !slices.Equal(managers, []relay.OpenID{"ou_bob"}) || err != nil {
		t.Errorf("owner %s, managers %v, %v", owner, managers, err)
	}
	if _, _, err := a.Managers(ctx, "oc_out"); codeOf(err) != 232011 {
		t.Errorf("managers of a chat that the bot is not in: %v", err)
	}
	bots, err := a.ChatBots(ctx, "oc_group")
	if diff := cmp.Diff(bots, []feishu.Bot{{OpenID: "ou_a", Name: "A"}, {OpenID: "ou_b", Name: "B"}}); err != nil || diff != "" {
		t.Errorf("bots: %v (-got +want):\n%s", err, diff)
	}
	m, _, err := a.Message(ctx, "om_1")
	if diff := cmp.Diff(m, sentMessage()); err != nil || diff != "" {
		t.Errorf("message: %v (-got +want):\n%s", err, diff)
	}
	if _, _, err := a.Message(ctx, "om_2"); !errors.Is(err, feishu.ErrNotAccepted) {
		t.Errorf("another message: %v", err)
	}
	m, forwarded, err := a.Message(ctx, "om_m")
	if err != nil || m.Type != content.TypeForward || len(forwarded) == 0 || forwarded[0].Text() != "one" {
		t.Errorf("a merged forward: %+v, %+v, %v", m, forwarded, err)
	}
	if n, err := a.Connections(ctx); n != 2 || err != nil {
		t.Errorf("%d connections, %v", n, err)
	}
	o.calls()
	if _, err := a.Chat(ctx, "../../a/b?c"); codeOf(err) != 99991201 {
		t.Errorf("an id with signs: %v", err)
	}
}

func TestAPIReadsAtMost500Bots(t *testing.T) {
	var items []string
	for i := range 100 {
		items = append(items, fmt.Sprintf(`{"bot_id":"ou_%d"}`, i))
	}
	var page atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"code":0,"data":{"items":[%s],"has_more":true,"page_token":"p%d"}}`,
			strings.Join(items, ","), page.Add(1))
	}))
	defer srv.Close()
	a := feishu.NewAPI(srv.URL, "cli_1", "")
	a.SawToken("t-x")
	bots, err := a.ChatBots(t.Context(), "oc")
	if err != nil || len(bots) != 500 || page.Load() != 5 {
		t.Errorf("%d bots of %d pages, %v", len(bots), page.Load(), err)
	}
}

func TestAPITokens(t *testing.T) {
	answers := map[string]string{"bot/v3/info": `{"code":0,"bot":{"open_id":"ou"}}`}
	const fetch, info = "auth/v3/tenant_access_token/internal", "bot/v3/info"
	check := func(t *testing.T, o *open, a *feishu.API, wantErr bool, want ...string) {
		t.Helper()
		_, err := a.BotInfo(t.Context())
		if (err != nil) != wantErr {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff(o.calls(), want); diff != "" {
			t.Errorf("calls (-got +want):\n%s", diff)
		}
	}
	t.Run("none", func(t *testing.T) {
		o := newOpen(t, answers)
		a := feishu.NewAPI(o.URL, "cli_1", "")
		a.SawToken("u-user")
		a.SawToken("t-\n")
		a.SawToken("")
		if a.Ready() {
			t.Error("ready")
		}
		if _, err := a.BotInfo(t.Context()); !errors.Is(err, feishu.ErrNoToken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("seen, until it is refused", func(t *testing.T) {
		o := newOpen(t, answers)
		o.good = map[string]bool{"t-bot": true}
		a := withToken(o)
		check(t, o, a, false, info)
		o.mu.Lock()
		o.good = map[string]bool{"t-new": true}
		o.mu.Unlock()
		_, err := a.BotInfo(t.Context())
		if !errors.Is(err, feishu.ErrNoToken) || codeOf(err) != 99991663 || a.Ready() {
			t.Errorf("ready %v, %v", a.Ready(), err)
		}
		o.calls()
		a.SawToken("t-new")
		check(t, o, a, false, info)
	})
	t.Run("fetched once", func(t *testing.T) {
		o := newOpen(t, answers)
		o.good = map[string]bool{"t-fetched1": true}
		a := feishu.NewAPI(o.URL, "cli_1", "SECRET")
		if !a.Ready() {
			t.Error("not ready")
		}
		check(t, o, a, false, fetch, info)
		check(t, o, a, false, info)
	})
	t.Run("fetched once for many", func(t *testing.T) {
		o := newOpen(t, answers)
		a := feishu.NewAPI(o.URL, "cli_1", "SECRET")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := a.BotInfo(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if o.fetched != 1 {
			t.Errorf("fetched %d times", o.fetched)
		}
	})
	t.Run("fetched again when it ends", func(t *testing.T) {
		o := newOpen(t, answers)
		o.expire = 60 // less than the margin
		a := feishu.NewAPI(o.URL, "cli_1", "SECRET")
		check(t, o, a, false, fetch, info)
		check(t, o, a, false, fetch, info)
	})
	t.Run("fetched where the seen one is refused", func(t *testing.T) {
		o := newOpen(t, answers)
		o.good = map[string]bool{"t-fetched1": true}
		a := feishu.NewAPI(o.URL, "cli_1", "SECRET")
		a.SawToken("t-old")
		check(t, o, a, false, info, fetch, info)
	})
	t.Run("no good one to be had", func(t *testing.T) {
		o := newOpen(t, answers)
		o.good = map[string]bool{}
		a := feishu.NewAPI(o.URL, "cli_1", "SECRET")
		check(t, o, a, true, fetch, info, fetch, info)
	})
	t.Run("wrong credentials", func(t *testing.T) {
		o := newOpen(t, answers)
		a := feishu.NewAPI(o.URL, "cli_1", "SECRET2")
		_, err := a.BotInfo(t.Context())
		if codeOf(err) != 10014 || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAPIErrorsAreClear(t *testing.T) {
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"a proxy's page": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502); fmt.Fprint(w, "<html>") }, "HTTP 502"},
		"no JSON":        {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "SECRET") }, "is not JSON"},
		"a redirect":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "HTTP 302"},
		"an endless body": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"code":0,"x":"`+strings.Repeat("x", 5<<20))
		}, "is too large"},
		"a cut connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"a code": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"code":7,"msg":"no"}`)
		}, "code 7: no"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(tt.serve)
			defer srv.Close()
			a := feishu.NewAPI(srv.URL, "cli_1", "", feishu.WithHTTPClient(srv.Client()))
			a.SawToken("t-SECRET")
			_, err := a.ChatBots(t.Context(), "oc")
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "page_size") {
				t.Errorf("got %v", err)
			}
		})
	}
	a := feishu.NewAPI("http://a b", "cli_1", "")
	a.SawToken("t-x")
	if _, err := a.BotInfo(t.Context()); err == nil {
		t.Error("a base URL that is none works")
	}
}

func TestAPIEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server looks for the caller's end only then
		cancel()
		<-r.Context().Done()
	}))
	defer srv.Close()
	a := feishu.NewAPI(srv.URL, "cli_1", "")
	a.SawToken("t-x")
	if _, err := a.BotInfo(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAPIGivesUpAfter10Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		a := feishu.NewAPI("http://silent", "cli_1", "", feishu.WithHTTPClient(&http.Client{Transport: silent}))
		a.SawToken("t-x")
		start := time.Now()
		_, err := a.BotInfo(t.Context())
		if took := time.Since(start); took != 10*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
		_, err = a.File(t.Context(), "om_1", relay.File{Key: "k", Type: relay.FileImage})
		if took := time.Since(start); took != 20*time.Second || err == nil || !strings.Contains(err.Error(), "did not answer") {
			t.Errorf("a file, after %v: %v", took, err)
		}
	})
}

func TestFile(t *testing.T) {
	tokens := []string{}
	a := feishu.NewAPI("http://feishu", "cli_1", "", feishu.WithHTTPClient(&http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.String() != "http://feishu/open-apis/im/v1/messages/om_1/resources/file%2F1?type=file" {
			t.Errorf("asked for %s", r.URL)
		}
		tokens = append(tokens, r.Header.Get("Authorization"))
		if len(tokens) > 1 {
			return &http.Response{StatusCode: 400, Body: io.NopCloser(strings.NewReader(`{"code":99991663,"msg":"bad token"}`))}, nil
		}
		return &http.Response{StatusCode: 200, ContentLength: 5, Body: io.NopCloser(strings.NewReader("hello")), Header: http.Header{
			"Content-Type": {"text/plain"}, "Content-Disposition": {`attachment; filename="a.txt"`}}}, nil
	})}))
	want := relay.File{Key: "file/1", Type: relay.FileOther}
	if _, err := a.File(t.Context(), "om_1", want); !errors.Is(err, feishu.ErrNoToken) {
		t.Errorf("without a token: %v", err)
	}
	a.SawToken("t-x")
	got, err := a.File(t.Context(), "om_1", want)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(got.Body)
	if want.Name = "a.txt"; err != nil || string(data) != "hello" || got.File != want || got.MediaType != "text/plain" || got.Size != 5 || got.Body.Close() != nil {
		t.Errorf("got %+v, %q, %v", got, data, err)
	}
	if _, err := a.File(t.Context(), "om_1", want); !errors.Is(err, feishu.ErrNoToken) || codeOf(err) != 99991663 || len(tokens) != 2 {
		t.Errorf("with a token that is no longer good: %v, %d calls", err, len(tokens))
	}
}

func TestAFileThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) }) // as net/http does
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: in}, nil
		})}
		a := feishu.NewAPI("http://feishu", "cli_1", "", feishu.WithHTTPClient(client))
		a.SawToken("t-x")
		got, err := a.File(t.Context(), "om_1", relay.File{Key: "k", Type: relay.FileImage})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = out.Write([]byte("x")) }()
		start := time.Now()
		data, err := io.ReadAll(got.Body)
		if took := time.Since(start); took != 10*time.Minute || string(data) != "x" || err == nil {
			t.Errorf("after %v: %q, %v", took, data, err)
		}
		_ = got.Body.Close()
	})
}

func codeOf(err error) int {
	if e, ok := errors.AsType[*feishu.CodeError](err); ok {
		return e.Code
	}
	return 0
}

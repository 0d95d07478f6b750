//go:build unix

package sidecar_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	lark "github.com/larksuite/oapi-sdk-go/v3"
	"github.com/larksuite/oapi-sdk-go/v3/core/httpserverext"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// passed is a request as it was at one side of a sidecar.
type passed struct {
	method, uri, body string
	header            http.Header
}

// wire is what passed at one side of a sidecar.
type wire struct {
	mu  sync.Mutex
	all []passed // guarded by mu
}

// note reads a request, and leaves it as it was.
func (w *wire) note(r *http.Request) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, passed{r.Method, r.URL.RequestURI(), string(body), r.Header.Clone()})
	return nil
}

// Do makes a call of a bot's SDK.
func (w *wire) Do(r *http.Request) (*http.Response, error) {
	if err := w.note(r); err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(r)
}

// before notes what comes for a handler.
func (w *wire) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := w.note(r); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		h.ServeHTTP(rw, r)
	})
}

func (w *wire) list() []passed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// take removes from list a request with p's method, URI and body, and with all headers of p's.
func (p passed) take(list []passed) (left []passed, found bool) {
	i := slices.IndexFunc(list, func(q passed) bool {
		for key, values := range p.header {
			if !slices.Equal(q.header[key], values) {
				return false
			}
		}
		return p.method == q.method && p.uri == q.uri && p.body == q.body
	})
	if i < 0 {
		return list, false
	}
	return slices.Delete(list, i, i+1), true
}

// wired is a pair of bots, BotA with a long connection and BotB with a webhook, of which all that
// passes at both sides of their sidecars is noted.
type wired struct {
	*tenant
	b            *running
	botA, botB   *sdkBot
	calls        wire // of both bots, as their SDKs made them
	posts, given wire // to BotB: as Feishu sent them, as the bot got them
}

func newWired(t *testing.T, change func(*sidecar.Config)) *wired {
	t.Helper()
	const key = "key of BotB"
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB", EncryptKey: key})
	w := &wired{tenant: n}
	cfg := n.steered("agent_a")
	change(&cfg)
	a := n.start(cfg)
	base := "http://" + a.Gateway().String()
	w.botA = n.bot(apps[0], base, nil)
	w.botA.client = lark.NewClient(apps[0].ID, apps[0].Secret, lark.WithOpenBaseUrl(base), lark.WithHttpClient(&w.calls))

	w.botB = &sdkBot{app: apps[1], heard: make(chan heard, 1000)}
	bot := httptest.NewServer(w.given.before(http.HandlerFunc(httpserverext.NewEventHandlerFunc(w.botB.dispatcher(nil)))))
	t.Cleanup(bot.Close)
	cfg = n.steered("agent_b")
	cfg.BotWebhookURL, cfg.AppID, cfg.EncryptKey = bot.URL, apps[1].ID, key
	cfg.VerificationToken = sidecar.Secret(apps[1].VerificationToken)
	change(&cfg)
	w.b = n.start(cfg)
	at := &url.URL{Scheme: "http", Host: w.b.Gateway().String()}
	w.botB.client = lark.NewClient(apps[1].ID, apps[1].Secret, lark.WithOpenBaseUrl(at.String()), lark.WithHttpClient(&w.calls))
	feishu := httptest.NewServer(w.posts.before(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}))
	t.Cleanup(feishu.Close)
	apps[1].WebhookURL = feishu.URL + "/webhook/event"
	_, err := n.UpdateApp(apps[1])
	must(t, err)

	n.connected(a)
	w.botA.introduce(t)
	w.botB.introduce(t)
	n.says("hello")
	n.hears(w.botA, "hello")
	n.hears(w.botB, "hello")
	return w
}

// unchanged checks that Feishu has got each call of the bots, and the bots each event of Feishu,
// byte for byte, and nothing else but what the sidecars relayed. Where a sidecar has shown a stop by
// a reaction, what Feishu says of that may not reach the bot.
func (w *wired) unchanged(shown bool) {
	w.t.Helper()
	w.until("Feishu has delivered all it had", func() bool { return w.Waiting(w.botA.app.ID)+w.Waiting(w.botB.app.ID) == 0 })
	var came []passed
	for _, r := range w.Requests() {
		came = append(came, passed{r.Method, r.URI, string(r.Body), r.Header})
	}
	calls := w.calls.list()
	for _, call := range calls {
		var found bool
		if came, found = call.take(came); !found {
			w.t.Errorf("Feishu did not get this call of a bot: %s %s %q", call.method, call.uri, call.body)
		}
	}
	if len(calls) < 5 {
		w.t.Errorf("the bots made %d calls", len(calls))
	}

	relayed := map[string]int{}
	for _, b := range []*sdkBot{w.botA, w.botB} {
		sent := map[string]int{}
		for _, d := range w.Deliveries() {
			if d.App == b.app.ID && d.EventType == "im.message.receive_v1" {
				sent[string(d.Body)]++
			}
		}
		got := map[string]int{}
		b.mu.Lock()
		for _, body := range b.bodies {
			if strings.Contains(body, `"event_id":"relay-`) {
				relayed[b.app.ID]++
				continue
			}
			got[body]++
		}
		b.mu.Unlock()
		if diff := cmp.Diff(sent, got); diff != "" || len(sent) < 3 {
			w.t.Errorf("%s was given other events than the %d that Feishu sent (-sent +given):\n%s", b.app.Name, len(sent), diff)
		}
	}
	given := w.given.list()
	for _, post := range w.posts.list() {
		post.uri = "/" // the bot's own
		post.header = maps.Clone(post.header)
		for _, hop := range []string{"Accept-Encoding", "User-Agent"} {
			post.header.Del(hop)
		}
		var found bool
		own := shown && strings.Contains(w.botB.plain(post.body), `"event_type":"im.message.reaction.created_v1"`)
		if given, found = post.take(given); !found && !own {
			w.t.Errorf("BotB did not get this post of Feishu's: %v %q", post.header, w.botB.plain(post.body))
		}
	}
	if len(given) != relayed[w.botB.app.ID] {
		w.t.Errorf("BotB got %d posts that Feishu did not send, and %d events were relayed to it", len(given), relayed[w.botB.app.ID])
	}
}

package sidecar_test

import (
	"bytes"
	"context"
	"errors"
	"feishu-relay/internal/test/apitest"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/sse"
	"feishu-relay/sidecar"
)

// actor is one sidecar through its lives, and the bot beside it, which knows
// the local API and nothing else.
type actor struct {
	story *story
	cfg   sidecar.Config
	log   storyLog
	http  *http.Client

	url    string // "" while it does not run
	stop   context.CancelFunc
	ended  chan error
	reads  sync.WaitGroup     // the reader of /v1/events
	hears  sync.WaitGroup     // the reader of /v1/stream, the bot's
	leave  context.CancelFunc // ends the latter; nil where the bot is away
	lastID string             // of the bot's stream; of its reader

	mu      sync.Mutex
	hooked  int           // status that the bot's webhook answers; guarded by mu
	given   []*sighting   // what the bot got; guarded by mu
	events  []*sighting   // what watchers were shown; guarded by mu
	changed chan struct{} // closed when there is more; guarded by mu
	answer  func()        // what the bot does with what it gets, nil: nothing; guarded by mu
}

// sighting is a document that was seen, and whether a line of the script has
// spoken of it.
type sighting struct {
	id, kind string
	doc      document
	told     bool
}

func newActor(s *story, cfg sidecar.Config) *actor {
	// No connection is kept: a spare one, never used, would hold up a stop.
	return &actor{story: s, cfg: cfg, changed: make(chan struct{}), hooked: http.StatusOK,
		http: &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}}
}

// begin starts a life: the sidecar runs, is ready, and the bot listens.
func (a *actor) begin(ctx context.Context) error {
	logger := slog.New(slog.NewJSONHandler(&a.log, nil))
	side, err := sidecar.New(a.cfg, sidecar.Options{Version: "test", Logger: logger})
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	a.stop, a.ended = stop, make(chan error, 1)
	go func() { a.ended <- side.Run(life) }()
	a.url = "http://" + side.Addr().String()
	if err := a.awaitReady(ctx); err != nil {
		return err
	}
	events, err := a.open(life, "/v1/events", "0")
	if err != nil {
		return err
	}
	a.reads.Go(func() { a.read(events, a.shown) })
	if a.cfg.InjectURL != "" {
		return nil
	}
	return a.listen()
}

func (a *actor) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _, err := a.call(ctx, http.MethodGet, "/readyz", nil)
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-a.ended:
			return fmt.Errorf("ended before it was ready: %w", err)
		case <-ctx.Done():
			return errors.New("does not get ready")
		}
	}
}

// listen lets the bot read its stream from where it was.
func (a *actor) listen() error {
	ctx, leave := context.WithCancel(context.Background())
	body, err := a.open(ctx, "/v1/stream", a.lastID)
	if err != nil {
		leave()
		return err
	}
	a.leave = leave
	a.hears.Go(func() { a.read(body, a.got) })
	return nil
}

// away ends the bot's stream.
func (a *actor) away() {
	if a.leave != nil {
		a.leave()
		a.leave = nil
	}
	a.hears.Wait()
}

// end stops the sidecar in order and waits until both streams have ended, so
// that all they held was seen.
func (a *actor) end(ctx context.Context) error {
	if a.url == "" {
		return errors.New("does not run")
	}
	a.url = ""
	a.stop()
	select {
	case err := <-a.ended:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.New("does not stop")
	}
	a.reads.Wait()
	a.hears.Wait() // and only then cut, else what is under way would be missed
	a.away()
	return nil
}

func (a *actor) request(ctx context.Context, method, route string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if a.cfg.APIToken != "" {
		req.Header.Set("Authorization", "Bearer "+string(a.cfg.APIToken))
	}
	return req, nil
}

// open opens a stream of server-sent events behind lastID.
func (a *actor) open(ctx context.Context, route, lastID string) (io.ReadCloser, error) {
	req, err := a.request(ctx, http.MethodGet, route, nil)
	if err != nil {
		return nil, err
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s answered %d", route, resp.StatusCode), resp.Body.Close())
	}
	return resp.Body, nil
}

// read calls take for each event until the stream ends.
func (a *actor) read(body io.ReadCloser, take func(id, kind string, data []byte)) {
	defer body.Close()
	for e, err := range sse.Read(body) {
		if err == nil {
			take(e.ID, e.Kind, e.Data)
		}
	}
}

// shown notes an event.
func (a *actor) shown(_, kind string, data []byte) {
	doc, err := decodeDocument(data)
	if err != nil {
		a.story.t.Errorf("%s: /v1/events sent no JSON: %v", a.cfg.Agent, err)
		return
	}
	a.note(&a.events, &sighting{id: textAt(doc, "relay_msg_id"), kind: kind, doc: doc})
}

// got notes a message that the bot was given, by its stream or its webhook.
func (a *actor) got(id, kind string, data []byte) {
	if kind != "message" {
		return // the stream says farewell
	}
	doc, err := decodeDocument(data)
	if err != nil {
		a.story.t.Errorf("%s: /v1/stream sent no JSON: %v", a.cfg.Agent, err)
		return
	}
	if id != "" { // of a stream
		a.lastID = id
	}
	a.note(&a.given, &sighting{id: textAt(doc, "metadata.relay_msg_id"), kind: kind, doc: doc})
}

func (a *actor) note(list *[]*sighting, seen *sighting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if list == &a.given && a.answer != nil {
		seen.told = true
		a.answer()
	}
	*list = append(*list, seen)
	a.wake()
}

// wake has those look again that await something; the caller holds mu.
func (a *actor) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// await waits until cond, which is asked with mu held, returns true or fails.
func (a *actor) await(ctx context.Context, cond func() (bool, error)) error {
	for {
		a.mu.Lock()
		ok, err := cond()
		changed := a.changed
		a.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("waited in vain")
		}
	}
}

// untold finds a sighting that no line has spoken of; the caller holds mu.
func untold(list []*sighting, id, kind string) *sighting {
	for _, s := range list {
		if !s.told && s.id == id && s.kind == kind {
			return s
		}
	}
	return nil
}

// call makes a request and returns the JSON of the answer, or its text as "text".
func (a *actor) call(ctx context.Context, method, route string, body []byte) (int, document, error) {
	req, err := a.request(ctx, method, route, body)
	if err != nil {
		return 0, nil, err
	}
	return a.answerTo(req)
}

func (a *actor) answerTo(req *http.Request) (int, document, error) {
	if a.url == "" {
		return 0, nil, errors.New("does not run")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	sent, err := req.GetBody()
	if err != nil {
		return 0, nil, err
	}
	body, _ := io.ReadAll(sent) // from memory
	asDescribed(a.story.t, req.Method, req.URL.RequestURI(), string(body), resp, data)
	doc, err := decodeDocument(data)
	if err != nil {
		doc = document{"text": string(data)} // /metrics and / are texts
	}
	return resp.StatusCode, doc, nil
}

// asDescribed checks an answer against docs/openapi.yaml.
func asDescribed(t *testing.T, method, path, body string, resp *http.Response, answer []byte) {
	t.Helper()
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
	apitest.Described(t, method, path, body, w)
}

// ServeHTTP is the bot's webhook: it takes a message, or answers with the
// status it was told to.
func (a *actor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var status int
	if err = errors.Join(err, a.await(r.Context(), func() (bool, error) {
		status = a.hooked
		return status > 0, nil
	})); err != nil {
		return
	}
	w.WriteHeader(status)
	if status < 300 {
		a.got("", "message", data)
	}
}

// storyLog keeps what a sidecar logs.
type storyLog struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *storyLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *storyLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

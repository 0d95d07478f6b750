//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/internal/feishusim"
)

// Mail that the bot chokes on, again and again, holds up no other.
func TestMailThatTheBotChokesOnHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{})
	a, b := n.agents(t, "", nil)
	b.hook.Config.Handler = choking("poison", b.hook.Config.Handler)
	a.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(`{"to":"coder","content":"poison","priority":1}`), nil)
	a.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(`{"to":"coder","content":"wholesome"}`), nil)
	b.hears("message", "wholesome")
}

// choking refuses, for now, what says on.
func choking(on string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), on) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// A bot that goes from the gateway while it is given a result is given its other
// mail where it is.
func TestResultForABotThatIsGoneHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"})
	hook := newWorker(t, nil)
	cfg := n.withMailbox(n.config("researcher"), "")
	cfg.InjectURL = hook.hook.URL
	a := n.start(cfg)
	var b *running
	coder := newWorker(t, func(context.Context) (string, error) { return "http://" + b.Addr().String(), nil })
	other := n.withMailbox(n.config("coder"), "")
	other.Gateway.Addr, other.InjectURL = "", coder.hook.URL
	b = n.start(other)

	holding, release := make(chan struct{}), make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	d := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(func(context.Context, *larkim.P2MessageReceiveV1) error {
		close(holding)
		<-release
		return nil
	})
	ws := larkws.NewClient(apps[0].ID, apps[0].Secret, larkws.WithDomain("http://"+a.Gateway().String()),
		larkws.WithLogLevel(larkcore.LogLevelError), larkws.WithEventHandler(d))
	var bot sync.WaitGroup
	bot.Go(func() { _ = ws.Start(ctx) })
	defer bot.Wait()
	defer close(release)
	defer leave()
	n.connected(a)

	var job struct {
		TaskID string `json:"task_id"`
	}
	asker := newWorker(t, func(context.Context) (string, error) { return "http://" + a.Addr().String(), nil })
	n.until("the coder can be asked", func() bool {
		return asker.call(http.MethodPost, "/v1/mailbox/tasks",
			json.RawMessage(`{"to":"coder","text":"job","callback":{"channel":"feishu","chat_id":"oc_asked"}}`), &job) == http.StatusAccepted
	})
	coder.hears("task", "job")
	coder.call(http.MethodPost, "/v1/mailbox/tasks/"+job.TaskID, map[string]string{"state": "completed", "text": "the result"}, nil)
	<-holding
	leave()
	coder.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(`{"to":"researcher","content":"something else"}`), nil)
	hook.hears("message", "something else")
}

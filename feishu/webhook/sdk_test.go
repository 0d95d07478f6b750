package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/larksuite/oapi-sdk-go/v3/core/httpserverext"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"

	"feishu-relay/feishu/webhook"
)

// sdkBot is a bot with the official SDK's dispatcher.
func sdkBot(t *testing.T, token, key string) (url string, events <-chan string) {
	t.Helper()
	got := make(chan string, 10)
	d := dispatcher.NewEventDispatcher(token, key)
	d.OnCustomizedEvent("im.message.receive_v1", func(_ context.Context, req *larkevent.EventReq) error {
		got <- string(req.Body)
		return nil
	})
	bot := httptest.NewServer(http.HandlerFunc(httpserverext.NewEventHandlerFunc(d)))
	t.Cleanup(bot.Close)
	return bot.URL, got
}

func TestSDK(t *testing.T) {
	for _, c := range []struct{ name, token, key string }{{"both", token, key}, {"token only", token, ""}, {"key only", "", key}} {
		t.Run(c.name, func(t *testing.T) {
			url, events := sdkBot(t, c.token, c.key)
			r := newRig(t, url, func(o *webhook.Options) { o.VerificationToken, o.EncryptKey = c.token, c.key }).serve()
			send := func(body string) (int, string) {
				p := plain(body)
				if c.key != "" {
					p = signed(t, body)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+webhook.EventPath, bytes.NewReader(p.body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = p.header
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				answer, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, string(answer)
			}
			if status, answer := send(challenge(c.token)); status != 200 || strings.TrimSpace(answer) != `{"challenge":"c-1"}` {
				t.Errorf("challenge: got %d %s", status, answer)
			}
			if status, answer := send(event("e1")); status != 200 || answer != `{"msg":"success"}` {
				t.Errorf("event: got %d %s", status, answer)
			}
			<-events
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, []byte(event("ours")), "", "  "); err != nil {
				t.Fatal(err)
			}
			if err := inject(r, t.Context(), spaced.String()); err != nil {
				t.Error(err)
			}
			got := <-events
			if c.key == "" && got != event("ours") { // the SDK hands on what is encrypted
				t.Errorf("got %s", got)
			}
			if r.counted("delivered") != 1 {
				t.Error("not counted")
			}
		})
	}
}

package webhook_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/webhook"
)

// Whoever does not know the secrets reaches nothing.
func FuzzWebhookBody(f *testing.F) {
	good := signed(f, event("e1"))
	for _, body := range []string{string(good.body), event("e1"), challenge(token), `{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}`, `{"encrypt":""}`, `{"encrypt":"AAAA"}`, `{"header":null,"event":[]}`, ""} {
		f.Add(body, good.header.Get("X-Lark-Signature"), true, true)
		f.Add(body, "", false, false)
	}
	f.Fuzz(func(t *testing.T, body, signature string, withKey, card bool) {
		var s *webhook.Server
		var err error
		s, err = webhook.New(webhook.Options{
			BotURL: "http://bot/", EncryptKey: map[bool]string{true: key}[withKey], VerificationToken: token,
			Transport: transport(func(*http.Request) (*http.Response, error) {
				plain := []byte(body)
				if withKey {
					if plain, err = feishu.Decrypt(key, plain); err != nil {
						t.Errorf("%q reached the bot: %v", body, err)
					}
				}
				var v any
				_ = json.Unmarshal(plain, &v)
				if !strings.Contains(fmt.Sprint(v), token) {
					t.Errorf("%q reached the bot", plain)
				}
				return says(200, ""), nil
			}),
			Verified: func(string) {},
			Events:   &link.Events{Logger: slog.New(slog.DiscardHandler), Counter: func(feishu.Counted) {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		p := plain(body)
		p.header.Set("X-Lark-Request-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
		p.header.Set("X-Lark-Request-Nonce", "nonce")
		if signature != "" {
			p.header["X-Lark-Signature"] = []string{signature}
		}
		if card {
			p.path = webhook.CardPath
		}
		(&rig{t: t, s: s}).take(p)
	})
}

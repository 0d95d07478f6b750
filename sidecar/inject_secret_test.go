//go:build unix

package sidecar_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/sidecar"
)

// Each post to INJECT_URL, of a group's message as of mail, and each try of it
// proves that it is the sidecar's.
func TestPostsToTheBotAreSigned(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{"with a secret": "0123456789abcdef", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now().Unix()
			var posts, signed atomic.Int64
			verifying := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					timestamp, signature := r.Header.Get("X-Relay-Timestamp"), r.Header.Get("X-Relay-Signature")
					mac := hmac.New(sha256.New, []byte(secret))
					_, _ = io.WriteString(mac, timestamp+"."+string(body))
					seconds, _ := strconv.ParseInt(timestamp, 10, 64)
					switch {
					case signature == "v1="+hex.EncodeToString(mac.Sum(nil)) && seconds >= began:
						signed.Add(1)
					case signature+timestamp != "":
						t.Errorf("a wrong signature: %v", r.Header)
					}
					if posts.Add(1) == 1 {
						w.WriteHeader(http.StatusInternalServerError) // it is tried again
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					next.ServeHTTP(w, r)
				})
			}
			n, _ := newTenant(t, feishusim.Options{})
			a, b := n.agents(t, "", func(cfg *sidecar.Config) {
				cfg.InjectSecret, cfg.MembershipCheck = sidecar.Secret(secret), "off"
			})
			b.hook.Config.Handler = verifying(b.hook.Config.Handler)
			a.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(`{"to":"coder","content":"a letter 你好"}`), nil)
			b.hears("message", "a letter")
			a.call(http.MethodPost, "/v1/outbound", json.RawMessage(`{"chat_id":"oc_x","content":"in the group","message_id":"om_1"}`), nil)
			n.until("the bot hears the group", func() bool { return b.ids()["om_1"] > 0 })
			want := posts.Load()
			if secret == "" {
				want = 0
			}
			if got := signed.Load(); got != want || posts.Load() < 3 {
				t.Errorf("%d of %d posts are signed, want %d", got, posts.Load(), want)
			}
		})
	}
}

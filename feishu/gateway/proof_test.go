package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
)

// What other bots said goes only to a caller whose token is our app's, as Feishu
// itself says: a valid token may be another app's, and any word a token.
func TestLookUpsAnswerOurOwnAppOnly(t *testing.T) {
	for _, c := range []struct {
		name, token, info string
		answered          bool
	}{
		{"the app's own, not seen before", "t-new", "", true},
		{"another app's", "t-cli_other", "", false},
		{"none of Feishu's", "t-guessed", `{"code":99991663,"msg":"Invalid access token"}`, false},
		{"no token", "", "", false},
		{"no tenant token", "a-word", "", false},
	} {
		for _, path := range []string{"im/v1/messages/om_injected", "im/v1/messages/mget?message_ids=om_injected",
			"/im/v1/messages/om_injected", "contact/v3/users/ou_b", "bot/v3/bots/basic_batch?bot_ids=ou_b"} {
			t.Run(c.name+" "+path, func(t *testing.T) {
				const answer = `{"code":230001,"msg":"x"}`
				r := lookupRig(t)
				route, _, _ := strings.Cut("/open-apis/"+path, "?")
				r.up.say("GET "+route, 400, answer)
				asked := 0
				r.up.on("GET /open-apis/bot/v3/info", func(w http.ResponseWriter, req *http.Request) {
					asked++
					info := c.info
					if info == "" {
						info = `{"code":0,"bot":{"open_id":"ou_` + map[bool]string{true: "self", false: "other"}[bearer(req) == "t-new"] + `"}}`
					}
					_, _ = io.WriteString(w, info)
				})
				for range 2 {
					if _, got := r.as(c.token, "GET", "/open-apis/"+path, "{}"); (got != answer) != c.answered {
						t.Errorf("the caller got %s", got)
					}
				}
				if c.answered && asked != 1 {
					t.Errorf("Feishu was asked %d times whose the token is", asked)
				}
			})
		}
	}
}

// Feishu may read a body with two spellings of a name in another way than we do.
func TestATokenCallThatNamesTwoAppsTeachesNothing(t *testing.T) {
	for _, body := range []string{
		`{"app_id":"cli_other","app_secret":"s","APP_ID":"%s"}`,
		`{"app_id":"cli_other","app_secret":"s","app_id":"%s"}`,
		`{"app_id":"%s","app_id":"cli_other","app_secret":"s"}`,
	} {
		r := newRig(t, nil)
		r.call("POST", "/open-apis/auth/v3/tenant_access_token/internal", strings.Replace(body, "%s", r.app, 1))
		if _, known := r.tokens.Get("t-cli_other"); known || r.opts.API.Ready() {
			t.Errorf("%s was believed", body)
		}
	}
}

// A bot behind a webhook that is away is tried again by Inject, so the gateway is
// still the door to it: whoever waited for a change would wait for ever.
func TestAWebhooksBotThatIsAwayIsStillInjectedInto(t *testing.T) {
	up := true
	bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer bot.Close()
	r := newRig(t, func(o *Options) { o.Webhook = &webhook.Options{BotURL: bot.URL, VerificationToken: "token"} })
	event := strings.Replace(eventOf(r.app, "user", "ou_ann", "om_q", group, "group", "hi"), `"header":{`, `"header":{"token":"token",`, 1)
	up = false
	r.call("POST", "/webhook/event", event)
	if r.hook.Connected() || r.Status().Connected {
		t.Error("the bot does not count as away")
	}
	if !r.Connected() {
		t.Error("nothing would be injected any more")
	}
	up = true
	if err := r.Inject(t.Context(), feishu.Injection{Event: []byte(event)}); err != nil || !r.Status().Connected {
		t.Errorf("%v", err)
	}
}

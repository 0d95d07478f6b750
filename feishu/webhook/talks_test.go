package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/test/talktest"
)

// talk is a conversation of Feishu with a webhook.
type talk struct {
	*rig
	bot, does             string // what the bot answers, and the tap does
	reached               int
	mu                    sync.Mutex // of saw and does: a slow tap may still run
	saw, passed, verified []string
	said                  string // to Feishu
}

// The conversations of testdata/webhooks.txt.
func TestTalks(t *testing.T) {
	talktest.Run(t, "testdata/webhooks.txt", func(t *testing.T, lines string) {
		synctest.Test(t, func(t *testing.T) {
			k := &talk{bot: "200"}
			k.open(t, key, token)
			for line := range talktest.Steps(t, lines) {
				what, rest, _ := strings.Cut(line, " ")
				k.step(what, rest)
			}
			time.Sleep(time.Hour) // for a slow tap
		})
	})
}

// open makes a server with secrets.
func (k *talk) open(t *testing.T, key, token string) {
	k.reached = 0
	k.rig = newRig(t, "http://bot/hook", via(func(*http.Request) (*http.Response, error) {
		k.reached++
		if code, err := strconv.Atoi(k.bot); err == nil {
			return says(code, "the bot's"), nil
		}
		return nil, errors.New("connection refused")
	}, func(o *webhook.Options) {
		o.EncryptKey, o.VerificationToken = key, token
		o.Tap = k.tap
		o.Passed = func(e []byte) { k.passed = append(k.passed, eventID(e)) }
		o.Verified = func(id string) { k.verified = append(k.verified, id) }
	}))
}

func (k *talk) tap(e []byte) (feishu.Verdict, []byte) {
	k.mu.Lock()
	k.saw = append(k.saw, eventID(e))
	does := k.does
	k.mu.Unlock()
	if does == "slow" {
		time.Sleep(time.Minute)
	}
	return map[string]feishu.Verdict{"keep": feishu.Keep, "refuse": feishu.Refuse}[does], nil
}

func eventID(e []byte) string {
	_, id, _ := strings.Cut(string(e), `"event_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	return id
}

// step is a line of a conversation.
func (k *talk) step(what, rest string) {
	word := strings.Fields(rest)
	is := func(got any) {
		if fmt.Sprint(got) != rest {
			k.t.Errorf("got %v", got)
		}
	}
	switch what {
	case "secrets":
		keys := map[string][2]string{"key": {key, ""}, "token": {"", token}}[rest]
		k.open(k.t.(*testing.T), keys[0], keys[1])
	case "bot":
		k.bot = rest
	case "tap":
		k.mu.Lock()
		k.does = rest
		k.mu.Unlock()
	case "post":
		w := k.take(k.post(word[0], word[1], word[2:len(word)-1]))
		k.said = strings.TrimSpace(w.Body.String())
		if want := word[len(word)-1]; fmt.Sprint(w.Code) != want {
			k.t.Errorf("got %d %s", w.Code, k.said)
		}
	case "body":
		is(k.said)
	case "reached":
		is(k.reached)
	case "connected":
		is(map[bool]string{true: "yes", false: "no"}[k.s.Connected()])
	case "counted":
		is(fmt.Sprint(k.counted(word[1]), " ", word[1]))
	case "saw":
		k.mu.Lock()
		is(strings.Join(k.saw, " "))
		k.mu.Unlock()
	case "passed":
		is(strings.Join(k.passed, " "))
	case "verified":
		is(strings.Join(k.verified, " "))
	case "inject":
		err := inject(k.rig, k.t.Context(), event(word[0]))
		answer, _ := errors.AsType[*feishu.AnswerError](err)
		if ok := map[string]bool{"ok": err == nil, "not-injected": errors.Is(err, feishu.ErrNotInjected)}; !ok[word[1]] &&
			(answer == nil || fmt.Sprint(answer.Code) != word[1]) {
			k.t.Errorf("got %v", err)
		}
	}
}

// post is a post with changes of the form name=value.
func (k *talk) post(kind, body string, changes []string) (p post) {
	change := map[string]string{}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		change[name] = value
	}
	text := func(what string) string {
		switch {
		case what == "challenge":
			what = challenge(token)
		case strings.HasPrefix(what, "e"):
			what = event(what)
		}
		if size, err := strconv.Atoi(change["size"]); err == nil {
			what = strings.Replace(what, "hello", "hello"+strings.Repeat("a", size-len(what)), 1)
		}
		if other := change["token"]; other != "" {
			what = strings.ReplaceAll(what, token, other)
		}
		if other := change["app"]; other != "" {
			what = strings.ReplaceAll(what, app, other)
		}
		return what
	}
	at := func() string {
		offset, _ := time.ParseDuration(change["time"])
		return strconv.FormatInt(time.Now().Add(offset).Unix(), 10)
	}
	make := map[string]func(string) post{"plain": plain, "old": oldCard,
		"signed": func(body string) post { return signed(k.t, body) }}[kind]
	p = make(text(body))
	if timestamp, ok := change["timestamp"]; ok {
		p.sign(timestamp)
	} else if kind != "plain" {
		p.sign(at())
	}
	if body := change["body"]; body != "" {
		p.body = make(text(body)).body
	}
	switch change["signature"] {
	case "":
	case "none":
		p.header.Del("X-Lark-Signature")
	case "empty":
		p.header.Set("X-Lark-Signature", "")
	default:
		p.header.Set("X-Lark-Signature", change["signature"])
	}
	if nonce := change["nonce"]; nonce != "" {
		p.header.Set("X-Lark-Request-Nonce", nonce)
	}
	if path := change["path"]; path != "" {
		p.path = map[string]string{"card": webhook.CardPath, "event": webhook.EventPath, "none": "/webhook"}[path]
	}
	return p
}

func inject(r *rig, ctx context.Context, event string) error {
	return r.s.Inject(ctx, feishu.Injection{Event: []byte(event)})
}

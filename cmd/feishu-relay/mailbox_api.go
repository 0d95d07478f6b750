package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"feishu-relay/internal/selftest"
	"feishu-relay/relay"
)

const (
	// apiWithin bounds a call; a sidecar that is slower is told as an error.
	apiWithin = 15 * time.Second
	// maxAPIAnswer is the most bytes of an answer, enough for 1,000 dead letters
	// of full length; a longer one is an error.
	maxAPIAnswer = 128 << 20
)

// noSidecar says that nobody listens where the sidecar should, and what to do about it.
type noSidecar string

func (e noSidecar) Error() string { return string(e) }

// localAPI is the local API of the sidecar of this environment.
type localAPI struct {
	addr, token string
	inline      // of what is said where none answers
}

func newLocalAPI(addr string) (*localAPI, error) {
	target, err := sidecarAddr(addr)
	if err != nil {
		return nil, err
	}
	return &localAPI{addr: target, token: cmp.Or(os.Getenv("ADMIN_TOKEN"), os.Getenv("API_TOKEN"))}, nil
}

// call returns the body of an answer that is a success, and any other answer
// as the sentence that the sidecar gave. The parts of path are escaped; in is sent as
// JSON, unless it is nil.
func (a *localAPI) call(ctx context.Context, method, path string, in any) (data []byte, err error) {
	var body []byte
	if in != nil {
		if body, err = relay.Marshal(in); err != nil {
			return nil, err
		}
		body = append(body, '\n')
	}
	limited, cancel := context.WithTimeout(ctx, apiWithin)
	defer cancel()
	resp, data, err := selftest.Fetch(limited, selftest.Direct, method, "http://"+a.addr+path, a.token, body, maxAPIAnswer+1)
	if err != nil {
		return nil, a.unanswered(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp.StatusCode, data)
	}
	if len(data) > maxAPIAnswer || !json.Valid(data) {
		return nil, fmt.Errorf("what answers at %s is no sidecar of this version: %s %s gave no JSON of at most %d bytes",
			a.addr, method, path, maxAPIAnswer)
	}
	return data, nil
}

// unanswered says why there is no answer.
func (a *localAPI) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // interrupted
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return noSidecar(a.say("no sidecar answers at %s; start it (feishu-relay run --env-file bot.env), or give --addr",
			"%s 没有边车应答；启动它（feishu-relay run --env-file bot.env），或用 --addr 指定", a.addr))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the sidecar at %s gave no answer within %s; its log may tell why", a.addr, apiWithin)
	}
	return fmt.Errorf("the sidecar at %s broke off: %w", a.addr, err)
}

// refusal is an answer that is no success. Its sentence may quote what another
// agent wrote.
func refusal(status int, body []byte) error {
	switch message := errorMessage(body); {
	case status == http.StatusUnauthorized:
		return errors.New("the sidecar wants its token: set the variable ADMIN_TOKEN or API_TOKEN to the same here")
	case message == "":
		return fmt.Errorf("the sidecar answered %d %s; is it one of this version?", status, http.StatusText(status))
	default:
		return errors.New(neutral(message))
	}
}

// errorMessage is the message of an answer of the local API that is no success, "" where
// the answer has another form.
func errorMessage(body []byte) string {
	var answer struct{ Error struct{ Message string } }
	_ = json.Unmarshal(body, &answer)
	return answer.Error.Message
}

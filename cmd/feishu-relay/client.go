package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

const (
	// apiWithin bounds a call; a sidecar that is slower is told as an error. It tests itself in less than 15 s.
	apiWithin = 20 * time.Second
	// maxAPIAnswer is the most bytes of an answer, enough for 1,000 dead letters
	// of full length; a longer one is an error.
	maxAPIAnswer = 128 << 20
)

// client asks the local API of the sidecar of this environment, and prints the answers.
type client struct {
	addr, token string
	words       words.Words
	out         io.Writer
	paint       *paint
	json        bool // print answers as they are
	now         time.Time
}

// client finds the sidecar.
func (r reach) client(p *cli, asJSON bool, w words.Words) (*client, error) {
	addr, err := sidecarAddr(r.Addr)
	return &client{addr: addr, token: cmp.Or(os.Getenv("ADMIN_TOKEN"), os.Getenv("API_TOKEN")), words: w, out: p.stdout,
		paint: newPaint(p.stdout), json: asJSON, now: time.Now()}, err
}

// age is how long ago a time was, and since that of a time in an answer.
func (c *client) age(t time.Time) string { return c.words.Age(c.now.Sub(t)) }

func (c *client) since(text string) string {
	t, _ := time.Parse(time.RFC3339, text) // the sidecar's own form
	return c.age(t)
}

func (c *client) say(key string, args ...any) string { return c.words.Say(key, args...) }

// ask makes a call and displays the answer. A body of nil sends nothing.
func ask[T any](ctx context.Context, c *client, method, path string, body any, show func(*strings.Builder, T)) error {
	data, err := c.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	return display(c, data, show)
}

// display prints an answer with one Write: as show writes it, or as it is with --json.
func display[T any](c *client, data []byte, show func(*strings.Builder, T)) error {
	if c.json {
		_, err := c.out.Write(append(bytes.TrimSuffix(neutralJSON(data), []byte{'\n'}), '\n'))
		return err
	}
	var answer T
	if err := decode(data, &answer); err != nil {
		return err
	}
	var b strings.Builder
	show(&b, answer)
	_, err := io.WriteString(c.out, b.String())
	return err
}

// get reads an answer into to.
func (c *client) get(ctx context.Context, path string, to any) error {
	data, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return decode(data, to)
}

func decode(data []byte, to any) error {
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("the sidecar's answer has an unknown form (is it one of this version? --json shows it): %w", err)
	}
	return nil
}

// call returns the body of an answer that is a success, and any other answer
// as the sentence that the sidecar gave. The parts of path are escaped; in is sent as
// JSON, unless it is nil.
func (c *client) call(ctx context.Context, method, path string, in any) (data []byte, err error) {
	var body []byte
	if in != nil {
		if body, err = relay.Marshal(in); err != nil {
			return nil, err
		}
		body = append(body, '\n')
	}
	limited, cancel := context.WithTimeout(ctx, apiWithin)
	defer cancel()
	resp, data, err := fetch(limited, method, "http://"+c.addr+path, c.token, body)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp.StatusCode, data)
	}
	if len(data) > maxAPIAnswer || !json.Valid(data) {
		return nil, fmt.Errorf("what answers at %s is no sidecar of this version: %s %s gave no JSON of at most %d bytes",
			c.addr, method, path, maxAPIAnswer)
	}
	return data, nil
}

// direct makes connections past any proxy, each for one call.
var direct = &http.Transport{DisableKeepAlives: true}

// fetch makes a call, with a token unless that is empty, and reads one byte more of the answer than is allowed.
// Redirects are answers.
func fetch(ctx context.Context, method, url, token string, body []byte) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream") // as MCP wants it
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := direct.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAPIAnswer+1))
	return resp, data, err
}

// unanswered says why there is no answer.
func (c *client) unanswered(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // interrupted
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return noSidecar(c.say("no sidecar", c.addr))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the sidecar at %s gave no answer in time; its log may tell why", c.addr)
	}
	return fmt.Errorf("the sidecar at %s broke off: %w", c.addr, err)
}

// noSidecar says that nobody listens where the sidecar should, and what to do about it.
type noSidecar string

func (e noSidecar) Error() string { return string(e) }

var errToken = errors.New("the sidecar wants its token: set the variable ADMIN_TOKEN or API_TOKEN to the same here")

// refusal is an answer that is no success. Its sentence may quote what another
// agent wrote.
func refusal(status int, body []byte) error {
	switch message := errorMessage(body); {
	case status == http.StatusUnauthorized:
		return errToken
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

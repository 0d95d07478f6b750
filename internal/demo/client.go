package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	callWithin = 10 * time.Second // a call that is no stream
	maxAnswer  = 8 << 20          // bytes of an answer or of one event; more is an error
)

// client calls the local API, as any program would.
type client struct{ http *http.Client }

func newClient() *client {
	// No proxy: whatever the user's environment says, this stays on loopback. No
	// connection is kept: a spare one, dialled and never used, would hold up the
	// sidecar's stop, since a server cannot know that nothing will come on it.
	return &client{&http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}}
}

// get reads a JSON answer into out, which may be nil.
func (c *client) get(ctx context.Context, url string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return c.do(req, out)
}

// post sends in as JSON and reads the JSON answer into out.
func (c *client) post(ctx context.Context, url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.do(req, out)
}

// statusError is an answer that is no success.
type statusError struct {
	status int
	code   string
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d %s", e.status, e.code) }

func (c *client) do(req *http.Request, out any) error {
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := checkStatus(resp.StatusCode, data); err != nil || out == nil {
		return err
	}
	return json.Unmarshal(data, out)
}

func checkStatus(status int, body []byte) error {
	if status >= 200 && status < 300 {
		return nil
	}
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal(body, &e) // the status alone tells enough
	return &statusError{status, e.Error.Code}
}

// until asks again and again until done says so, or fails: for what tells no
// events. What is not there within a time is an error that says what.
func until(ctx context.Context, within time.Duration, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s: not within %s", what, within))
	defer cancel()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		ok, err := done(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
}

// event is one server-sent event.
type event struct {
	kind, id string
	data     []byte
}

// events is an open stream of them.
type events struct{ body io.ReadCloser }

// Close ends the stream.
func (s *events) Close() error { return s.body.Close() }

// subscribe opens a stream of server-sent events behind lastID; "" is from now
// on. When it returns, the server has answered and counts us as listening.
func (c *client) subscribe(ctx context.Context, url, lastID string) (*events, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if err := checkStatus(resp.StatusCode, nil); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	return &events{resp.Body}, nil
}

// all yields the events until the stream ends, and then the error it ended
// with, which is never nil.
func (s *events) all(yield func(event, error) bool) {
	lines := bufio.NewScanner(s.body)
	lines.Buffer(nil, maxAnswer)
	var e event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = append(e.data, value...)
		case "":
			if lines.Text() != "" { // a comment
				continue
			}
			if len(e.data) > 0 && !yield(e, nil) {
				return
			}
			e = event{}
		}
	}
	err := lines.Err()
	if err == nil {
		err = io.EOF
	}
	yield(event{}, err)
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"feishu-relay/feishu"
)

const (
	feishuCallLimit = 4 * time.Second // of one call; then Feishu counts as not reached
	maxFeishuAnswer = 4 << 20         // bytes; a longer answer is none of Feishu's
)

// feishuCaller makes the calls of a check: few, one after the other, and none
// that changes anything.
type feishuCaller struct {
	base  string
	token string        // "": calls go without
	ahead time.Duration // of Feishu's clock before ours, by the last answer; see dated
	dated bool          // the last answer had a date
}

// refused is the error of a call that Feishu answered with a code.
type refused struct {
	Code   int    `json:"code"`
	Msg    string `json:"msg"`
	Detail struct {
		Violations []struct {
			Subject string `json:"subject"`
		} `json:"permission_violations"`
	} `json:"error"`
}

func (r *refused) Error() string { return fmt.Sprintf("code %d: %.200s", r.Code, r.Msg) }

// errNotFeishu says that somebody answers who is not Feishu.
var errNotFeishu = errors.New("what answers is not Feishu")

// scopeList finds the scopes in the text of a refusal.
var scopeList = regexp.MustCompile(`required: \[([a-zA-Z0-9_.:, -]*)\]`)

// scopes are those of which one would have been enough.
func (r *refused) scopes() []string {
	var out []string
	for _, v := range r.Detail.Violations {
		out = append(out, v.Subject)
	}
	if m := scopeList.FindStringSubmatch(r.Msg); len(out) == 0 && m != nil {
		out = list(m[1])
	}
	return out
}

// call asks Feishu and reads the answer into out. Errors are a [*refused],
// errNotFeishu, or one about the network; none shows a secret.
func (f *feishuCaller) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, feishuCallLimit)
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.base+path, body)
	if err != nil {
		return errors.New("the base URL is none")
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	asked := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	f.compareClocks(resp.Header.Get("Date"), asked)
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxFeishuAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var code struct{ Code *int }
	var answer refused
	switch err := json.Unmarshal(data, &code); {
	case err != nil || code.Code == nil:
		return fmt.Errorf("%w (HTTP %d)", errNotFeishu, resp.StatusCode)
	case *code.Code != 0:
		_ = json.Unmarshal(data, &answer) // as far as it has the form
		answer.Code = *code.Code
		return &answer
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w (%s has another form)", errNotFeishu, strings.TrimPrefix(path, "/open-apis/"))
	}
	return nil
}

// compareClocks takes Feishu's time, to the second, as that of the middle between
// question and answer.
func (f *feishuCaller) compareClocks(date string, asked time.Time) {
	theirs, err := http.ParseTime(date)
	if f.dated = err == nil; f.dated {
		f.ahead = theirs.Add(time.Second / 2).Sub(asked.Add(time.Since(asked) / 2))
	}
}

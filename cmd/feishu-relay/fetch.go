package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"feishu-relay/feishu"
)

// direct makes connections past any proxy, each for one call.
var direct = &http.Transport{DisableKeepAlives: true}

// fetch makes an HTTP call, with a token unless that is empty, and reads at most limit
// bytes of the answer. Redirects are answers. Where reading the answer failed, there
// is a response beside the error. Errors do not show the URL.
func fetch(ctx context.Context, by http.RoundTripper, method, url, token string, body []byte, limit int64) (
	*http.Response, []byte, error,
) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, errors.New("it is no URL")
	}
	if method == http.MethodPost || method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := by.RoundTrip(req)
	if err != nil {
		return nil, nil, feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	return resp, data, err
}

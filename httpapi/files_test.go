package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/relay"
)

func (f *fakes) holds(c relay.FileContent, body string) {
	f.File = func(context.Context, relay.MessageID, string) (relay.FileContent, error) {
		c.Body = io.NopCloser(strings.NewReader(body))
		return c, nil
	}
}

func TestFileIsAnAttachment(t *testing.T) {
	for _, tt := range []struct{ kind, name, wantKind, wantName string }{
		{"image/png", "a.png", "image/png", `attachment; filename=a.png`},
		{"image/png; charset=x", "", "image/png", `attachment`},
		{"image/svg+xml", "a.svg", "application/octet-stream", `attachment; filename=a.svg`},
		{"text/html", "../a b.html", "application/octet-stream", `attachment; filename=".._a b.html"`},
		{"", "a\r\nSet-Cookie: x\\", "application/octet-stream", `attachment; filename="a__Set-Cookie: x_"`},
	} {
		f := newFakes()
		f.holds(relay.FileContent{File: relay.File{Name: tt.name}, MediaType: tt.kind, Size: 4}, "data")
		w := call(t, f, "GET", "/v1/messages/om_1/files/img_1", "")
		h := w.Header()
		if w.Code != 200 || w.Body.String() != "data" || h.Get("Content-Type") != tt.wantKind || h.Get("Content-Disposition") != tt.wantName ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Length") != "4" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%q %q: %d %v %q", tt.kind, tt.name, w.Code, h, w.Body)
		}
		if w := ask(f, "HEAD", "/v1/messages/om_1/files/img_1", ""); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "4" {
			t.Errorf("HEAD: %d %v %q", w.Code, w.Header(), w.Body)
		}
	}
}

func TestFileIsRefused(t *testing.T) {
	for code, status := range map[relay.Code]int{
		relay.CodeUnknownMessage: 404, relay.CodeUnknownFile: 404, relay.CodeRecalled: 410, relay.CodeTooLarge: 413,
		relay.CodeFeishuRefused: 502, relay.CodeFeishuUnavailable: 502, relay.CodeNoCredentials: 503,
	} {
		f := newFakes()
		f.File = func(_ context.Context, id relay.MessageID, key string) (relay.FileContent, error) {
			if id != "om/1" || key != "img_1" {
				t.Errorf("asked for %q of %q", key, id)
			}
			return relay.FileContent{}, relay.Errorf(code, "why")
		}
		apitest.WantError(t, call(t, f, "GET", "/v1/messages/om%2F1/files/img_1", ""), status, string(code))
	}
	f := newFakes()
	apitest.WantError(t, call(t, f, "GET", "/v1/messages/om_1/files/a%00", ""), 400, "invalid_request")
}

// A transfer that breaks off is seen by its reader.
func TestFileThatBreaksOff(t *testing.T) {
	r := newRig(t)
	r.Options.File = func(context.Context, relay.MessageID, string) (relay.FileContent, error) {
		body := io.MultiReader(strings.NewReader("half"), failing{})
		return relay.FileContent{Size: -1, Body: io.NopCloser(body)}, nil
	}
	r.open()
	resp, err := http.Get(r.url + "/v1/messages/om_1/files/img_1")
	if err != nil {
		return // nothing came
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got %q as the whole file", data)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("away") }

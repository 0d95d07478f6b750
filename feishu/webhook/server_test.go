package webhook_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/feishu/webhook"
)

func TestPostsAndAnswersPassByteForByte(t *testing.T) {
	type seen struct {
		uri, host string
		header    http.Header
		body      []byte
	}
	got := make(chan seen, 1)
	bot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.RequestURI, r.Host, r.Header, body}
		w.Header()["X-Two"] = []string{"a", "b"}
		w.Header().Set("Content-Type", "text/odd")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "the bot's answer")
	}))
	defer bot.Close()
	r := newRig(t, bot.URL+"/hook%2fa?own=1", nil).serve()
	p := signed(t, event("e1"))
	p.header.Set("User-Agent", "Go-http-client/1.1 Feishu")
	p.header.Set("X-Tt-Logid", "log1")
	p.header["X-Many"] = []string{"1", "2"}
	sent := p.header.Clone()
	sent.Set("Connection", "X-Hop")
	sent.Set("X-Hop", "1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+webhook.EventPath+"?a=%2f&b", bytes.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = sent
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := <-got
	s.header.Del("Content-Length")
	if s.uri != "/hook%2fa?own=1&a=%2f&b" || s.host != strings.TrimPrefix(bot.URL, "http://") || !bytes.Equal(s.body, p.body) || len(s.header) != len(p.header) {
		t.Errorf("the bot got %s %s %v %s, want %v", s.uri, s.host, s.header, s.body, p.header)
	}
	for k, v := range p.header {
		if strings.Join(s.header[k], "|") != strings.Join(v, "|") {
			t.Errorf("%s: got %q, want %q", k, s.header[k], v)
		}
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusTeapot || string(answer) != "the bot's answer" ||
		resp.Header.Get("Content-Type") != "text/odd" || len(resp.Header["X-Two"]) != 2 {
		t.Errorf("Feishu got %d %v %s %v", resp.StatusCode, resp.Header, answer, err)
	}
}

func TestABodyWithoutALengthIsBounded(t *testing.T) {
	r := newRig(t, "http://bot/", nil)
	w, endless := httptest.NewRecorder(), io.MultiReader(strings.NewReader("{"), bytes.NewReader(make([]byte, 2<<20)))
	r.s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.EventPath, endless))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", w.Code)
	}
}

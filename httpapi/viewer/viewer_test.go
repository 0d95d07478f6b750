package viewer_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"feishu-relay/httpapi/viewer"
)

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	viewer.Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "\r\n\r\n")
	return text
}

// files are those of the page, by name.
func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS("static"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path.Join("static", name))
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestHandlerServesThePageAndItsFiles(t *testing.T) {
	all := files(t)
	for name, want := range all {
		address := "/viewer/" + name
		if name == "index.html" {
			address = "/"
		}
		r := get(t, address)
		if got := body(t, r); r.StatusCode != http.StatusOK || got != want {
			t.Errorf("GET %s: status %d, %d bytes, want %d", address, r.StatusCode, len(got), len(want))
		}
		kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".svg": "image/svg+xml"}
		if got, want := r.Header.Get("Content-Type"), kinds[path.Ext(name)]; got != want {
			t.Errorf("GET %s: Content-Type %q, want %q", address, got, want)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "no-referrer",
			"Cache-Control":           "no-cache",
		} {
			if got := r.Header.Get(header); got != want {
				t.Errorf("GET %s: %s is %q, want %q", address, header, got, want)
			}
		}
	}
}

func TestHandlerAnswersNotModified(t *testing.T) {
	etag := get(t, "/").Header.Get("ETag")
	if other := get(t, "/viewer/app.js").Header.Get("ETag"); etag == "" || etag == other {
		t.Fatalf("ETags %q and %q of two files", etag, other)
	}
	if r := get(t, "/", "If-None-Match", etag); r.StatusCode != http.StatusNotModified {
		t.Errorf("with its ETag: status %d", r.StatusCode)
	}
}

func TestHandlerKnowsNoOtherFile(t *testing.T) {
	for _, address := range []string{"/viewer/", "/viewer/none.js", "/viewer/..%2fviewer.go", "/viewer/static%2fapp.js", "/viewer/a/b", "/other"} {
		r := get(t, address)
		if text := body(t, r); r.StatusCode != http.StatusNotFound || !strings.HasPrefix(text, `{"error":{"code":"not_found"`) {
			t.Errorf("GET %s: status %d, body %s", address, r.StatusCode, text)
		}
		if kind := r.Header.Get("Content-Type"); kind != "application/json; charset=utf-8" {
			t.Errorf("GET %s: Content-Type %q", address, kind)
		}
	}
}

// TestPageMakesNoMarkupOfText looks for the ways in which what a bot wrote could
// become more than text, and for what the policy of the page would block.
func TestPageMakesNoMarkupOfText(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function|srcdoc|setHTML|\bstyle="|<style|\son\w+="|javascript:|@import|(?-i:url\()`)
	outside := regexp.MustCompile(`(?i)(src|href)="(https?:)?//|(from|import\() *'(https?:)?//|fetch\('(https?:)?//`)
	for name, text := range files(t) {
		for i, line := range strings.Split(text, "\n") {
			if found := forbidden.FindString(line); found != "" {
				t.Errorf("%s:%d has %s", name, i+1, found)
			}
			if found := outside.FindString(line); found != "" {
				t.Errorf("%s:%d needs something from outside: %s", name, i+1, found)
			}
		}
	}
}

// TestPageTakesNoBotsMessages: watching settles nothing.
func TestPageTakesNoBotsMessages(t *testing.T) {
	address := regexp.MustCompile(`['"` + "`" + `](/v1/[a-z/-]+)`)
	allowed := []string{"/v1/status", "/v1/transcripts", "/v1/transcripts/", "/v1/outcomes", "/v1/events", "/v1/groups", "/v1/groups/",
		"/v1/mailbox/agents", "/v1/mailbox/tasks", "/v1/mailbox/inbox", "/v1/mailbox/dead-letters", "/v1/mailbox/dead-letters/"}
	call := regexp.MustCompile(`\b(fetch|EventSource|WebSocket|XMLHttpRequest|sendBeacon)\(`)
	for name, text := range files(t) {
		if name != "api.js" && name != "live.js" {
			if found := call.FindString(text); found != "" {
				t.Errorf("%s calls the network by itself: %s", name, found)
			}
			continue
		}
		for _, m := range address.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(allowed, m[1]) {
				t.Errorf("%s calls %s", name, m[1])
			}
		}
	}
}

func TestPageHasEveryFileThatItNames(t *testing.T) {
	all := files(t)
	used := map[string]bool{"index.html": true}
	names := regexp.MustCompile(`(?:from|import) '\./([^']+)'|(?:src|href)="viewer/([^"]+)"`)
	for name, text := range all {
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			file := m[1] + m[2]
			used[file] = true
			if _, ok := all[file]; !ok && get(t, "/viewer/"+file).StatusCode != http.StatusOK {
				t.Errorf("%s names %s, which is not there", name, file)
			}
		}
	}
	for name := range all {
		if !used[name] {
			t.Errorf("%s is used by nothing", name)
		}
	}
}

// TestWordsAreThereInBothLanguages compares the dictionaries with each other, and
// with what the page asks for.
func TestWordsAreThereInBothLanguages(t *testing.T) {
	all := files(t)
	entry := regexp.MustCompile(`(?:^|[ {,])'?([\w.]+)'?: '((?:[^'\\]|\\.)*)'`)
	words := func(file string) map[string]string {
		found := map[string]string{}
		for line := range strings.Lines(all[file]) {
			for _, m := range entry.FindAllStringSubmatch(line, -1) {
				if _, twice := found[m[1]]; twice {
					t.Errorf("%s has %s twice", file, m[1])
				}
				found[m[1]] = m[2]
			}
		}
		return found
	}
	en, zh := words("words-en.js"), words("words-zh.js")
	hole := regexp.MustCompile(`\{\w+\}`)
	for key, text := range en {
		other, ok := zh[key]
		if !ok {
			t.Errorf("%s is not in Chinese", key)
			continue
		}
		a, b := hole.FindAllString(text, -1), hole.FindAllString(other, -1)
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			t.Errorf("%s has %v in English and %v in Chinese", key, a, b)
		}
	}
	for key := range zh {
		if _, ok := en[key]; !ok {
			t.Errorf("%s is not in English", key)
		}
	}
	asked := regexp.MustCompile(`\bt\('([\w.]+)'[,)]`)
	for name, text := range all {
		for _, m := range asked.FindAllStringSubmatch(text, -1) {
			if _, ok := en[m[1]]; !ok {
				t.Errorf("%s asks for the word %s, which is not there", name, m[1])
			}
		}
	}
}

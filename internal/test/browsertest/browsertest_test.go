package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// failing is a test that is to fail without failing this one.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}
func (f *failing) Failed() bool { return len(f.said) > 0 }

// site serves pages by name, under the policy that a name may come with.
func site(t *testing.T, pages map[string]string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if strings.HasSuffix(r.URL.Path, ".strict") {
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src *")
		}
		_, _ = w.Write([]byte("<!doctype html><title>a page</title><link rel=icon href=data:,>" + text))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

func TestBrowser(t *testing.T) {
	b := Start(t)
	base := site(t, map[string]string{
		"quiet":          `<p id=done>`,
		"throws":         `<p><script>setTimeout(() => { document.body.id = 'done'; throw new Error('oh') })</script>`,
		"rejects":        `<p><script>Promise.reject(new Error('oh')); setTimeout(() => { document.body.id = 'done' })</script>`,
		"complains":      `<script>console.error('oh', 1)</script><p id=done>`,
		"misses":         `<img src=/none onerror="this.id='done'">`,
		"inline.strict":  `<p id=done><script>window.ran = 1</script>`,
		"handler.strict": `<p id=done onclick="window.ran = 1">`,
		"fetches":        `<p><script>fetch('http://127.0.0.1:9/').catch(() => { document.body.id = 'done' })</script>`,
		"connects":       `<p><script>new WebSocket('ws://127.0.0.1:9/').onerror = () => { document.body.id = 'done' }</script>`,
		"controls": `<style>body { margin: 0; height: 3000px } #far { position: absolute; top: 2500px }</style><input id=text onkeydown="if (event.key === 'x') event.preventDefault()">
			<script>clicks = 0; scrolled = false; addEventListener('wheel', () => { scrolled = true }); addEventListener('touchstart', () => { touched = true })</script>
			<button id=far onclick="clicks++">far</button>`,
	})
	for page, want := range map[string]string{
		"quiet": "", "throws": "uncaught: Uncaught Error: oh", "rejects": "uncaught: Uncaught (in promise) Error: oh", "complains": "console: \"oh\" 1",
		"misses": "network: Failed to load", "inline.strict": "content security policy: script-src-elem", "handler.strict": "content security policy: script-src-attr",
		"fetches": "request to another origin: http://127.0.0.1:9/", "connects": "request to another origin: ws://127.0.0.1:9/",
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			f := &failing{TB: t}
			p := b.Open(t, base+page, Options{})
			p.t = f
			p.Wait("the page is done", `document.querySelector('#done')`)
			Eval[bool](p, `document.querySelector('#done').click() || true`) // a handler may be looked at only when it is needed
			Eval[bool](p, `new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true))))`)
			p.report()
			told := slices.ContainsFunc(f.said, func(s string) bool { return strings.Contains(s, want) })
			if want == "" && len(f.said) > 0 || want != "" && !told {
				t.Errorf("got %q, want %q", f.said, want)
			}
			if pictures, _ := filepath.Glob(filepath.Join(t.ArtifactDir(), "page-*.png")); (len(pictures) == 1) != (want != "") {
				t.Errorf("got pictures %q, want one of a page that failed", pictures)
			}
			p.t = t
			p.Expect("") // all of it was wanted
		})
	}
	t.Run("expected", func(t *testing.T) {
		t.Parallel()
		p := b.Open(t, base+"throws", Options{})
		p.Expect("Error: oh")
		p.Wait("the page is done", `document.querySelector('#done')`)
	})
	t.Run("mouse and keys", func(t *testing.T) {
		t.Parallel()
		p := b.Open(t, base+"controls", Options{Language: "zh-CN", Dark: true})
		p.Click("#far")
		if got := Eval[[]float64](p, `[clicks, scrollY > 1000 ? 1 : 0]`); got[0] != 1 || got[1] != 1 {
			t.Errorf("got clicks and scrolled %v, want one of each", got)
		}
		p.Click("#text")
		p.Press("axbc")
		p.Wheel("#text", 300)
		p.Wait("the wheel", `scrolled`)
		want := "abc zh-CN true 1280"
		if got := Eval[string](p, `[text.value, navigator.language, matchMedia('(prefers-color-scheme: dark)').matches, innerWidth].join(' ')`); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("phone", func(t *testing.T) {
		t.Parallel()
		p := b.Open(t, base+"controls", Options{Width: 360, Height: 740, Touch: true})
		p.Click("#far")
		p.Wait("the tap", `touched && clicks === 1 && matchMedia('(pointer: coarse)').matches`)
	})
}

func TestMissingBrowserIsSaid(t *testing.T) {
	t.Setenv("PATH", "")
	for _, wanted := range []string{"", "no-such-browser"} {
		if path, err := find(wanted); err == nil || !strings.Contains(err.Error(), "CHROME") {
			t.Errorf("CHROME=%q: got %q, %v, want how to mend it", wanted, path, err)
		}
	}
}

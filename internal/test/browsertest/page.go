package browsertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	// patience is how long anything is waited for. It is no measurement: only a
	// test that fails waits so long.
	patience = 5 * time.Minute
	pollWait = 15 * time.Millisecond // between two looks
)

// Options say before what kind of screen, and whom, a page is opened. The zero
// value is a desktop with a light theme, in English.
type Options struct {
	Width, Height int64  // in CSS pixels; 0: 1280 and 800
	Touch         bool   // a phone: fingers in place of a mouse
	Dark          bool   // the system's theme
	Language      string // "": en-GB
}

// Page is one page of a browser. Its methods are for one goroutine; each fails
// the test if what it is to do is not possible.
type Page struct {
	t      testing.TB
	ctx    context.Context
	touch  bool
	faults *faults
	dir    string // for a picture
}

// pictures numbers those of pages that failed.
var pictures atomic.Int32

// Open shows the page at address in a window of its own until the test ends.
func (b *Browser) Open(t testing.TB, address string, o Options) *Page {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, touch: o.Touch, faults: &faults{origin: originOf(u)}, dir: t.ArtifactDir()} // made now, it is there until the end
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.faults.take))
	p.ctx = ctx
	t.Cleanup(func() {
		p.report()
		end()
	})
	language := cmp.Or(o.Language, "en-GB")
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	p.Do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		agent, err := chromedp.Evaluate[string](`navigator.userAgent`)(ctx, target)
		if err != nil {
			return err
		}
		_, err1 := cdp.Call(ctx, target, audits.Enable, cdp.Empty{})
		_, err2 := cdp.Call(ctx, target, emulation.SetUserAgentOverride,
			emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: language})
		_, err3 := cdp.Call(ctx, target, emulation.SetLocaleOverride,
			emulation.SetLocaleOverrideParams{Locale: strings.ReplaceAll(language, "-", "_")})
		return errors.Join(err1, err2, err3)
	}))
	p.Scheme(scheme)
	p.Resize(cmp.Or(o.Width, 1280), cmp.Or(o.Height, 800))
	p.Do(chromedp.Navigate(address))
	return p
}

// Expect excuses faults whose text contains part: those that the test provokes.
func (p *Page) Expect(part string) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.expected = append(p.faults.expected, part)
}

// report tells what the page did wrong, and keeps a picture of a test that failed.
func (p *Page) report() {
	for _, fault := range p.faults.list() {
		p.t.Errorf("the page: %s", fault)
	}
	if !p.t.Failed() {
		return
	}
	file := filepath.Join(p.dir, fmt.Sprintf("page-%d.png", pictures.Add(1)))
	if err := p.capture(file); err != nil {
		p.t.Logf("no picture of the page: %v", err)
	}
}

// Do performs actions of chromedp.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if chromedp.FromContext(p.ctx).Target == nil {
		ctx = p.ctx // the page lives as long as the ctx of its first action
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("in the browser: %v", err)
	}
}

// Eval returns the value of an expression of JavaScript in the page; of a
// promise, what it comes to.
func Eval[T any](p *Page, js string) T {
	p.t.Helper()
	v, err := evaluate[T](p, js)
	if err != nil {
		p.t.Fatalf("%.300s: %v", js, err)
	}
	return v
}

func evaluate[T any](p *Page, js string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
}

// Wait waits until an expression is true; what names it for the one who reads
// that it never was. The page may be loaded anew meanwhile.
func (p *Page) Wait(what, js string) {
	p.t.Helper()
	late := time.Now().Add(patience)
	for {
		ok, err := evaluate[bool](p, "Boolean("+js+")")
		if ok && err == nil {
			return
		}
		if time.Now().After(late) {
			shown, _ := evaluate[string](p, `document.body.innerText.slice(0, 1500)`) // as good as it gets
			p.t.Fatalf("waited in vain: %s (%v); the page says:\n%s", what, err, shown)
		}
		time.Sleep(pollWait)
	}
}

// place finds the middle of an element once that stands still and nothing
// covers it, or says why there is none.
const place = `(async (selector) => {
	const frame = () => new Promise((done) => requestAnimationFrame(done))
	const e = document.querySelector(selector)
	if (!e) return { why: 'there is none' }
	e.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' })
	const a = e.getBoundingClientRect()
	await frame()
	await frame()
	const b = e.getBoundingClientRect()
	if (!b.width || !b.height) return { why: 'it is not visible' }
	if (a.x !== b.x || a.y !== b.y) return { why: 'it moves' }
	const x = b.x + b.width / 2, y = b.y + b.height / 2
	const top = document.elementFromPoint(x, y)
	if (!top || !(e.contains(top) || top.contains(e) && getComputedStyle(e).display === 'contents' || top.closest('label')?.contains(e))) {
		return { why: 'covered by ' + (top ? top.outerHTML.slice(0, 200) : 'the edge of the window') }
	}
	return { x, y }
})(%s)`

// Middle waits until the element that selector finds can be clicked, and returns
// where that is.
func (p *Page) Middle(selector string) (x, y float64) {
	p.t.Helper()
	late := time.Now().Add(patience)
	for {
		at, err := evaluate[struct {
			X, Y float64
			Why  string
		}](p, fmt.Sprintf(place, JS(selector)))
		if err == nil && at.Why == "" {
			return at.X, at.Y
		}
		if time.Now().After(late) {
			p.t.Fatalf("cannot click %s: %s %v", selector, at.Why, err)
		}
		time.Sleep(pollWait)
	}
}

// watchClick notes whether the next click reaches what a selector finds.
const watchClick = `((selector) => {
	window.clickMissed = true
	addEventListener('click', (e) => { if (e.target.closest(selector)) window.clickMissed = false },
		{ capture: true, once: true })
})(%s)`

// Click clicks, or taps on a phone, the first element that selector finds, as
// soon as that is possible. Where the page is redrawn under the mouse it
// clicks again, as people do.
func (p *Page) Click(selector string) {
	p.t.Helper()
	if p.touch {
		x, y := p.Middle(selector)
		p.Do(chromedp.TapXY(x, y))
		return
	}
	for late := time.Now().Add(patience); ; {
		Eval[any](p, fmt.Sprintf(watchClick, JS(selector)))
		x, y := p.Middle(selector)
		p.Do(chromedp.MouseEvent(chromedp.MouseMoved, x, y), chromedp.MouseClickXY(x, y))
		missed, err := evaluate[bool](p, `window.clickMissed === true`)
		if err != nil || !missed { // the click has led to another page, or has come
			return
		}
		if time.Now().After(late) {
			p.t.Fatalf("no click reaches %s", selector)
		}
	}
}

// Press presses keys one after another: letters, or those of the package kb. A
// key comes with its text in one event, as a keyboard's does: what the page
// prevents is not typed.
func (p *Page) Press(keys string, held ...chromedp.Modifier) {
	p.t.Helper()
	p.Do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		for _, key := range keys {
			for _, e := range events(key, held) {
				if _, err := cdp.Call(ctx, target, input.DispatchKeyEvent, *e); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// events are those of one key: down with the text that it types, and up.
func events(key rune, held []chromedp.Modifier) []*input.DispatchKeyEventParams {
	all := kb.Encode(key)
	down, up := all[0], all[len(all)-1]
	for _, e := range all {
		if e.Type == kb.KeyChar {
			down.Text, down.UnmodifiedText = e.Text, e.UnmodifiedText
		}
		for _, m := range held {
			e.Modifiers |= int64(m)
		}
	}
	return []*input.DispatchKeyEventParams{down, up}
}

// Wheel turns the mouse's wheel over an element; a negative way scrolls up.
func (p *Page) Wheel(selector string, way float64) {
	p.t.Helper()
	x, y := p.Middle(selector)
	turn := map[string]any{"type": chromedp.MouseWheel, "x": x, "y": y, "deltaX": 0, "deltaY": way} // chromedp's own type leaves out a 0
	p.Do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		return target.Call(ctx, input.CommandDispatchMouseEvent, turn, nil)
	}))
}

// Scheme sets the system's theme, light or dark.
func (p *Page) Scheme(name string) {
	p.t.Helper()
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	p.Do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, media)
		return err
	}))
}

// Resize sets the size of the window's content in CSS pixels.
func (p *Page) Resize(width, height int64) {
	p.t.Helper()
	if p.touch {
		p.Do(chromedp.EmulateViewport(width, height, chromedp.EmulateMobile, chromedp.EmulateTouch,
			chromedp.EmulatePortrait, chromedp.EmulateScale(2)))
		return
	}
	p.Do(chromedp.EmulateViewport(width, height))
}

// capture keeps a picture of what the window shows.
func (p *Page) capture(file string) error {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o600)
}

// Run performs an action of chromedp that has a result.
func Run[T any](p *Page, a chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		p.t.Fatalf("in the browser: %v", err)
	}
	return v
}

// JS is v as it is written in JavaScript.
func JS(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a value of a test that is none of JSON
	}
	return string(data)
}

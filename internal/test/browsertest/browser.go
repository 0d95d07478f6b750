// Package browsertest lets tests drive a page in a real browser: Chromium
// without a window, with an empty profile of its own.
//
//	b := browsertest.Start(t)
//	p := b.Open(t, "http://127.0.0.1:8787/", browsertest.Options{})
//	p.Click(`[data-testid="search"]`)
//	p.Wait("the result", `document.querySelectorAll("mark").length === 1`)
//
// # Pages
//
// A browser may serve many tests at once: each page has its own window, cookies
// and storage, and lives until its test ends.
//
// # What fails a test without being asked for
//
// An exception that nothing caught, an error on the console, a violation of the
// page's content security policy, a request to any other origin than the page's
// own, and a page that crashed; [Page.Expect] excuses what a test provokes. Of a
// test that failed, a picture of each page is in its [testing.T.ArtifactDir].
//
// # A missing browser
//
// A test never skips: without one, [Start] fails it and says what to install.
// The environment variable CHROME names a browser that is not on the PATH.
package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	// Chromium itself may crash while it starts, before any page is open: seen once in some thousand starts.
	startAttempts = 3

	startLimit = 60 * time.Second // for a browser to run; then the attempt has failed
	endLimit   = 10 * time.Second // for it to end in order; then it is killed
)

// names of the program: on Debian, elsewhere, Google's own, and on a Mac.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
	"/Applications/Chromium.app/Contents/MacOS/Chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"}

// flags beside those that chromedp sets: nothing is fetched that a page did not ask for.
var flags = []string{"disable-gpu", "disable-quic", "disable-component-update", "disable-domain-reliability",
	"no-sandbox"} // which a container has no rights for; the pages are ours

// Browser is one process. It is safe for concurrent use.
type Browser struct {
	ctx context.Context // of chromedp, which has the browser in it
}

// Start runs a browser until the test has ended, and its subtests with it. One
// that crashes while it starts is started again, which the test's log tells.
func Start(t testing.TB) *Browser {
	t.Helper()
	program, err := find(os.Getenv("CHROME"))
	if err != nil {
		t.Fatal(err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program))
	for _, f := range flags {
		opts = append(opts, chromedp.Flag(f, true))
	}
	var ctx context.Context
	for attempt := 1; ; attempt++ {
		if ctx, err = start(t, opts); err == nil {
			break
		}
		if attempt == startAttempts {
			t.Fatalf("start %s, attempt %d: %v", program, attempt, err)
		}
		t.Logf("start %s, attempt %d: %v", program, attempt, err)
	}
	t.Cleanup(func() {
		limited, cancel := context.WithTimeout(ctx, endLimit)
		defer cancel()
		if err := chromedp.Cancel(limited); err != nil {
			t.Logf("the browser did not end in order: %v", err)
		}
	})
	return &Browser{ctx}
}

// start runs one process, of which nothing is left if it returns an error.
func start(t testing.TB, opts []chromedp.ExecAllocatorOption) (context.Context, error) {
	alloc, release := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, kill := chromedp.NewContext(alloc)
	slow := time.AfterFunc(startLimit, release)
	defer slow.Stop()
	if err := chromedp.Do(ctx); err != nil {
		kill()
		release()
		return nil, err
	}
	t.Cleanup(release)
	t.Cleanup(kill)
	return ctx, nil
}

// find returns the browser's path; wanted comes first if it is not "".
func find(wanted string) (string, error) {
	if wanted != "" {
		path, err := exec.LookPath(wanted)
		if err != nil {
			return "", fmt.Errorf("CHROME names no program: %w", err)
		}
		return path, nil
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("a browser is needed; install the package chromium (make tools), or set CHROME to a Chrome: %w", exec.ErrNotFound)
}

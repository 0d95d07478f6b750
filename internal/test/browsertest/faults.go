package browsertest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
)

// faults collects what a page does that no page of ours may do.
type faults struct {
	origin string // of the page

	mu       sync.Mutex
	seen     []string // guarded by mu
	expected []string // guarded by mu
}

// take looks at an event of the page. It is called from the loop that reads the
// browser's messages.
func (f *faults) take(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		f.add("uncaught: %s", text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			f.add("console: %s", text(e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			f.add("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if csp := e.Issue.Details.ContentSecurityPolicyIssueDetails; csp != nil {
			f.add("content security policy: %s violated by %q", csp.ViolatedDirective, csp.BlockedURL)
		}
	case *network.EventRequestWillBeSent:
		f.leaves(e.Request.URL)
	case *network.EventWebSocketCreated:
		f.leaves(e.URL)
	case *inspector.EventTargetCrashed:
		f.add("the page crashed")
	}
}

func text(args []*runtime.RemoteObject) string {
	var parts []string
	for _, a := range args {
		if a.Description != "" {
			parts = append(parts, a.Description)
		} else {
			parts = append(parts, string(a.Value))
		}
	}
	return strings.Join(parts, " ")
}

// schemes are those of requests that leave the browser.
var schemes = []string{"http", "https", "ws", "wss", "ftp"}

// leaves notes a request that goes elsewhere.
func (f *faults) leaves(address string) {
	u, err := url.Parse(address)
	if err == nil && slices.Contains(schemes, u.Scheme) && originOf(u) != f.origin {
		f.add("request to another origin: %.300s", address)
	}
}

// originOf is the origin of an address; a WebSocket's is that of its page.
func originOf(u *url.URL) string {
	return strings.Replace(u.Scheme, "ws", "http", 1) + "://" + u.Host
}

func (f *faults) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fmt.Sprintf(format, args...))
}

// list is what is not expected.
func (f *faults) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.seen), func(fault string) bool {
		return slices.ContainsFunc(f.expected, func(part string) bool { return strings.Contains(fault, part) })
	})
}

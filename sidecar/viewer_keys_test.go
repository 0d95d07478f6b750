//go:build unix

package sidecar_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"feishu-relay/internal/test/browsertest"
)

// unseenFocus tells why one does not see what has the focus; "": one does.
const unseenFocus = `(() => {
	const e = document.activeElement
	if (!e || e === document.body) return 'nothing has it'
	const style = getComputedStyle(e), { width, height } = e.getBoundingClientRect()
	if (!width || !height) return 'it is on something not visible: ' + e.outerHTML.slice(0, 200)
	if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 1) return 'no outline around ' + e.outerHTML.slice(0, 200)
	return ''
})()`

// Everything can be done without a mouse, and one always sees where one is.
func viewByKeyboard(t *testing.T, browser *browsertest.Browser, a *bot) {
	p := view(t, browser, a, "", browsertest.Options{})
	shows(p, is("group", "chat-id", devChat))
	seen := func(after string) {
		t.Helper()
		if why := browsertest.Eval[string](p, unseenFocus); why != "" {
			t.Errorf("after %s the focus is not seen: %s", after, why)
		}
	}
	// tabTo presses Tab until an element has the focus.
	tabTo := func(selector string, held ...chromedp.Modifier) {
		t.Helper()
		for range 60 {
			p.Press(kb.Tab, held...)
			if browsertest.Eval[bool](p, `document.activeElement === document.body`) {
				continue // at the end of the page, on the way to its beginning
			}
			seen("Tab to " + selector)
			if browsertest.Eval[bool](p, `document.activeElement.matches(`+browsertest.JS(selector)+`)`) {
				return
			}
		}
		t.Fatalf("Tab does not lead to %s", selector)
	}
	focused := func(selector string) {
		t.Helper()
		p.Wait("the focus on "+selector, `document.activeElement.matches(`+browsertest.JS(selector)+`)`)
		seen("it came to " + selector)
	}

	tabTo(is("group", "chat-id", devChat))
	p.Press(kb.Enter)
	shows(p, message("om_8"))
	p.Press("k") // the newest is chosen first
	focused(message("om_8"))
	p.Press("k" + kb.ArrowUp)
	focused(message("om_6"))
	p.Press("j")
	focused(message("om_7"))
	p.Press(kb.Enter)
	shows(p, is("details")+":not([hidden])")
	p.Press(kb.Escape)
	shows(p, is("details")+"[hidden]")
	focused(message("om_7"))

	p.Press("/")
	focused(is("search"))
	p.Press("main.go")
	p.Wait("what was searched for", `document.querySelectorAll('mark').length > 0 && !document.querySelector('[data-message-id=om_8]')`)
	p.Press(kb.Escape)
	p.Wait("all messages", `document.querySelector('[data-message-id=om_8]') && !document.querySelector('mark')`)
	p.Press("/")
	tabTo(is("filter-stopped"))
	p.Press(" ")
	p.Wait("the stopped messages alone", `[...document.querySelectorAll('[data-testid=message]')].every((m) => m.dataset.state === 'stop') && document.querySelector('[data-message-id=om_7]')`)
	seen("a filter")
	p.Press(kb.Escape)
	shows(p, message("om_8"))

	lang := browsertest.Eval[string](p, `document.documentElement.lang`)
	p.Press("l")
	p.Wait("the other language", `document.documentElement.lang !== `+browsertest.JS(lang))
	p.Press("l")
	p.Press("t")
	p.Wait("the other theme", `document.documentElement.dataset.theme === 'dark'`)
	p.Press("?")
	shows(p, "dialog[open]")
	seen("the help")
	p.Press(kb.Escape)
	p.Wait("no help", `!document.querySelector('dialog[open]')`)

	for _, section := range []struct{ key, hash, shows string }{
		{"a", "#/agents", is("agent")}, {"m", "#/mailbox", is("task")}, {"s", "#/system", is("ready")}, {"g", "#/groups", is("group")},
	} {
		p.Press("g" + section.key)
		p.Wait(section.hash, `location.hash === `+browsertest.JS(section.hash))
		shows(p, section.shows)
		if section.key == "m" {
			tabTo(is("tab-tasks"))
			p.Press(kb.ArrowRight)
			focused(is("tab-inbox") + "[aria-selected=true]")
		}
	}
	p.Press("]")
	p.Wait("a group", `location.hash.startsWith('#/groups/feishu/')`)
	shows(p, message("om_ops_answer")) // what takes its place until then loses the focus
	tabTo(is("nav-system"), chromedp.ModifierShift)
	p.Press(kb.Enter)
	shows(p, is("ready"))
}

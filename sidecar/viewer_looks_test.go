//go:build unix

package sidecar_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"feishu-relay/internal/test/browsertest"
)

// places are all that the viewer has, as hashes, each with what tells that it is
// there.
var places = []struct{ hash, shows string }{
	{"#/groups", is("group", "chat-id", devChat)},
	{"#/groups/feishu/" + devChat, message("om_8")},
	{"#/groups/feishu/" + devChat + "/om_3", is("details") + " " + is("outcome-details")},
	{"#/groups/feishu/" + devChat + "/om_7", is("details") + " " + is("outcome-details", "state", "stop")},
	{"#/agents", is("agent", "agent", "agent_b")},
	{"#/mailbox", is("task")},
	{"#/system", is("ready")},
}

// tour goes through all places and looks at each.
func tour(p *browsertest.Page, look func(place string)) {
	for _, place := range places {
		browsertest.Eval[string](p, "location.hash = "+browsertest.JS(place.hash))
		shows(p, place.shows)
		look(place.hash)
	}
	browsertest.Eval[string](p, `location.hash = '#/mailbox'`)
	for _, tab := range []string{"tab-inbox", "tab-dead"} {
		p.Click(is(tab))
		look(tab)
	}
}

// tooWide are the elements that reach beyond the window and cannot be scrolled
// into it within their own box.
const tooWide = `(() => {
	const wide = document.documentElement.scrollWidth > innerWidth ? ['the page: ' + document.documentElement.scrollWidth] : []
	const boxed = (e) => { for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') return true }
	for (const e of document.querySelectorAll('body *')) {
		const { right, left, width } = e.getBoundingClientRect()
		if (width && (right > innerWidth + 1 || left < -1) && !boxed(e)) wide.push(e.outerHTML.slice(0, 150))
	}
	for (const e of document.querySelectorAll('main, section, #talk-scroll, #details, #group-list')) {
		if (e.offsetParent && e.scrollWidth > e.clientWidth + 1) wide.push('scrolls sideways: ' + e.id + ' ' + e.scrollWidth + ' > ' + e.clientWidth)
	}
	return wide
})()`

// tooSmall are controls that a finger does not meet. Those in running text are
// not counted.
const tooSmall = `[...document.querySelectorAll('button, select, input, #rail a, a.group, a.icon-button')].filter((e) => {
	const { width, height } = e.getBoundingClientRect()
	return e.checkVisibility() && height && (height < 40 || width < 40) && !e.closest('label') && !e.matches('.link, .quote, .thread-mark')
}).map((e) => { const r = e.getBoundingClientRect(); return Math.round(r.width) + '×' + Math.round(r.height) + ' ' + e.outerHTML.slice(0, 150) })`

// A phone shows one thing at a time, all of it within the screen.
func viewOnPhone(t *testing.T, browser *browsertest.Browser, a *bot) {
	p := view(t, browser, a, "", browsertest.Options{Width: 360, Height: 740, Touch: true})
	visible := func(selector string) string {
		return "document.querySelector(" + browsertest.JS(selector) + ")?.checkVisibility()"
	}
	p.Click(is("group", "chat-id", devChat))
	p.Wait("the conversation alone", visible(message("om_8"))+" && !"+visible(is("group")))
	p.Click(message("om_8") + " .who")
	p.Wait("details", visible(is("details")))
	p.Click(is("details-close"))
	p.Wait("the conversation again", visible(message("om_8"))+" && !"+visible(is("details")))
	p.Click(is("back"))
	p.Wait("the list", visible(is("group"))+" && !"+visible(message("om_8")))
	tour(p, func(place string) {
		for _, e := range browsertest.Eval[[]string](p, tooWide) {
			t.Errorf("%s: beyond the screen: %s", place, e)
		}
		for _, e := range browsertest.Eval[[]string](p, tooSmall) {
			t.Errorf("%s: too small for a finger: %s", place, e)
		}
	})
}

// faint are the texts whose contrast with what is behind them is below what
// WCAG AA asks for.
const faint = `(() => {
	const pen = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true })
	const rgba = (color) => {
		pen.clearRect(0, 0, 1, 1)
		pen.fillStyle = color
		pen.fillRect(0, 0, 1, 1)
		return [...pen.getImageData(0, 0, 1, 1).data]
	}
	const over = ([r, g, b, a], [R, G, B]) => [r, g, b].map((c, i) => c * a / 255 + [R, G, B][i] * (1 - a / 255))
	const behind = (e) => (e ? over(rgba(getComputedStyle(e).backgroundColor), behind(e.parentElement)) : rgba('Canvas').slice(0, 3))
	const light = (rgb) => rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
	const found = []
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement
		if (!walk.currentNode.data.trim() || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true }) || e.closest('noscript, option')) continue
		let opacity = 1
		for (let p = e; p; p = p.parentElement) opacity *= getComputedStyle(p).opacity
		const style = getComputedStyle(e), ground = behind(e)
		const [r, g, b, a] = rgba(e instanceof SVGElement ? style.fill : style.color)
		const [x, y] = [light(over([r, g, b, a * opacity], ground)), light(ground)].sort((m, n) => n - m)
		const ratio = (x + 0.05) / (y + 0.05)
		const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700
		if (ratio < (large ? 3 : 4.5)) found.push(ratio.toFixed(2) + ' ' + e.localName + '.' + (e.getAttribute('class') ?? '') + ' "' + walk.currentNode.data.slice(0, 40) + '"')
	}
	return [...new Set(found)]
})()`

// Text can be read in both themes, which follow the system until one is chosen.
func viewContrast(t *testing.T, browser *browsertest.Browser, a *bot) {
	for _, dark := range []bool{false, true} {
		p := view(t, browser, a, "", browsertest.Options{Dark: dark})
		shows(p, is("group"))
		ground := browsertest.Eval[string](p, `getComputedStyle(document.body).backgroundColor`)
		tour(p, func(place string) {
			for _, e := range browsertest.Eval[[]string](p, faint) {
				t.Errorf("dark %t, %s: %s", dark, place, e)
			}
		})
		p.Click(is("tool-theme"))
		if got := browsertest.Eval[string](p, `getComputedStyle(document.body).backgroundColor`); got == ground {
			t.Errorf("dark %t: the button leaves the theme as it is, %s", dark, got)
		}
		p.Do(chromedp.Reload())
		shows(p, is("nav-groups"))
		if got := browsertest.Eval[string](p, `getComputedStyle(document.body).backgroundColor`); got == ground {
			t.Errorf("dark %t: the theme that was chosen is forgotten", dark)
		}
	}
}

// strange are texts that nobody was to see: names of words in place of the
// words, words of the other language, and what was to be replaced.
const strange = `(async () => {
	const { en } = await import('/viewer/words-en.js'), { zh } = await import('/viewer/words-zh.js')
	const [own, other] = document.documentElement.lang === 'zh' ? [zh, en] : [en, zh]
	const foreign = new Set(Object.values(other))
	for (const word of [...Object.values(own), other['key.language'], 'depth']) foreign.delete(word) // depth is also a field of the API
	const texts = [document.title]
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement
		if (e.checkVisibility() && !e.closest('.text, .mono, code, .last, .excerpt, bdi, noscript, #spoken')) texts.push(walk.currentNode.data.trim())
	}
	for (const e of document.querySelectorAll('*')) if (e.checkVisibility()) for (const name of ['aria-label', 'title', 'placeholder', 'alt']) if (e.hasAttribute(name)) texts.push(e.getAttribute(name))
	return [...new Set(texts.filter((text) => /^[a-z]+(\.[a-z0-9_]+)+$/.test(text) || foreign.has(text) || /\{\w+\}|undefined|NaN|\[object|Invalid Date/.test(text)))]
})()`

// Every word is in the chosen language, which the browser remembers.
func viewWords(t *testing.T, browser *browsertest.Browser, a *bot) {
	for _, tt := range []struct{ language, code string }{{"en-US", "en"}, {"zh-CN", "zh"}} {
		p := view(t, browser, a, "", browsertest.Options{Language: tt.language})
		shows(p, `html[lang="`+tt.code+`"]`)
		look := func(place string) {
			t.Helper()
			for _, text := range browsertest.Eval[[]string](p, strange) {
				t.Errorf("%s, %s: %q", tt.language, place, text)
			}
		}
		tour(p, look)
		nav := words(p, "#rail nav")
		p.Click(is("tool-language"))
		p.Wait("other words", `document.querySelector('#rail nav').innerText !== `+browsertest.JS(nav))
		other := browsertest.Eval[string](p, `document.documentElement.lang`)
		look("after the language was changed")
		p.Do(chromedp.Reload())
		shows(p, is("nav-groups"))
		if got := browsertest.Eval[string](p, `document.documentElement.lang`); got != other || got == tt.code {
			t.Errorf("%s: after a reload the language is %q, want %q", tt.language, got, other)
		}
		if got := words(p, "#rail nav"); got == nav {
			t.Errorf("%s: after a reload the sections are called %q again", tt.language, got)
		}
	}
}

// unfit is what is wrong with the page's own structure.
const unfit = `(() => {
	const roles = ['alert', 'article', 'button', 'dialog', 'group', 'img', 'list', 'listitem', 'log', 'navigation', 'none', 'note', 'presentation', 'region', 'status', 'tab', 'tablist', 'tabpanel', 'complementary', 'main', 'search']
	const found = []
	const say = (what, e) => found.push(what + ': ' + e.outerHTML.slice(0, 160))
	const h1 = [...document.querySelectorAll('h1')].filter((e) => e.checkVisibility())
	if (h1.length !== 1) found.push(h1.length + ' h1')
	if (!document.documentElement.lang) found.push('no lang')
	if (!document.title) found.push('no title')
	const ids = [...document.querySelectorAll('[id]')].map((e) => e.id)
	for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) found.push('two of id ' + id)
	for (const e of document.querySelectorAll('[role]')) if (!roles.includes(e.getAttribute('role'))) say('role', e)
	for (const e of document.querySelectorAll('[aria-controls], [aria-labelledby], [aria-describedby]')) for (const name of ['aria-controls', 'aria-labelledby', 'aria-describedby'])
		for (const id of (e.getAttribute(name) ?? '').split(' ').filter(Boolean)) if (!document.getElementById(id)) say(name + ' leads nowhere', e)
	for (const e of document.querySelectorAll('img:not([alt])')) say('no alt', e)
	for (const e of document.querySelectorAll('[aria-hidden=true]')) if (e.querySelector('a, button, input, [tabindex]')) say('hidden and reachable', e)
	for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) say('tabindex', e)
	return found
})()`

// named are the roles that mean nothing without a name.
var named = []string{"button", "link", "textbox", "searchbox", "combobox", "tab", "tabpanel", "dialog", "navigation", "image", "img", "log", "meter", "complementary", "heading", "group", "region"}

// Whoever cannot see the page is told what is on it.
func viewAccessibility(t *testing.T, browser *browsertest.Browser, a *bot) {
	p := view(t, browser, a, "", browsertest.Options{})
	tour(p, func(place string) {
		for _, fault := range browsertest.Eval[[]string](p, unfit) {
			t.Errorf("%s: %s", place, fault)
		}
		tree := browsertest.Run(p, func(ctx context.Context, target *chromedp.Target) ([]*accessibility.Node, error) {
			if _, err := cdp.Call(ctx, target, accessibility.Enable, cdp.Empty{}); err != nil {
				return nil, err
			}
			result, err := cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
			return result.Nodes, err
		})
		if len(tree) < 20 {
			t.Errorf("%s: %d nodes are in the accessibility tree", place, len(tree))
		}
		for _, node := range tree {
			if role := axText(node.Role); !node.Ignored && slices.Contains(named, role) && axText(node.Name) == "" {
				t.Errorf("%s: a %s has no name: %+v", place, role, node.Properties)
			}
		}
	})
}

func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `" `)
}

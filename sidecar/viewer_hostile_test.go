//go:build unix

package sidecar_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"feishu-relay/internal/test/browsertest"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// hostile is what a page that trusts its messages would run, load or obey, and
// how it is to be shown; "": as it is.
var hostile = []struct{ text, shown string }{
	{`<img src=x onerror="window.pwned=1">`, ""},
	{`<script>window.pwned=2</script><script src=//evil.example/x.js></script>`, ""},
	{`<svg/onload=window.pwned=3><iframe srcdoc="<script>parent.pwned=4</script>">`, ""},
	{`[click](javascript:window.pwned=5) javascript:window.pwned=5 data:text/html,<script>window.pwned=5</script>`, ""},
	{`![a picture](http://evil.example/x.png) <a href="javascript:window.pwned=6">x</a>`, ""},
	{`</div></main></body><style>*{display:none!important}</style><base href=//evil.example/>`, ""},
	{`https://example.com/"onmouseover="window.pwned=7"x`, ""},
	{"**<img src=x onerror=window.pwned=8>** `<img src=x onerror=window.pwned=9>`", "<img src=x onerror=window.pwned=8> <img src=x onerror=window.pwned=9>"},
	{"```html\n<script>window.pwned=10</script>\n```", "<script>window.pwned=10</script>"},
	{`{{constructor.constructor('window.pwned=11')()}} ${window.pwned=11} &lt;b&gt; &#60;`, ""},
	{"this is \u202egpj.exe\u202c", "this is U+202Egpj.exeU+202C"},
	{"nul \x00 bell \a escape \x1b[31m hidden\u200b\u2066 \u2028 end", "nul U+0000 bell U+0007 escape U+001B[31m hiddenU+200BU+2066 U+2028 end"},
	{"Z̸͚̈́à̵l̶g̴o̷ 👩‍👩‍👧‍👦 \U000e0041", "Z̸͚̈́à̵l̶g̴o̷ 👩‍👩‍👧‍👦 U+E0041"},
}

// hostileSenders are names that people can have.
var hostileSenders = []string{`<b onmouseover=window.pwned=20>Mallory</b>`, "\u202eeve", strings.Repeat("名", 200), `"><img src=x onerror=window.pwned=21>`, " ", "__proto__"}

// harmless tells what the page has that it made of somebody's text; it is to be
// nothing.
const harmful = `[
	...(window.pwned === undefined ? [] : ['script ran: ' + window.pwned]),
	...[...document.querySelectorAll('img, iframe, object, embed, video, audio, style, base, form:not([method]), meta[http-equiv], body script')].map((e) => e.outerHTML.slice(0, 200)),
	...[...document.querySelectorAll('*')].flatMap((e) => [...e.attributes].filter((a) => a.name.startsWith('on') || a.name === 'srcdoc').map((a) => a.name + '=' + a.value)),
	...[...document.querySelectorAll('a[href]')].filter((a) => !/^(https?:|#|\/)/.test(a.getAttribute('href'))).map((a) => a.outerHTML.slice(0, 200)),
]`

// Whatever is in messages, names, ids, mail and tasks, the page shows it as text.
func viewHostileText(t *testing.T, browser *browsertest.Browser) {
	const chat = `oc_<i>x</i>"'&/..%2F?#[y]名`
	ctx := limited(t)
	withMail := withMail(t.TempDir())
	c := prepare(t, setup{bots: 2, change: func(i int, cfg *sidecar.Config) {
		withMail(i, cfg)
		cfg.Role, cfg.Capabilities = hostile[0].text, []string{hostile[1].text}
	}})
	c.listening(ctx)
	a, b := c.bots[0], c.bots[1]
	id := func(i int) relay.MessageID { return relay.MessageID(fmt.Sprintf(`om_%d"]<b>'`, i)) }
	for i, h := range hostile {
		sender := hostileSenders[i%len(hostileSenders)]
		if i%3 == 2 {
			b.says(ctx, t, chat, id(i), h.text, map[string]any{"parent_id": id(i - 1), "thread_id": `"><i>thread</i>`, "sender_name": sender})
		} else {
			a.hears(ctx, t, chat, id(i), sender, h.text)
		}
	}
	const long = 200_000
	a.hears(ctx, t, chat, "om_long", "Tom", strings.Repeat("長い<b>長い</b>", long/11)+strings.Repeat("x", long%11))
	for _, h := range hostile[:3] {
		sent := map[string]any{"to": "agent_a", "text": h.text}
		for _, route := range []string{"/v1/mailbox/messages", "/v1/mailbox/tasks"} {
			if status, code, err := b.post(ctx, route, sent); err != nil || status != http.StatusAccepted {
				t.Fatalf("%s answered %d %s %v", route, status, code, err)
			}
		}
	}

	p := view(t, browser, a, "", browsertest.Options{})
	check := func(where string) {
		t.Helper()
		for _, found := range browsertest.Eval[[]string](p, harmful) {
			t.Errorf("%s: %s", where, found)
		}
	}
	p.Click(is("group"))
	shows(p, is("message", "message-id", "om_long"))
	check("the conversation")
	for i, h := range hostile {
		want := h.shown
		if want == "" {
			want = h.text
		}
		text := fmt.Sprintf("document.querySelector('[data-message-id=' + CSS.escape(%s) + '] .text')?.textContent.trim()", browsertest.JS(id(i)))
		p.Wait("message "+string(id(i)), text)
		if got := browsertest.Eval[string](p, text); got != want {
			t.Errorf("%q is shown as %q, want %q", h.text, got, want)
		}
	}
	p.Click(message("om_long") + " " + is("show-all"))
	p.Wait("the whole of a long text", fmt.Sprintf(`document.querySelector(%s).firstChild.length + 10 > %d`, browsertest.JS(message("om_long")+" .text"), long))
	for i := range hostile {
		browsertest.Eval[bool](p, `(location.hash = '#/groups/feishu/' + encodeURIComponent(`+browsertest.JS(chat)+`) + '/' + encodeURIComponent(`+browsertest.JS(id(i))+`), true)`)
		p.Wait("details", `document.querySelector('[data-testid=details]:not([hidden])')?.textContent.includes(`+browsertest.JS(id(i))+`)`)
		check("the details of " + string(id(i)))
	}
	p.Click(is("nav-agents"))
	shows(p, is("agent", "agent", "agent_b"))
	check("the agents")
	p.Click(is("nav-mailbox"))
	p.Wait("tasks", `document.querySelectorAll('[data-testid=task]').length === 3`)
	check("the tasks")
	if got := words(p, is("task")); !strings.Contains(got, hostile[2].text) {
		t.Errorf("a task is shown as %q, want its text in it", got)
	}
	p.Click(is("tab-inbox"))
	shows(p, is("mail"))
	check("the inbox")
	p.Click(is("nav-system"))
	shows(p, is("ready"))
	check("the system")
}

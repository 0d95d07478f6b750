//go:build unix

package sidecar_test

import (
	"net/http"
	"testing"

	"feishu-relay/internal/test/browsertest"
)

// What a person changes in the viewer holds at the other sidecar, and what is changed there is shown.
func viewSteering(t *testing.T, browser *browsertest.Browser) {
	n, a, b := twoOverHTTP(t, "")
	for _, s := range []*running{a, b} {
		body := `{"chat_id":"oc_x","content":"Good morning","sender":"Ann","message_id":"om_1"}`
		if status, answer := n.asks(s, "POST", "/v1/inbound", body); status != http.StatusAccepted {
			t.Fatalf("%d %s", status, answer)
		}
	}
	p := browser.Open(t, "http://"+a.Addr().String()+"/#/groups/feishu/oc_x", browsertest.Options{})
	shows(p, message("om_1"))
	p.Wait("the connection", `document.querySelector('[data-testid=connection]').dataset.state === 'live'`)
	p.Click(is("steer-toggle"))
	p.Wait("both bots", `document.querySelectorAll('[data-testid=steer-bot]').length === 2`)
	p.Click(is("steer-pause"))
	shows(p, "#talk-head "+is("paused"))
	n.until("it holds at the other sidecar", func() bool { return n.group(b, "oc_x").Settings.Paused != nil })
	shows(p, is("notice-kind", "kind", "command", "act", "set"))
	n.changes(b, a, "PATCH", "/v1/groups/oc_x", `{"paused":false,"limit":7}`)
	p.Wait("what was changed at the other sidecar", `document.querySelector('[data-testid=steer-limit]').value === '7' &&
		!document.querySelector('#talk-head [data-testid=paused]') && document.querySelectorAll('[data-testid=notice-kind]').length === 2`)
	p.Click(is("steer-bot", "agent", "agent_b") + " button")
	n.until("agent_b is muted at its sidecar", func() bool { _, muted := n.group(b, "oc_x").Settings.Muted["agent_b"]; return muted })
}

//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/browsertest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// A person looks at the groups through the viewer, with a real browser, while
// real sidecars and their bots work. All of them share one browser.
func TestViewer(t *testing.T) {
	browser := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, *browsertest.Browser){
		"story over files": viewStoryOverFiles,
		"story over Redis": viewStoryOverRedis,
		"hostile text":     viewHostileText,
		"token":            viewWithToken,
		"mailbox":          viewMailbox,
		"a lively group":   viewLivelyGroup,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "story over files" {
				verify.Only(t)
			}
			t.Parallel()
			test(t, browser)
		})
	}
}

// standardLimits stop the third bot in a row and ask the judge about the second.
func standardLimits(_ int, cfg *sidecar.Config) {
	cfg.Limits.MaxDepth, cfg.Limits.Threshold, cfg.Limits.Check = 3, 1, true
}

// withPresence is standardLimits with the agents' cards: the page says of bots whose sidecar is not online that they went
// offline.
func withPresence(i int, cfg *sidecar.Config) {
	standardLimits(i, cfg)
	cfg.Mailbox = sidecar.MailboxConfig{Dir: filepath.Join(filepath.Dir(cfg.RelayDir), "mailboxes"),
		Heartbeat: time.Second, HeartbeatTimeout: patience}
}

// withMail is standardLimits with a mailbox whose times are short.
func withMail(dir string) func(int, *sidecar.Config) {
	return func(i int, cfg *sidecar.Config) {
		standardLimits(i, cfg)
		cfg.Mailbox = sidecar.MailboxConfig{On: true, Dir: filepath.Join(dir, "mailboxes"), MaxTasks: 3,
			Heartbeat: 500 * time.Millisecond, HeartbeatTimeout: 3 * time.Second, AckTimeout: 300 * time.Millisecond,
			RetryBase: 50 * time.Millisecond, MaxRetries: 1, MaxExchanges: 100}
		cfg.DedupSize = 5000
	}
}

// view opens the viewer of b's sidecar; place is a hash such as "#/agents", or "".
func view(t *testing.T, browser *browsertest.Browser, b *bot, place string, o browsertest.Options) *browsertest.Page {
	t.Helper()
	url, err := b.side.url(limited(t))
	must(t, err)
	return browser.Open(t, url+"/"+place, o)
}

// is the element that has a test id and, in pairs, further data attributes.
func is(testID string, data ...string) string {
	parts := []string{fmt.Sprintf("[data-testid=%q]", testID)}
	for pair := range slices.Chunk(data, 2) {
		parts = append(parts, fmt.Sprintf("[data-%s=%q]", pair[0], pair[1]))
	}
	return strings.Join(parts, "")
}

// message is a message's element.
func message(id relay.MessageID) string { return is("message", "message-id", string(id)) }

// shows waits until the page has an element that selector finds.
func shows(p *browsertest.Page, selector string) {
	p.Wait(selector, "document.querySelector("+browsertest.JS(selector)+")")
}

// count is how many elements the page has that selector finds.
func count(p *browsertest.Page, selector string) int {
	return browsertest.Eval[int](p, "document.querySelectorAll("+browsertest.JS(selector)+").length")
}

// stays marks the page, and returns a check that it was not loaded anew.
func stays(t *testing.T, p *browsertest.Page) func() {
	browsertest.Eval[bool](p, `window.loadedOnce = true`)
	return func() {
		t.Helper()
		if !browsertest.Eval[bool](p, `window.loadedOnce === true`) {
			t.Error("the page was loaded anew")
		}
	}
}

// hears lets b report what a person said in a group.
func (b *bot) hears(ctx context.Context, t *testing.T, chat string, id relay.MessageID, person, text string) {
	t.Helper()
	must(t, b.insist(ctx, "/v1/inbound", map[string]any{"chat_id": chat, "content": text, "sender": person, "message_id": id,
		"ts": time.Now().UnixMilli(), "chat_type": "group"}))
}

// says lets b report what it said itself.
func (b *bot) says(ctx context.Context, t *testing.T, chat string, id relay.MessageID, text string, more map[string]any) {
	t.Helper()
	must(t, b.sayThis(ctx, chat, id, text, more))
}

// listening starts the sidecars of c without readers of their streams, so that
// mail and messages wait.
func (c *cluster) listening(ctx context.Context) {
	c.t.Helper()
	for _, b := range c.bots {
		b.side.start("")
		eventually(ctx, c.t, b.name+" is ready", func() bool {
			st, err := b.status(ctx)
			return err == nil && st.Ready
		})
	}
}

// words are what the page shows of an element as text, or "" if it has none.
func words(p *browsertest.Page, selector string) string {
	return strings.TrimSpace(browsertest.Eval[string](p, "document.querySelector("+browsertest.JS(selector)+")?.innerText ?? ''"))
}

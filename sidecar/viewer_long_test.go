//go:build unix

package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/browsertest"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// fromTop is how far the conversation is scrolled down, in px.
const fromTop = `((e) => e.scrollHeight - e.clientHeight + e.scrollTop)(document.querySelector('#talk-scroll'))`

// settle waits until the scrolling and what it brought in have come to rest, and
// returns the first message in view and where it is.
const settle = `(async () => {
	const scroller = document.querySelector('#talk-scroll')
	const frame = () => new Promise((done) => requestAnimationFrame(done))
	for (let quiet = 0, top; quiet < 4; await frame()) {
		const now = scroller.scrollTop + ' ' + scroller.scrollHeight
		quiet = now === top ? quiet + 1 : 0
		top = now
	}
	const box = scroller.getBoundingClientRect()
	const first = document.elementsFromPoint(box.left + box.width / 2, box.top + 120).map((e) => e.closest('[data-message-id]')).find(Boolean)
	const pages = performance.getEntriesByType('resource').filter((e) => e.name.includes('before=')).length
	return { Pages: pages, Top: ` + fromTop + `, ID: first?.dataset.messageId ?? '', At: first ? first.getBoundingClientRect().top : 0 }
})()`

// topOf is where on the screen a message is.
const topOf = `document.querySelector('[data-message-id="%s"]')?.getBoundingClientRect().top`

type scrolled struct {
	Top float64
	ID  string // of the first message in view
	At  float64

	Pages int // of older messages that were asked for
}

// A conversation of 5,000 messages opens at its end, and can be read to its
// beginning with the wheel: nothing is left out, doubled or out of order, what is
// on the screen stays there while older messages come in, and only what is near
// the screen is drawn.
func viewLongTranscript(t *testing.T, browser *browsertest.Browser) {
	const messages = 5_000
	ctx := limited(t)
	c := prepare(t, setup{bots: 1, change: standardLimits})
	want := writeTranscript(t, c.folders[0], "oc_long", messages)
	c.listening(ctx)
	p := view(t, browser, c.bots[0], "#/groups/feishu/oc_long", browsertest.Options{})
	p.Wait("the newest message, in view", fmt.Sprintf(`%s > 0 && %[1]s < innerHeight`, fmt.Sprintf(topOf, want[messages-1])))

	// Slowly at first, with an eye on what happens when older messages come.
	const step, far = 400., 4_000.
	for before := browsertest.Eval[scrolled](p, settle); before.Pages < 2; {
		way := step
		if before.Top > far+2_500 {
			way = far
		}
		p.Wheel("#talk-scroll", -way)
		p.Wait("the wheel", fmt.Sprintf(fromTop+` !== %v || performance.getEntriesByType('resource').filter((e) => e.name.includes('before=')).length > %d`, before.Top, before.Pages))
		after := browsertest.Eval[scrolled](p, settle)
		if way == step {
			moved := browsertest.Eval[float64](p, fmt.Sprintf(topOf, before.ID)) - before.At
			if moved < -3 || moved > step+3 || moved == 0 && after.Pages == before.Pages {
				t.Fatalf("at %+v a turn of %.0f px moved what was on the screen by %.0f", before, step, moved)
			}
		}
		before = after
	}
	inOrder := func() {
		t.Helper()
		ids := browsertest.Eval[[]string](p, `[...document.querySelectorAll('[data-testid="message"]')].map((m) => m.dataset.messageId)`)
		if !slices.IsSorted(ids) || len(slices.Compact(ids)) != len(ids) {
			t.Errorf("messages are out of order or doubled: %v", ids)
		}
		if drawn := browsertest.Eval[int](p, drawnMessages); drawn == 0 || drawn > 1000 {
			t.Errorf("%d messages are drawn, want those near the screen alone", drawn)
		}
	}
	inOrder()

	p.Scroll("#talk-scroll", -40_000, 12_000)
	inOrder()

	p.Click(is("newest"))
	p.Wait("the end again", fmt.Sprintf(`%s > 0 && %[1]s < innerHeight`, fmt.Sprintf(topOf, want[messages-1])))
	for browsertest.Eval[bool](p, fmt.Sprintf(sweep, want[0])) {
		if ctx.Err() != nil {
			t.Fatalf("the page does not come to the first message: %+v", browsertest.Eval[scrolled](p, settle))
		}
	}
	had := browsertest.Eval[[]string](p, `[...had].sort()`)
	if !slices.Equal(had, want) {
		t.Errorf("on the way the page had %d messages, want all %d", len(had), messages)
	}
	inOrder()
}

// sweep goes up through the conversation a while, in steps that pass over
// nothing, to the first message that is there, and notes the messages that were
// there at any. It returns whether the
// first one is still to come.
const sweep = `(async () => {
	const scroller = document.querySelector('#talk-scroll')
	const frame = () => new Promise((done) => requestAnimationFrame(done))
	const more = () => !had.has('%s') || ` + fromTop + ` > 0
	const note = () => { for (const m of document.querySelectorAll('[data-message-id]')) had.add(m.dataset.messageId) }
	if (!window.had) { // after each change: a slow page may take in and drop messages between two frames
		window.had = new Set()
		note()
		new MutationObserver(note).observe(scroller, { childList: true, subtree: true })
	}
	for (let step = 0; step < 50 && more(); step++) {
		const first = document.querySelector('[data-message-id]')
		scroller.scrollTop -= Math.max(2500, scroller.getBoundingClientRect().top - first.getBoundingClientRect().top)
		await frame()
		await frame()
	}
	return more()
})()`

// drawnMessages is how many messages the browser has a layout of.
const drawnMessages = `[...document.querySelectorAll('[data-testid="message"]')].filter((m) => m.checkVisibility({ contentVisibilityAuto: true })).length`

// writeTranscript writes a conversation in which every fourth message is a
// person's, and returns the ids.
func writeTranscript(t *testing.T, dir, chat string, n int) (ids []string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	var file bytes.Buffer
	start := time.Now().Add(-time.Duration(n) * time.Minute)
	for i := range n {
		e := transcript.Entry{Role: relay.RoleAssistant, Sender: fmt.Sprintf("agent_%c", 'a'+i%3), MessageID: fmt.Sprintf("om_%05d", i),
			TS: start.Add(time.Duration(i) * time.Minute).UnixMilli(), Content: fmt.Sprintf("Message %d. ", i) + strings.Repeat("说了一些话 and some words. ", i*7%11)}
		if i%4 == 0 {
			e.Role, e.Sender = relay.RoleUser, "Tom"
		}
		line, err := json.Marshal(e)
		must(t, err)
		file.Write(append(line, '\n'))
		ids = append(ids, e.MessageID)
	}
	must(t, os.WriteFile(filepath.Join(dir, "feishu_"+chat+".jsonl"), file.Bytes(), 0o600))
	return ids
}

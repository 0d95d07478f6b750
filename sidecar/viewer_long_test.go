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

	"feishu-relay/internal/browsertest"
	"feishu-relay/transcript"
)

// watchFrames notes how long frames take, and tasks that block the page.
const watchFrames = `(() => {
	window.frames_ = []
	window.blocked = []
	let last
	const frame = (now) => {
		if (last) window.frames_.push(now - last)
		last = now
		requestAnimationFrame(frame)
	}
	requestAnimationFrame(frame)
	new PerformanceObserver((list) => { for (const e of list.getEntries()) window.blocked.push(Math.round(e.duration)) }).observe({ type: 'longtask' })
	return true
})()`

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
	return { Top: scroller.scrollTop, ID: first?.dataset.messageId ?? '', At: first ? first.getBoundingClientRect().top : 0 }
})()`

// topOf is where on the screen a message is.
const topOf = `document.querySelector('[data-message-id="%s"]').getBoundingClientRect().top`

type scrolled struct {
	Top float64
	ID  string // of the first message in view
	At  float64
}

// A conversation of 10,000 messages opens at its end, and can be read to its
// beginning with the wheel: nothing is left out, doubled or out of order, what is
// on the screen stays there while older messages come in, and only what is near
// the screen is drawn.
func viewLongTranscript(t *testing.T, browser *browsertest.Browser) {
	const messages = 10_000
	ctx := limited(t)
	c := prepare(t, setup{bots: 1, change: standardLimits})
	want := writeTranscript(t, c.folders[0], "oc_long", messages)
	c.listening(ctx)
	p := view(t, browser, c.bots[0], "#/groups/feishu/oc_long", browsertest.Options{})
	p.Wait("the newest message, in view", `(() => {
		const last = document.querySelector('[data-message-id="`+want[messages-1]+`"]')?.getBoundingClientRect()
		return last && last.bottom <= document.querySelector('#talk-scroll').getBoundingClientRect().bottom + 1
	})()`)
	shown := `[...document.querySelectorAll('[data-testid="message"]')].map((m) => m.dataset.messageId)`
	if got := browsertest.Eval[[]string](p, shown); !slices.Equal(got, want[messages-len(got):]) || len(got) == messages {
		t.Errorf("the page begins with %d messages, want the newest ones alone", len(got))
	}

	browsertest.Eval[bool](p, watchFrames)
	began := time.Now()
	for before := browsertest.Eval[scrolled](p, settle); before.Top > 0 || count(p, is("message")) < messages; {
		step := 12_000.
		if before.Top < step+2_000 { // older messages are about to come: look closely
			step = 400
		}
		p.Wheel("#talk-scroll", -step)
		after := browsertest.Eval[scrolled](p, settle)
		if moved := browsertest.Eval[float64](p, fmt.Sprintf(topOf, before.ID)) - before.At; step == 400 && (moved < -3 || moved > step+3) {
			t.Fatalf("at %+v a turn of %.0f px moved the screen by %.0f", before, step, moved)
		}
		if after.ID == before.ID && after.At == before.At && before.Top > 0 {
			t.Fatalf("at %+v the wheel moves nothing", before)
		}
		before = after
	}
	took := time.Since(began)
	if got := browsertest.Eval[[]string](p, shown); !slices.Equal(got, want) {
		t.Errorf("the page has %d messages that are not the transcript's %d in their order", len(got), messages)
	}
	drawn := browsertest.Eval[int](p, `[...document.querySelectorAll('[data-testid="message"]')].filter((m) => m.checkVisibility({ contentVisibilityAuto: true })).length`)
	if drawn == 0 || drawn > 500 {
		t.Errorf("%d messages are drawn, want those near the screen alone", drawn)
	}
	frames := browsertest.Eval[[]float64](p, `frames_`)
	slices.Sort(frames)
	at := func(part float64) float64 { return frames[int(part*float64(len(frames)-1))] }
	t.Logf("scrolled through %d messages in %s: %d frames, median %.1f ms, 95%% %.1f ms, 99%% %.1f ms, longest %.0f ms; tasks over 50 ms: %v; drawn at the end: %d",
		messages, took.Round(time.Millisecond), len(frames), at(.5), at(.95), at(.99), at(1), browsertest.Eval[[]int](p, `blocked`), drawn)

	p.Click(is("newest"))
	p.Wait("the end again", `(({ scrollTop, clientHeight, scrollHeight }) => scrollTop + clientHeight > scrollHeight - 50)(document.querySelector('#talk-scroll'))`)
}

// writeTranscript writes a conversation in which every fourth message is a
// person's, and returns the ids.
func writeTranscript(t *testing.T, dir, chat string, n int) (ids []string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	var file bytes.Buffer
	start := time.Now().Add(-time.Duration(n) * time.Minute)
	for i := range n {
		e := transcript.Entry{Role: transcript.RoleAssistant, Sender: fmt.Sprintf("agent_%c", 'a'+i%3), MessageID: fmt.Sprintf("om_%05d", i),
			TS: start.Add(time.Duration(i) * time.Minute).UnixMilli(), Content: fmt.Sprintf("Message %d. ", i) + strings.Repeat("说了一些话 and some words. ", i*7%23)}
		if i%4 == 0 {
			e.Role, e.Sender = transcript.RoleUser, "Tom"
		}
		line, err := json.Marshal(e)
		must(t, err)
		file.Write(append(line, '\n'))
		ids = append(ids, e.MessageID)
	}
	must(t, os.WriteFile(filepath.Join(dir, "feishu_"+chat+".jsonl"), file.Bytes(), 0o600))
	return ids
}

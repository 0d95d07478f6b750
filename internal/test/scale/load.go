package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/sse"
)

// load is the people and bots of one rate.
type load struct {
	*fleet
	step    int
	running []*started
	began   time.Time

	start    chan struct{} // closed when began is set
	waiting  atomic.Int64  // posts not yet sent or being sent
	sent     atomic.Int64  // bots' messages that were accepted
	counted  atomic.Int64  // of sent, those within the measured time
	refused  atomic.Int64  // posts that were not accepted
	received atomic.Int64  // messages that bots read from their streams
	repeated atomic.Int64  // messages that a bot read again

	mu   sync.Mutex
	late []time.Duration // delays of sending; guarded by mu
	said error           // the first refusal; guarded by mu
}

// started is a conversation that has begun.
type started struct {
	*conversation
	due [maxHops]atomic.Int64 // when each message was to be sent, in nanoseconds since load.began
}

// listener reads the stream of one bot. Its fields belong to the goroutine that reads it.
type listener struct {
	bot  int
	seen map[[2]int]bool
	took []time.Duration // from the time due until the message was read
}

// text is a question, so that the judge passes it on; about half a kilobyte.
var text = strings.Repeat("请看一下 this part of the plan, please. ", 9) + "你觉得这个方案可行吗？"

// play sends people's messages at their times, and returns after the last.
func (l *load) play(ctx context.Context) {
	for i, t := range l.running {
		if !sleepUntil(ctx, l.began.Add(t.at)) {
			return
		}
		body := asJSON(map[string]any{"chat_id": groupID(t.group), "content": text, "sender": "ou_person",
			"message_id": fmt.Sprintf("om_person_%d_%d", l.step, i), "ts": time.Now().UnixMilli(), "chat_type": "group"})
		for _, bot := range t.speakers {
			l.later(func() { l.post(ctx, bot, "/v1/inbound", body) })
		}
		l.answer(ctx, i, 0, t.at)
	}
}

// later runs do on another goroutine and counts it in waiting.
func (l *load) later(do func()) {
	l.waiting.Add(1)
	go func() {
		defer l.waiting.Add(-1)
		do()
	}()
}

// answer lets the speaker of a hop send its message after its thinking time, which
// begins at heard.
func (l *load) answer(ctx context.Context, i, hop int, heard time.Duration) {
	t := l.running[i]
	due := heard + t.think[hop]
	t.due[hop].Store(int64(due))
	l.later(func() {
		if !sleepUntil(ctx, l.began.Add(due)) {
			return
		}
		l.noteLate(time.Since(l.began) - due)
		if !l.post(ctx, t.speaker(hop), "/v1/outbound", asJSON(map[string]any{"chat_id": groupID(t.group), "content": text,
			"message_id": messageID(l.step, i, hop), "ts": l.began.Add(due).UnixMilli()})) {
			return
		}
		l.sent.Add(1)
		if l.counts(due) {
			l.counted.Add(1)
		}
	})
}

// counts reports whether a message due then is measured.
func (l *load) counts(due time.Duration) bool { return due >= l.warm && due < l.warm+l.measureFor }

func (l *load) noteLate(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, d)
}

// post sends a message and reports whether the sidecar accepted it.
func (l *load) post(ctx context.Context, bot int, route string, body []byte) bool {
	status, answer, err := l.call(ctx, http.MethodPost, l.sidecars[bot].url+route, body)
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("%s answered %d %.200s", route, status, answer)
	}
	if err != nil && ctx.Err() == nil {
		l.refused.Add(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.said == nil {
			l.said = fmt.Errorf("%s: %w", botName(bot), err)
		}
	}
	return err == nil
}

// listen reads the stream of a bot until ctx is done, and lets the bot answer. It calls ready
// when the sidecar has answered.
func (l *load) listen(ctx context.Context, b *listener, ready func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.sidecars[b.bot].url+"/v1/stream", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: l.client.Transport}).Do(req) // without a time limit
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	ready()
	select {
	case <-l.start:
	case <-ctx.Done():
		return nil
	}
	for e, err := range sse.Read(resp.Body) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the stream ended: %w", err)
		}
		l.hear(ctx, b, e.ID, time.Since(l.began))
	}
	return nil
}

func (l *load) hear(ctx context.Context, b *listener, id string, now time.Duration) {
	i, hop, ok := parseID(id, l.step)
	if !ok {
		return // a message of an earlier rate
	}
	if b.seen[[2]int{i, hop}] {
		l.repeated.Add(1)
		return
	}
	b.seen[[2]int{i, hop}] = true
	t := l.running[i]
	if due := time.Duration(t.due[hop].Load()); l.counts(due) {
		b.took = append(b.took, now-due)
	}
	if next := hop + 1; next < maxHops && t.speaker(next) == b.bot {
		l.answer(ctx, i, next, now)
	}
	l.received.Add(1) // last, so that the answer is in waiting before this counts
}

// settled waits until each message that was sent has been read by the other bots of its group or was
// stopped there, and no more posts wait. If nothing has changed for giveUp, it returns how many are
// missing.
func (l *load) settled(ctx context.Context, before int64) (missing int64, err error) {
	last, since := int64(-1), time.Now()
	for {
		stopped, err := l.stopped(ctx)
		if err != nil {
			return 0, err
		}
		received := l.received.Load() // read before waiting: answers to these are in waiting
		if waiting := l.waiting.Load(); waiting == 0 {
			missing = l.sent.Load()*int64(l.members-1) - received - stopped + before
		} else {
			missing = -waiting
		}
		if missing == 0 || time.Since(since) > l.giveUp {
			return missing, nil
		}
		if missing != last {
			last, since = missing, time.Now()
		}
		if !sleepUntil(ctx, time.Now().Add(200*time.Millisecond)) {
			return missing, context.Cause(ctx)
		}
	}
}

// stopped returns how many messages the stop policy has stopped so far at all bots.
func (f *fleet) stopped(ctx context.Context) (n int64, err error) {
	for _, sc := range f.sidecars {
		_, metrics, err := f.call(ctx, http.MethodGet, sc.url+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(metrics)) {
			if !strings.HasPrefix(line, "feishu_relay_stopped_total{") ||
				!strings.Contains(line, `reason="max_depth"`) && !strings.Contains(line, `reason="judge_no"`) {
				continue
			}
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64)
			if err != nil {
				return 0, fmt.Errorf("read the metrics of a sidecar: %w", err)
			}
			n += int64(value)
		}
	}
	return n, nil
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func asJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // unreachable: texts and numbers always encode
	}
	return data
}

// quantile is the q-quantile of sorted times in milliseconds; 0 without times.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[i]) / float64(time.Millisecond)
}

// merged returns the times measured by all bots, sorted.
func merged(listeners []*listener) (took []time.Duration) {
	for _, b := range listeners {
		took = append(took, b.took...)
	}
	slices.Sort(took)
	return took
}

package sidecar

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/relay/outbox"
)

// A backend that came back without its messages and takes none stalls the outbox,
// until nothing of what it lost is worth publishing again.
func TestOutboxDoesNotStallForWhatIsTooOld(t *testing.T) {
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	root, err := s.folder("outbox", "stalled")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const keep = 10 * time.Minute
		box, err := outbox.Open(root, outbox.Options{KeepFor: keep})
		if err != nil {
			t.Fatal(err)
		}
		var lost atomic.Bool
		l := &lane{box: box}
		backend := publisherOf(func(lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
			switch {
			case lost.Load() && after != "":
				return "", relay.ErrForgotten
			case lost.Load():
				return "", errors.New("OOM")
			}
			return "1", nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			box.Run(ctx, watched{backend, &l.publishing, func(string) {}}, time.Second)
			close(ended)
		}()
		if _, err := box.Put(relay.Message{RelayMsgID: "om_1", Channel: "feishu", ChatID: "oc_x", Content: "hi", SenderAgentName: "a",
			TS: relay.MillisOf(time.Now())}); err != nil {
			t.Fatal(err)
		}
		stalled := func(after time.Duration) time.Duration {
			time.Sleep(after) // of the test's own clock
			synctest.Wait()
			return l.publishing.stalled(time.Now())
		}
		if got := stalled(time.Minute); got != 0 {
			t.Errorf("stalled for %v, and all is published", got)
		}
		lost.Store(true)
		if got := stalled(time.Minute); got < 50*time.Second {
			t.Errorf("stalled for %v, while nobody has the message any more", got)
		}
		if got := stalled(keep + 2*time.Minute); got != 0 {
			t.Errorf("stalled for %v, and nothing is left to publish", got)
		}
		cancel()
		<-ended
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
}

// publisherOf is a publisher whose answers a test gives.
type publisherOf func(lines [][]byte, after relay.Receipt) (relay.Receipt, error)

func (p publisherOf) Publish(_ context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	return p(lines, after)
}

// Where a value does not come, as from a disk that hangs, questions do not pile up.
func TestScrapesThatHangAreBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics("agent_b", "1.2.3")
	hangs, asked := make(chan struct{}), make(chan struct{}, 100)
	m.gauge("hanging", "Hangs.", nil, func() float64 { asked <- struct{}{}; <-hangs; return 0 })
	handler := m.handler()
	scrape := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	codes := make(chan int, maxScrapes+1)
	for range maxScrapes {
		go func() { codes <- scrape() }()
		<-asked
	}
	go func() { codes <- scrape() }()
	select {
	case got := <-codes:
		if got != http.StatusServiceUnavailable {
			t.Errorf("one more is answered %d", got)
		}
	case <-asked:
		t.Error("one more hangs, too")
	}
	close(hangs)
}

// A name that is no UTF-8 is no reason not to start.
func TestMetricsOfAnyName(t *testing.T) {
	t.Parallel()
	newMetrics("\xd0\xb4\xca\xd6", "1.2.3")
}

// Outcomes that wait or are no outcomes are seen: their queue is bounded.
func TestOutcomesAreMeasured(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	s.watch.outcomes.Note(outcome.Outcome{ChatID: "oc_x", RelayMsgID: "om_1"})
	s.watch.outcomes.Note(outcome.Outcome{}) // is none
	w := httptest.NewRecorder()
	s.metrics.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"outcomes_pending", "outcomes_dropped_total"} {
		if want = "\nfeishu_relay_" + want + `{agent="agent_b"} 1`; !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}

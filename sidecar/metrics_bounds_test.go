package sidecar

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

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

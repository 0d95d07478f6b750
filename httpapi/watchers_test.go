package httpapi

import (
	"strings"
	"testing"
)

func TestASlowWatcherIsDroppedAndHoldsUpNobody(t *testing.T) {
	var s Events
	slow, _, err := s.watch(-1)
	if err != nil {
		t.Fatal(err)
	}
	quick, _, err := s.watch(-1)
	if err != nil {
		t.Fatal(err)
	}
	for range watcherQueue + 1 {
		s.Publish(Event{Type: EventMessage})
		<-quick
	}
	got := 0
	for range slow { // it ends: the channel was closed
		got++
	}
	if got != watcherQueue {
		t.Errorf("the slow one got %d events before it was closed, want %d", got, watcherQueue)
	}
	s.leave(slow)
	s.Publish(Event{Type: EventMessage})
	if _, ok := <-quick; !ok {
		t.Error("the quick one was closed too")
	}
}

func TestTooManyWatchersAreRefused(t *testing.T) {
	var s Events
	var last chan numbered
	for range maxWatchers {
		w, _, err := s.watch(-1)
		if err != nil {
			t.Fatal(err)
		}
		last = w
	}
	if _, _, err := s.watch(-1); err == nil {
		t.Error("one more is let in")
	}
	s.leave(last)
	if _, _, err := s.watch(-1); err != nil {
		t.Errorf("in the place of one that left: %v", err)
	}
}

func TestLargeEventsAreKeptByTheirBytes(t *testing.T) {
	var s Events
	for range 20 {
		s.Publish(Event{Type: EventMessage, Content: strings.Repeat("x", 1<<20)})
	}
	_, missed, err := s.watch(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(missed) == 0 || len(missed) > eventBytes>>20 {
		t.Errorf("%d events of a megabyte are kept", len(missed))
	}
	s.Publish(Event{Type: EventMessage, Content: strings.Repeat("x", 2*eventBytes)})
	if _, missed, _ := s.watch(0); len(missed) != 1 {
		t.Errorf("%d events are kept beside one beyond the limit, want that alone", len(missed))
	}
}

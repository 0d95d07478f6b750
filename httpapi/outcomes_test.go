package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/outcome"
	"feishu-relay/relay"
)

// outcomes is a log that a test fills.
type outcomes struct {
	list    []outcome.Outcome
	err     error
	limit   int
	watches chan func(outcome.Outcome)
	stopped chan struct{}
}

func (o *outcomes) Recent(_ context.Context, _ string, _ relay.ChatID, limit int) ([]outcome.Outcome, bool, error) {
	o.limit = limit
	return o.list, true, o.err
}

func (o *outcomes) Watch(take func(outcome.Outcome)) (stop func()) {
	o.watches <- take
	return func() { close(o.stopped) }
}

func TestOutcomesOfAChat(t *testing.T) {
	f := newFakes()
	o := &outcomes{list: []outcome.Outcome{{Agent: "agent_b", Channel: "feishu", ChatID: "oc_x", RelayMsgID: "om_1", At: 7, Stopped: relay.MaxDepth}}}
	f.Outcomes = o
	w := call(t, f, "GET", "/v1/outcomes?chat_id=oc_x", "")
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"stopped":"max_depth"`) || o.limit != 1000 {
		t.Errorf("got %d %s with limit %d", w.Code, w.Body, o.limit)
	}
	o.list = nil
	if w := call(t, f, "GET", "/v1/outcomes?chat_id=oc_x&channel=feishu&limit=5", ""); !strings.Contains(w.Body.String(), `"outcomes":[]`) || o.limit != 5 {
		t.Errorf("got %s with limit %d", w.Body, o.limit)
	}
	for query, status := range map[string]int{"": 400, "?chat_id=oc_x&limit=0": 400, "?chat_id=oc_x&limit=5001": 400, "?chat_id=oc_x&limit=x": 400,
		"?chat_id=%0a": 400, "?chat_id=oc_secret": 404} {
		if w := call(t, f, "GET", "/v1/outcomes"+query, ""); w.Code != status {
			t.Errorf("%s: got %d %s, want %d", query, w.Code, w.Body, status)
		}
	}
	o.err = errors.New("the store is away")
	apitest.WantError(t, call(t, f, "GET", "/v1/outcomes?chat_id=oc_x", ""), 500, "internal")
}

func TestOutcomesOfOtherBotsAreShownWhenAskedFor(t *testing.T) {
	r := newRig(t)
	o := &outcomes{watches: make(chan func(outcome.Outcome), 1), stopped: make(chan struct{})}
	r.Outcomes = o
	r.restart()
	s := r.listen("/v1/events?outcomes=all")
	take := <-o.watches
	take(outcome.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_secret", RelayMsgID: "om_hidden"}) // not of a chat that the bot is in
	take(outcome.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_x", RelayMsgID: "om_1"})
	e, ok := s.next()
	if !ok || e.kind != httpapi.EventOutcome || e.id != "" || !strings.Contains(e.data, `"agent":"agent_c"`) || !strings.Contains(e.data, "om_1") {
		t.Fatalf("got %+v %v", e, ok)
	}
	// One that does not read is closed, and delays no others.
	for i := range 100_000 {
		take(outcome.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_x", RelayMsgID: relay.MessageID(fmt.Sprint("om_", i)), Door: strings.Repeat("x", 1000)})
	}
	for ok {
		_, ok = s.next()
	}
	<-o.stopped
}

func TestAnUnknownWishForEventsIsRefused(t *testing.T) {
	w := call(t, newFakes(), "GET", "/v1/events?outcomes=some", "")
	apitest.WantError(t, w, 400, "invalid_request")
}

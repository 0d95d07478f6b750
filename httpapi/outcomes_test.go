package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/relay"
)

func TestOutcomesOfAChat(t *testing.T) {
	f := newFakes()
	list, limit, fails := []httpapi.Outcome{{Agent: "agent_b", Channel: "feishu", ChatID: "oc_x", RelayMsgID: "om_1", At: 7, Stopped: relay.MaxDepth}}, 0, error(nil)
	f.Outcomes = func(_ context.Context, _ string, _ relay.ChatID, n int) ([]httpapi.Outcome, bool, error) {
		limit = n
		return list, true, fails
	}
	w := call(t, f, "GET", "/v1/outcomes?chat_id=oc_x", "")
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"stopped":"max_depth"`) || limit != 1000 {
		t.Errorf("got %d %s with limit %d", w.Code, w.Body, limit)
	}
	list = nil
	if w := call(t, f, "GET", "/v1/outcomes?chat_id=oc_x&channel=feishu&limit=5", ""); !strings.Contains(w.Body.String(), `"outcomes":[]`) || limit != 5 {
		t.Errorf("got %s with limit %d", w.Body, limit)
	}
	for query, status := range map[string]int{"": 400, "?chat_id=oc_x&limit=0": 400, "?chat_id=oc_x&limit=5001": 400, "?chat_id=oc_x&limit=x": 400,
		"?chat_id=%0a": 400, "?chat_id=oc_secret": 404} {
		if w := call(t, f, "GET", "/v1/outcomes"+query, ""); w.Code != status {
			t.Errorf("%s: got %d %s, want %d", query, w.Code, w.Body, status)
		}
	}
	fails = errors.New("the store is away")
	apitest.WantError(t, call(t, f, "GET", "/v1/outcomes?chat_id=oc_x", ""), 500, "internal")
}

func TestOutcomesOfOtherBotsAreShownWhenAskedFor(t *testing.T) {
	r := newRig(t)
	s := r.listen("/v1/events?outcomes=all")
	take := func(o httpapi.Outcome) {
		r.Events.Publish(httpapi.Event{Type: httpapi.EventOutcome, Outcome: &o})
	}
	not := r.listen("/v1/events")
	take(httpapi.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_secret", RelayMsgID: "om_hidden"}) // not of a chat that the bot is in
	take(httpapi.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_x", RelayMsgID: "om_1"})
	e, ok := s.next()
	if !ok || e.kind != httpapi.EventOutcome || e.id != "" || !strings.Contains(e.data, `"agent":"agent_c"`) || !strings.Contains(e.data, "om_1") {
		t.Fatalf("got %+v %v", e, ok)
	}
	// One that does not read is closed, and delays no others.
	for i := range 100_000 {
		take(httpapi.Outcome{Agent: "agent_c", Channel: "feishu", ChatID: "oc_x", RelayMsgID: relay.MessageID(fmt.Sprint("om_", i)), Door: strings.Repeat("x", 1000)})
	}
	for ok {
		_, ok = s.next()
	}
	r.Events.Publish(httpapi.Event{Type: httpapi.EventMessage, RelayMsgID: "om_last"})
	if e, ok := not.next(); !ok || e.kind != httpapi.EventMessage {
		t.Errorf("who did not ask for outcomes got %+v", e)
	}
}

func TestAnUnknownWishForEventsIsRefused(t *testing.T) {
	w := call(t, newFakes(), "GET", "/v1/events?outcomes=some", "")
	apitest.WantError(t, w, 400, "invalid_request")
}

package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/apitest"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// TestInsight reads a day of a real record: two people, two bots, what became of their messages.
func TestInsight(t *testing.T) {
	const day, hour = int64(1_700_000_000_000), int64(3_600_000)
	f, store := withRecord(t, t.TempDir())
	entry := func(id, role, sender, parent string, ts int64) transcript.Entry {
		return transcript.Entry{MessageID: id, Role: role, Sender: sender, ParentID: parent, TS: ts, Content: "a text"}
	}
	said(t, store,
		entry("om_0", "user", "Tom", "", day-1), // before the day
		entry("om_1", "assistant", "agent_a", "om_0", day),
		entry("om_2", "assistant", "agent_b", "", day+10), // after agent_a
		entry("om_3", "assistant", "agent_a", "om_2", day+hour),
		entry("om_4", "assistant", "agent_a", "", day+hour+1), // goes on
		entry("om_5", "user", "Ann", "", day+2*hour-1),
		entry("om_6", "assistant", "agent_b", "om_5", day+2*hour), // after the span
	)
	judge := func(allow bool, reason string, ms int64) *policy.Decision {
		return &policy.Decision{Allow: allow, Tier: policy.TierJudge, Reason: reason, JudgeMS: ms}
	}
	f.Outcomes = &outcomes{list: []outcome.Outcome{
		{Agent: "agent_b", RelayMsgID: "om_1", Delivered: relay.Millis(day + 30)},
		{Agent: "agent_a", RelayMsgID: "om_2", Delivered: relay.Millis(day + 20), Decision: judge(true, "judge: YES", 5)},
		{Agent: "agent_b", RelayMsgID: "om_3", Stopped: relay.JudgeNo, Decision: judge(false, "judge_no", 7)},
		{Agent: "agent_b", RelayMsgID: "om_4", Stopped: relay.MaxDepth,
			Decision: &policy.Decision{Tier: policy.TierHardLimit}},
		{Agent: "agent_c", RelayMsgID: "om_4", Stopped: relay.MaxDepth},
		{Agent: "agent_d", RelayMsgID: "om_4", Stopped: relay.JudgeError, Decision: judge(false, "judge_error", 100)},
		{Agent: "agent_a", RelayMsgID: "om_4", Stopped: relay.OwnMessage},
		{Agent: "agent_a", RelayMsgID: "om_6", Delivered: relay.Millis(day + 3*hour)},
		{Agent: "agent_a", RelayMsgID: "om_unknown", Stopped: relay.Expired},
	}}
	path := fmt.Sprintf("/v1/insight?chat_id=oc_x&from=%d&to=%d", day, day+2*hour)
	w := call(t, f, "GET", path, "")
	type object = map[string]any
	var got any
	if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != 200 || err != nil {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	spread := func(n, p50, p95, most float64) object {
		return object{"n": n, "p50": p50, "p95": p95, "max": most}
	}
	want := object{
		"channel": "feishu", "chat_id": "oc_x", "from": float64(day), "to": float64(day + 2*hour), "complete": true,
		"messages": object{"people": 1., "bots": 4.},
		"hours": []any{
			object{"at": float64(day), "people": 0., "bots": 2., "delivered": 2., "stopped": 0.,
				"latency": spread(2, 30, 30, 30)},
			object{"at": float64(day + hour), "people": 1., "bots": 2., "delivered": 0., "stopped": 4.,
				"latency": spread(0, 0, 0, 0)},
		},
		"stops": []any{object{"reason": "max_depth", "n": 2.}, object{"reason": "judge_error", "n": 1.},
			object{"reason": "judge_no", "n": 1.}},
		"judge":   object{"yes": 1., "no": 1., "error": 1., "took": spread(3, 7, 100, 100)},
		"latency": spread(2, 30, 30, 30),
		"answers": []any{object{"from": "agent_a", "to": "", "n": 1.}, object{"from": "agent_a", "to": "agent_b", "n": 1.},
			object{"from": "agent_b", "to": "agent_a", "n": 1.}},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for query, status := range map[string]int{
		"": 400, "?chat_id=oc_x&from=x": 400, "?chat_id=oc_x&to=0": 400, "?chat_id=oc_x&from=5&to=5": 400,
		"?chat_id=oc_x&from=1&to=172800002": 400, "?chat_id=oc_x&from=1&to=172800001": 200,
		"?chat_id=oc_x": 200, "?chat_id=oc_secret": 404, "?chat_id=%0a": 400} {
		if w := call(t, f, "GET", "/v1/insight"+query, ""); w.Code != status {
			t.Errorf("%s: got %d %s, want %d", query, w.Code, w.Body, status)
		}
	}
	f.Outcomes = &outcomes{err: errors.New("the store is away")}
	apitest.WantError(t, call(t, f, "GET", path, ""), 500, "internal")
}

// TestInsightHasABound: a record of more messages than are read is not complete.
func TestInsightHasABound(t *testing.T) {
	f := newFakes()
	f.Outcomes = &outcomes{}
	n := 0
	f.page = func(q transcript.Query) transcript.Page {
		page := transcript.Page{Earlier: "further"}
		for i := range q.Limit {
			n++
			page.Entries = append(page.Entries, transcript.Entry{MessageID: fmt.Sprint(n), Role: "user", TS: 1_700_000_000_000})
			page.Shown = append(page.Shown, i)
		}
		return page
	}
	var got struct {
		Complete bool
		Messages struct{ People int }
	}
	w := call(t, f, "GET", "/v1/insight?chat_id=oc_x&from=1700000000000&to=1700000000001", "")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Complete || got.Messages.People != n || n != 20_000 {
		t.Errorf("%d were read: got %d %s", n, w.Code, w.Body)
	}
}

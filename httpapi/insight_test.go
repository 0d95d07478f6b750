package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/outcome"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
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
		entry("om_2", "assistant", "agent_b", "", day+10), // beside agent_a
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
			object{"from": "agent_b", "to": "", "n": 1.}},
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

// team is a group of some bots.
type team struct {
	anyGroups
	bots []steer.Bot
}

type anyGroups = httpapi.Groups

func (g team) Group(string, relay.ChatID) (steer.Group, error) { return steer.Group{Bots: g.bots}, nil }

// TestInsightAnswers: whom bots answer that do not reply to a message.
func TestInsightAnswers(t *testing.T) {
	const day = int64(1_700_000_000_000)
	for name, tt := range map[string]struct {
		lines []string // "sender text"; agents are bots
		given []string // "agent line": the bot is given the line before the next one is said
		stops []string
		want  map[string]int // "from>to"
	}{
		"two bots answer a person side by side": {
			[]string{"Tom hello", "agent_a hi", "agent_b hi"}, []string{"agent_b 1"}, nil,
			map[string]int{"agent_a>": 1, "agent_b>": 1}},
		"then each other": {
			[]string{"Tom hello", "agent_a hi", "agent_b hi", "agent_a so?", "agent_b well", "agent_b and"},
			[]string{"agent_b 1", "agent_a 2", "agent_b 3"}, nil,
			map[string]int{"agent_a>": 1, "agent_b>": 1, "agent_a>agent_b": 1, "agent_b>agent_a": 1}},
		"a bot that is named answers who names it": {
			[]string{"Tom hello", "agent_a @agent_bc no, @BotB go on", "agent_b done"}, []string{"agent_b 1"}, nil,
			map[string]int{"agent_a>": 1, "agent_b>agent_a": 1}},
		"what was not for a bot it does not answer": {
			[]string{"Tom hello", "agent_a hi", "agent_b done"}, []string{"agent_b 1"}, []string{"agent_b 0"},
			map[string]int{"agent_a>": 1, "agent_b>agent_a": 1}},
		"what it was not given it does not answer": {
			[]string{"Tom hello", "agent_a hi", "agent_a and", "agent_b hi", "agent_b and"}, nil, nil,
			map[string]int{"agent_a>": 1, "agent_b>": 1}},
		"a person's word ends what was before": {
			[]string{"agent_a hi", "Tom stop", "agent_b yes", "agent_b and"}, []string{"agent_b 0"}, nil,
			map[string]int{"agent_b>": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f, store := withRecord(t, t.TempDir())
			f.Groups = team{bots: []steer.Bot{{Agent: "agent_a", Name: "BotA"}, {Agent: "agent_b", Name: "BotB"}}}
			for i, line := range tt.lines {
				sender, text, _ := strings.Cut(line, " ")
				role := "user"
				if strings.HasPrefix(sender, "agent_") {
					role = "assistant"
				}
				said(t, store, transcript.Entry{MessageID: fmt.Sprint("om_", i), Role: role, Sender: sender, Content: text,
					TS: day + int64(i)*1000})
			}
			became := &outcomes{}
			for _, of := range [][]string{tt.given, tt.stops} {
				for _, at := range of {
					agent, line, _ := strings.Cut(at, " ")
					n, _ := strconv.Atoi(line)
					o := outcome.Outcome{Agent: relay.AgentName(agent), RelayMsgID: relay.MessageID("om_" + line)}
					if o.Delivered = relay.Millis(day + int64(n)*1000 + 5); slices.Contains(tt.stops, at) {
						o.Delivered, o.Stopped = 0, relay.NotForMe
					}
					became.list = append(became.list, o)
				}
			}
			f.Outcomes = became
			w := call(t, f, "GET", fmt.Sprintf("/v1/insight?chat_id=oc_x&from=%d&to=%d", day, day+3_600_000), "")
			var got struct {
				Answers []struct {
					From, To string
					N        int
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != 200 || err != nil {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			counts := map[string]int{}
			for _, a := range got.Answers {
				counts[a.From+">"+a.To] = a.N
			}
			if diff := cmp.Diff(tt.want, counts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
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

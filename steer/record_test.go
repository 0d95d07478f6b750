package steer_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

var now = time.UnixMilli(1_700_000_000_000).UTC()

// randomRecords are changes as several sidecars may write them: few keys, times and ids, so
// that they meet.
func randomRecords(r *rand.Rand) (out []steer.Record) {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	for range 2 + r.IntN(8) {
		record := steer.Record{}
		for range 1 + r.IntN(6) {
			key := pick("answer", "default_bot", "limit", "threshold", "judge", "budget", "paused", "muted:a",
				"muted:b",
				"in:a", "in:b", "in:c", "in:d", "stopped", "continued", "forgotten", "later")
			v := ""
			switch {
			case key == "answer":
				v = pick(`"all"`, `"named"`, `"default"`, `"one"`)
			case key == "default_bot":
				v = pick(`""`, `"a"`, `"d"`)
			case key == "limit", key == "threshold", key == "budget":
				v = pick("0", "1", "3", "7")
			case key == "paused", strings.HasPrefix(key, "muted:"):
				v = pick(`{"until":null}`, `{"until":1}`, `{"until":1800000000000}`)
			case strings.HasPrefix(key, "in:"):
				v = pick(`{"name":"Bot"}`, `{"name":"Bot","mention_all":true}`)
			default:
				v = pick("true", "false")
			}
			if r.IntN(6) == 0 {
				v = "null"
			}
			if r.IntN(10) == 0 {
				v = pick("{", `"x"`, "-1", "") // what most keys cannot have
			}
			record[key] = steer.Value{At: relay.Millis(r.IntN(4)), ID: pick("1", "2", ""), V: json.RawMessage(v)}
		}
		out = append(out, record)
	}
	return out
}

func merged(records ...steer.Record) steer.Record {
	out := steer.Record{}
	for _, r := range records {
		out.Merge(r)
	}
	return out
}

func eachRecords(t *testing.T, f func(t *testing.T, r *rand.Rand, records []steer.Record)) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 7))
		records := randomRecords(r)
		f(t, r, records)
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, records)
		}
	}
}

func TestMergeIsCommutativeAssociativeAndIdempotent(t *testing.T) {
	t.Parallel()
	eachRecords(t, func(t *testing.T, r *rand.Rand, records []steer.Record) {
		want := merged(records...)
		if merged(want).Merge(want) {
			t.Error("merging a record with itself changes it")
		}
		for range 3 {
			r.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			cut := r.IntN(len(records))
			left, right := merged(records[:cut]...), merged(records[cut:]...)
			for _, got := range []steer.Record{merged(records...), merged(left, right), merged(right, left, right)} {
				if !reflect.DeepEqual(got, want) || got.Version() != want.Version() {
					t.Errorf("got %v\nwant %v", got, want)
				}
			}
		}
	})
}

func TestRecordsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 2000
	settings := steer.Set{"answer": json.RawMessage(`"one"`), "stopped": json.RawMessage("true")}.Of(1, "m")
	var records []steer.Record
	for i := range 3 * most / 100 {
		r := steer.Record{}
		for j := range 100 {
			r[fmt.Sprintf("aa%d", (i*97+j*31)%(most+most/2))] = steer.Value{At: 1, ID: "m", V: json.RawMessage("true")}
		}
		records = append(records, r)
	}
	records = append(records, settings)
	want := merged(records...)
	if len(want) != most {
		t.Errorf("%d keys", len(want))
	}
	if want.Stopped() != 1 || want.Over(steer.Settings{}, map[string]string{}, now).Answer != steer.One {
		t.Error("the group's settings made room for others")
	}
	slices.Reverse(records)
	got := merged(records...)
	if !reflect.DeepEqual(got, want) {
		t.Error("another order, another record")
	}
	for _, r := range records {
		if got.Merge(r) {
			t.Error("what has no room is reported as a change each time")
		}
	}
	if (steer.Record{}).Merge(steer.Set{strings.Repeat("k", 600): json.RawMessage("true"),
		"later": json.RawMessage(`"` + strings.Repeat("v", 1100) + `"`)}.Of(1, "m")) {
		t.Error("a key or value that is too long is taken")
	}
}

func TestWhatNoRecordCanHold(t *testing.T) {
	t.Parallel()
	for key, values := range map[string][]string{
		"answer": {`"some"`, "1"}, "limit": {"-1", "1000001", `"5"`, "1.5"}, "threshold": {"{}"}, "budget": {"true"},
		"judge": {"1", ""}, "paused": {"true", `{"until":"x"}`}, "muted:a": {"[]"}, "in:a": {`"yes"`, "true"},
		"default_bot": {"5"},
		"later":       {"", "{"},
	} {
		for _, v := range values {
			if r := (steer.Record{}); r.Merge(steer.Set{key: json.RawMessage(v)}.Of(1, "m")) {
				t.Errorf("%s is %s", key, v)
			}
		}
	}
}

// What decodes is a mark of a group within bounds, and the same again when it is written.
func FuzzDecodeMark(f *testing.F) {
	f.Add([]byte(`{"id":"1","kind":"command","act":"set","agent":"agent_a","channel":"feishu","chat_id":"oc_1",` +
		`"message_id":"om_1",` +
		`"by":"ou_1","set":{"limit":5,"paused":{"until":null},"muted:a":null},` +
		`"chinese":true,"text":"好","ts":1700000000000}`))
	f.Add([]byte(`{"id":"2","kind":"state","agent":"a","channel":"feishu","chat_id":"oc_1","message_id":"notice:1",` +
		`"record":{"in:a":{"at":"1700000000","id":"1","v":true},"x":{"at":1,"id":"","v":null}},` +
		`"bots":["a"],"round":1e12,"ts":1}`))
	f.Add([]byte(`{"id":"3","kind":"notice","act":"stop","channel":"c","chat_id":"o",` +
		`"reason":"judge_no","ts":"1700000000"}`))
	f.Add([]byte(`{"id":"\ud800","ts":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := steer.DecodeMark(line)
		if err != nil {
			return
		}
		if m.ID == "" || m.Kind == "" || m.Channel == "" || m.ChatID == "" || m.TS <= 0 || len(line) > steer.MaxMark {
			t.Fatalf("decoded %+v", m)
		}
		record := merged(m.Record, m.Set.Of(m.TS, m.ID))
		record.Over(steer.Settings{}, map[string]string{}, now)
		written, err := m.Encode()
		if err != nil {
			return // longer than it was: escapes
		}
		again, err := steer.DecodeMark(written)
		if err != nil {
			t.Fatalf("%v: %s", err, written)
		}
		twice, err := again.Encode()
		if err != nil || string(twice) != string(written) {
			t.Errorf("%v\n%s\n%s", err, written, twice)
		}
		if got := merged(again.Record, again.Set.Of(again.TS, again.ID)); got.Version() != record.Version() &&
			compact(m) {
			t.Errorf("the record is another one after a round trip: %v, %v", record, got)
		}
	})
}

// compact reports whether the values of a mark are written as we write them.
func compact(m steer.Mark) bool {
	for _, v := range m.Record {
		if len(v.V) == 0 || strings.ContainsAny(string(v.V), " \t\r\n<>&\u2028\u2029") {
			return false
		}
	}
	for _, v := range m.Set {
		if strings.ContainsAny(string(v), " \t\r\n<>&\u2028\u2029") {
			return false
		}
	}
	return true
}

func TestMarks(t *testing.T) {
	t.Parallel()
	m := steer.Mark{ID: "1", Kind: steer.Notice, Channel: "feishu", ChatID: "oc_1", TS: 1, Text: "停 <at>"}
	line, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := steer.DecodeMark(line); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%v, %+v", err, got)
	}
	if !m.Shown() || (&steer.Mark{Kind: steer.State}).Shown() {
		t.Error("a notice is shown, a state is not")
	}
	m.Text = strings.Repeat("x", steer.MaxMark)
	if _, err := m.Encode(); err == nil {
		t.Error("a mark beyond the bound is encoded")
	}
	for _, line := range []string{"", "{}", `{"id":"1","kind":"command","channel":"c","chat_id":"o"}`, `[]`,
		`{"id":"1","kind":"command","channel":"c","chat_id":"o","ts":1,"text":"` + strings.Repeat("x",
			steer.MaxMark) + `"}`} {
		if m, err := steer.DecodeMark([]byte(line)); err == nil {
			t.Errorf("%.40s: %+v", line, m)
		}
	}
}

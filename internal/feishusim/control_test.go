package feishusim

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func (r *room) control(method, path, body string, into any) int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			r.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return resp.StatusCode
}

func TestTheWorldOverHTTP(t *testing.T) {
	r := newRoom(t, quick)
	var a App
	var ann User
	var lab Group
	r.control("POST", "/sim/apps", `{"name":"BotC","scopes":["im:message"]}`, &a)
	r.control("POST", "/sim/users", `{"name":"Bob"}`, &ann)
	r.control("POST", "/sim/groups", `{"name":"Room","members":["BotC","Bob"],"topic":true}`, &lab)
	if a.ID == "" || a.Secret == "" || len(a.Scopes) != 1 || ann.ID == "" || !lab.Topic || len(lab.Members) != 2 {
		t.Fatalf("%+v %+v %+v", a, ann, lab)
	}
	var said, ids struct {
		MessageID string `json:"message_id"`
		OpenID    string `json:"open_id"`
	}
	r.control("POST", "/sim/say", `{"chat":"Room","user":"Bob","text":"@BotC hello"}`, &said)
	r.control("GET", "/sim/openid?app=BotC&of=Bob", "", &ids)
	if ids.OpenID != r.OpenID(a.ID, ann.ID) {
		t.Errorf("open_id: %+v", ids)
	}
	var list struct{ Messages []Message }
	r.control("GET", "/sim/messages?chat=Room", "", &list)
	if len(list.Messages) != 1 || list.Messages[0].ID != said.MessageID || list.Messages[0].Mentions[0] != a.ID {
		t.Errorf("messages: %+v", list)
	}
	var state State
	r.control("POST", "/sim/faults", `{"kind":"delay","delay_ms":5}`, nil)
	r.control("PATCH", "/sim/apps", `{"app_id":"`+a.ID+`","webhook_url":"http://127.0.0.1:1/"}`, nil)
	r.control("PATCH", "/sim/groups", `{"name":"Room","managers":["BotC"]}`, &lab)
	if lab.Owner != ann.ID || len(lab.Managers) != 1 {
		t.Errorf("managers: %+v", lab)
	}
	reaction := `{"message_id":"` + said.MessageID + `","user":"Bob","emoji_type":"OK"}`
	if r.control("POST", "/sim/react", reaction, nil); len(r.message(said.MessageID).Reactions) != 1 {
		t.Error("no reaction")
	}
	r.control("POST", "/sim/leave", `{"group":"Room","member":"BotC"}`, nil)
	r.control("GET", "/sim/state", "", &state)
	if state.Apps[0].WebhookURL == "" || len(state.Groups[1].Members) != 1 {
		t.Errorf("state: %+v", state)
	}
	if f := r.faults; len(f) != 1 || f[0].Delay != 5*time.Millisecond {
		t.Errorf("faults: %+v", f)
	}
	r.control("DELETE", "/sim/faults", "", nil)
	r.control("POST", "/sim/recall", `{"message_id":"`+said.MessageID+`","user":"Bob"}`, nil)
	if !r.message(said.MessageID).Deleted || len(r.faults) != 0 {
		t.Error("recall or faults")
	}
	var deliveries struct{ Deliveries []Delivery }
	r.control("GET", "/sim/deliveries?app="+a.ID, "", &deliveries)
	for path, body := range map[string]string{
		"/sim/say":    `{"chat":"Nowhere","user":"Bob","text":"x"}`,
		"/sim/apps":   `{"id":"x"}`,
		"/sim/groups": `{"name":"x","members":["nobody"]}`,
		"/sim/faults": `{"kind":"earthquake"}`,
		"/sim/users":  `not JSON`,
		"/sim/recall": `{"message_id":"om_x"}`,
		"/sim/react":  `{"message_id":"` + said.MessageID + `","user":"BotC","emoji_type":"OK"}`,
		"/sim/join":   `{"group":"Room"}`,
	} {
		var failed struct{ Error string }
		if status := r.control("POST", path, body, &failed); status != 400 || failed.Error == "" {
			t.Errorf("%s %s: %d %+v", path, body, status, failed)
		}
	}
}

func TestControlIsForThisMachineOnly(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	for _, tt := range []struct {
		name, remote, host, origin string
		status                     int
	}{
		{"loopback", "127.0.0.1:9", "127.0.0.1:8080", "", 200},
		{"loopback by name", "[::1]:9", "localhost", "", 200},
		{"another machine", "10.0.0.7:9", "127.0.0.1:8080", "", 403},
		{"another name for us", "127.0.0.1:9", "evil.example", "", 403},
		{"a page", "127.0.0.1:9", "127.0.0.1:8080", "https://evil.example", 403},
	} {
		req := httptest.NewRequest("POST", "/sim/users", strings.NewReader(`{"name":"Ann"}`))
		req.RemoteAddr, req.Host = tt.remote, tt.host
		if tt.origin != "" {
			req.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		if w.Code != tt.status {
			t.Errorf("%s: got %d, want %d", tt.name, w.Code, tt.status)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: open to pages", tt.name)
		}
	}
}

func TestAnswersAsPlanned(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	c := r.client(r.apps[0])
	r.Fault(Fault{Kind: FaultAnswer, Route: "POST /open-apis/im/v1/messages", Code: 230020, Msg: "slow down", Count: 2})
	r.Fault(Fault{Kind: FaultAnswer, Route: "* /open-apis/im/v1/chats/*", Status: 429, Code: 99991400, Header: http.Header{"x-ogw-ratelimit-reset": {"1"}}, Count: 1})
	for i := range 3 {
		if _, got := r.send(c, r.group.ID, "text", textOf("hi")); got != []int{230020, 230020, 0}[i] {
			t.Errorf("send %d: %d", i, got)
		}
	}
	if n := len(r.Messages("Lab")); n != 1 {
		t.Errorf("%d messages", n)
	}
	if status, v := r.raw(r.apps[0], "GET", "/open-apis/im/v1/chats/"+r.group.ID, ""); status != 429 || code(v) != 99991400 {
		t.Errorf("chat: %d %v", status, v)
	}
	r.Fault(Fault{Kind: FaultAnswer, Route: "GET /open-apis/im/v1/chats/*", Status: 400, Body: `{"error":1}`, Delay: 1, Count: 1})
	if status, v := r.raw(r.apps[0], "GET", "/open-apis/im/v1/chats/"+r.group.ID, ""); status != 400 || v["error"] != 1. {
		t.Errorf("a raw answer: %d %v", status, v)
	}
	r.Fault(Fault{Kind: FaultAnswer, Route: "POST /open-apis/im/v1/messages", Status: 504, Applied: true, Count: 1, Code: 1})
	if status, _ := r.raw(r.apps[0], "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", compact(map[string]string{
		"receive_id": r.group.ID, "msg_type": "text", "content": textOf("it arrived"),
	})); status != 504 {
		t.Errorf("status %d", status)
	}
	if all := r.Messages("Lab"); len(all) != 2 || all[1].Text != "it arrived" {
		t.Errorf("an answer that was lost: %v", all)
	}
}

// A dissolved group is still listed, an app that was added again has another open_id, a person can forward messages,
// and an app can ask for its connections.
func TestWhatAppsMeetLater(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB"})
	a, b := r.apps[0], r.apps[1]
	if _, v := r.raw(a, "GET", "/open-apis/event/v1/connection", ""); at(v, "data", "online_instance_cnt") != float64(0) {
		t.Errorf("connections: %v", v)
	}
	var said struct {
		ID string `json:"message_id"`
	}
	r.control("POST", "/sim/say", `{"chat":"Lab","user":"Ann",
		"children":[{"user":"Ann","text":"one"},{"user":"BotB","text":"two"}]}`, &said)
	_, v := r.raw(a, "GET", "/open-apis/im/v1/messages/"+said.ID, "")
	items, _ := at(v, "data", "items").([]any)
	if len(items) != 3 || at(items[0].(map[string]any), "msg_type") != "merge_forward" ||
		at(items[2].(map[string]any), "body", "content") != `{"text":"two"}` {
		t.Errorf("a merged forward: %v", v)
	}
	old := r.OpenID(a.ID, b.ID)
	r.control("POST", "/sim/reid", `{"app":"BotB"}`, nil)
	if now := r.OpenID(a.ID, b.ID); now == old {
		t.Error("the app has the same open_id")
	}
	id := r.mustSend(r.client(a), "text", textOf(`<at user_id="`+old+`"></at>`))
	if m, ok := r.Message(id); !ok || len(m.Mentions) != 0 {
		t.Errorf("the earlier open_id mentions %+v", m.Mentions)
	}
	r.control("POST", "/sim/disband", `{"group":"Lab","status":"dissolved_save"}`, nil)
	for path, want := range map[string]float64{
		"": 0, "/members": 232009, "/members/bots": 232009, "/members/is_in_chat": 0} {
		_, v := r.raw(a, "GET", "/open-apis/im/v1/chats/"+r.group.ID+path, "")
		if float64(code(v)) != want || path == "" && at(v, "data", "chat_status") != "dissolved_save" ||
			path == "/members/is_in_chat" && at(v, "data", "is_in_chat") != true {
			t.Errorf("%s: %v", path, v)
		}
	}
	if _, v := r.raw(a, "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id",
		`{"receive_id":"`+r.group.ID+`","msg_type":"text","content":"{\"text\":\"x\"}"}`); code(v) != 232009 {
		t.Errorf("a send: %v", v)
	}
	if _, err := r.Say("Lab", "Ann", "hello"); err == nil {
		t.Error("a person can still speak there")
	}
	var o Options
	env := map[string]string{"SIM_REDELIVER": "3s, 8s", "SIM_STREAM_FOR": "20s"}
	if err := o.FromEnv(func(name string) string { return env[name] }); err != nil || len(o.Redeliver) != 2 || o.StreamFor != 20*time.Second {
		t.Errorf("%v: %v %v %v", env, o.Redeliver, o.StreamFor, err)
	}
}

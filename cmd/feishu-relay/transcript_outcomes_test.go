package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/transcript"
)

// talks is a sidecar that knows what became of messages of oc_x, and gives out an event when told.
func talks(t *testing.T) (events chan string) {
	t.Helper()
	events = make(chan string)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/transcripts/feishu/oc_x", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"entries":[{"message_id":"om_1","depth":3}]}`)
	})
	mux.HandleFunc("GET /v1/outcomes", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"outcomes":[{"agent":"agent_b","channel":"feishu","chat_id":"oc_x","relay_msg_id":"om_1","at":1,"stopped":"max_depth"},
			{"agent":"agent_c","channel":"feishu","chat_id":"oc_x","relay_msg_id":"om_1","at":1,"delivered_at":2}]}`)
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for {
			select {
			case e := <-events:
				fmt.Fprintf(w, "event: outcome\ndata: {\"type\":\"outcome\",\"outcome\":%s}\n\n", e)
				_ = http.NewResponseController(w).Flush() // the reader may have gone
			case <-r.Context().Done():
				return
			}
		}
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Setenv("LISTEN_ADDR", srv.Listener.Addr().String())
	return events
}

// show and tail -f say what became of the messages where the sidecar runs, and the messages alone
// where it does not.
func TestTranscriptShowsWhatBecameOfMessages(t *testing.T) {
	clearEnvironment(t, nil)
	entry := transcript.Entry{Role: "assistant", Sender: "agent_a", Content: "and then?", MessageID: "om_1"}
	dir, _ := record(t, map[string][]transcript.Entry{"feishu/oc_x": {entry}})
	const said, became = "--:--:--  agent_a (bot)  and then?\n", "          → depth 3, agent_b: max_depth, agent_c: delivered\n"
	if code, out, stderr := program(t, "transcript", "show", "oc_x", "--dir", dir); code != 0 || out != said || stderr != "" {
		t.Errorf("without a sidecar: status %d, %q, %q", code, out, stderr)
	}
	events := talks(t)
	if _, out, _ := program(t, "transcript", "show", "oc_x", "--dir", dir); out != said+became {
		t.Errorf("got %q", out)
	}
	_, out, _ := program(t, "transcript", "show", "--json", "oc_x", "--dir", dir)
	for _, want := range []string{`"message_id":"om_1"`, `"depth":3`, `"stopped":"max_depth"`} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %s", out, want)
		}
	}
	lines, end := following(t, "oc_x", "--dir", dir)
	wantLine(t, lines, strings.TrimSuffix(said, "\n"))
	wantLine(t, lines, strings.TrimSuffix(became, "\n"))
	for _, e := range []string{
		`{"agent":"agent_b","chat_id":"oc_other","relay_msg_id":"om_0","at":1,"stopped":"muted"}`,
		`{"agent":"agent_b","chat_id":"oc_x","relay_msg_id":"om_2","at":1,"decision":{"allow":true,"depth":2}}`,
		`{"agent":"agent_b","chat_id":"oc_x","relay_msg_id":"om_2","at":2,"decision":{"allow":true,"depth":2},"delivered_at":2}`,
		`{"agent":"agent_b","chat_id":"oc_x","relay_msg_id":"om_2","at":3,"decision":{"allow":true,"depth":2},"delivered_at":2,"acknowledged_at":3}`,
		`{"agent":"agent_c","chat_id":"oc_x","relay_msg_id":"om_2\u001b","at":3,"stopped":"judge_no"}`,
	} {
		events <- e
	}
	wantLine(t, lines, "          → depth 2, agent_b: delivered (om_2)")
	wantLine(t, lines, "          → agent_c: judge_no (om_2␛)")
	if code := end(); code != 0 {
		t.Errorf("interrupted: status %d, want 0", code)
	}
}

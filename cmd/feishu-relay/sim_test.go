package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestSimExplainsItsFlags(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"bots":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--help": {0, "--scenario="}, "--apps 0": {2, "want 1 to 26, got 0"}, "now": {2, `unexpected argument "now"`},
		"--scenario nothing.json": {1, "no such file"}, "--scenario " + scenario: {1, ""}, "--listen nothing": {1, ""},
	} {
		code, stdout, stderr := program(t, append([]string{"sim"}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(stdout+stderr, want.says) {
			t.Errorf("%s: status %d, %q, want %d with %q", args, code, stdout+stderr, want.code, want.says)
		}
	}
}

// TestSimShowsWhatIsSaid pastes the commands that it prints.
func TestSimShowsWhatIsSaid(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"apps":[{"name":"BotA"}],"users":["Ann"],"groups":[{"name":"Lab","members":["BotA","Ann"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"sim", "--scenario", scenario}, w, w)
		w.Close()
	}()
	var out strings.Builder
	until := func(want string) *regexp.Regexp {
		t.Helper()
		re := regexp.MustCompile(want)
		b := make([]byte, 1024)
		for !re.MatchString(out.String()) {
			n, err := r.Read(b)
			if err != nil {
				t.Fatalf("no %q in %q: %v", want, out.String(), err)
			}
			out.Write(b[:n])
		}
		return re
	}
	re := until(`curl -s (http://\S+/sim/say) -d '(\{.*\})'`)
	for _, want := range []string{"BotA  app_id cli_", "AGENT_NAME=agent_a FEISHU_APP_ID=cli_", "LISTEN_ADDR=127.0.0.1:8801 GATEWAY_ADDR=127.0.0.1:8802"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out.String(), want)
		}
	}
	m := re.FindStringSubmatch(out.String())
	resp, err := http.Post(m[1], "application/json", strings.NewReader(strings.Replace(m[2], "@BotA hello", "typed \\u001b[31m @BotA", 1)))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		MessageID string `json:"message_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	until(`Ann: typed ␛\[31m @BotA`)
	resp, err = http.Post(strings.TrimSuffix(m[1], "say")+"react", "application/json",
		strings.NewReader(`{"message_id":"`+said.MessageID+`","user":"Ann","emoji_type":"OK"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	until(`reactions to "typed ␛\[31m @BotA": 1`)
	stop()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if code := <-ended; code != 0 {
		t.Errorf("interrupted: status %d", code)
	}
}

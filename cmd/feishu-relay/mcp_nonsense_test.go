package main

import (
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A line that is no message neither ends the program nor costs an answer, not
// even that of a call which is under way.
func TestMCPGoesOnBehindNonsense(t *testing.T) {
	server := toolServer(t, "127.0.0.1:0")
	clearEnvironment(t, map[string]string{"LISTEN_ADDR": server.Listener.Addr().String(), "API_TOKEN": "secret"})
	cmd, stdin, stdout, stderr := mcpProcess(t)
	stdout.Buffer(nil, 1<<20)
	_, err := io.WriteString(stdin, mcpHelloLine+`{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_peers"}}
not json
{"jsonrpc":"2.0","method":"notifications/cancelled","params":3}
{"jsonrpc":"2.0","id":9,"result":{}}
{"jsonrpc":"2.0","id":4}
{"id":3}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_peers"}}
`)
	if err := errors.Join(err, stdin.Close()); err != nil {
		t.Fatal(err)
	}
	results, refused := map[string]bool{}, map[string]int{}
	for stdout.Scan() {
		var answer struct {
			ID     json.RawMessage
			Result json.RawMessage
			Error  *jsonrpc.Error
		}
		if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
			t.Errorf("%q: %v", stdout.Bytes(), err)
		}
		if answer.Result != nil {
			results[string(answer.ID)] = true
		} else {
			refused[string(answer.ID)]++
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, stderr)
	}
	if diff := cmp.Diff(map[string]bool{"0": true, "1": true, "2": true}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"null": 2}, refused); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

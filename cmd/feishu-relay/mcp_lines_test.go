package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	ping         = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	noJSON       = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is no JSON: want one JSON-RPC message a line"}}` + "\n"
	tooLongLine  = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is longer than 4194304 bytes"}}` + "\n"
	emptyBatch   = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the batch is empty"}}` + "\n"
	noMessageEnd = `,"error":{"code":-32600,"message":"this is no JSON-RPC message: want {\"jsonrpc\":\"2.0\",\"id\":…,\"method\":…,\"params\":…}"}}` + "\n"
	noMessage    = `{"jsonrpc":"2.0","id":null` + noMessageEnd
)

func TestMCPLines(t *testing.T) {
	longest := ping + strings.Repeat(" ", maxMCPLine-len(ping)-1) + "\n"
	for _, tt := range []struct{ name, in, passed, answered string }{
		{"nothing", "", "", ""},
		{"a message", ping + "\n", ping + "\n", ""},
		{"without a newline", ping, ping + "\n", ""},
		{"of Windows", ping + "\r\n" + ping + "\r\n", ping + "\n" + ping + "\n", ""},
		{"blank lines", "\n \n\r\n" + ping + "\n\n", ping + "\n", ""},
		{"no JSON", "hello\n" + ping + "\n", ping + "\n", noJSON},
		{"cut off", ping + "\n" + `{"jsonrpc":`, ping + "\n", noJSON},
		{"two in a line", ping + ping + "\n", "", noJSON},
		{"over two lines", "{\n}\n", "", noJSON + noJSON},
		{"no object", "3\n\"x\"\nnull\n", "", noMessage + noMessage + noMessage},
		{"no version", `{"id":7,"method":"ping"}` + "\n", "", `{"jsonrpc":"2.0","id":7` + noMessageEnd},
		{"no method", `{"jsonrpc":"2.0","id":"<a>","method":7}` + "\n", "", `{"jsonrpc":"2.0","id":"<a>"` + noMessageEnd},
		{"an id that is none", `{"jsonrpc":"2.0","id":{},"method":"ping"}` + "\n", "", noMessage},
		{"a batch", "[" + ping + ", " + ping + ",7]\n", ping + "\n" + ping + "\n", noMessage},
		{"an empty batch", "[]\n", "", emptyBatch},
		{"as long as it may be", longest, ping + "\n", ""},
		{"too long", " " + longest + ping, ping + "\n", tooLongLine},
		{"too long without an end", " " + strings.TrimSuffix(longest, "\n") + " ", "", tooLongLine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var answered bytes.Buffer
			passed, err := io.ReadAll(newMessages(strings.NewReader(tt.in), &answered))
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.passed, string(passed)); diff != "" {
				t.Errorf("passed on (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.answered, answered.String()); diff != "" {
				t.Errorf("answered (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("input that fails", func(t *testing.T) {
		broken := errors.New("broken")
		in := io.MultiReader(strings.NewReader(ping+"\n"), iotest.ErrReader(broken))
		if passed, err := io.ReadAll(newMessages(in, io.Discard)); !errors.Is(err, broken) || string(passed) != ping+"\n" {
			t.Errorf("got %q, %v", passed, err)
		}
	})
	t.Run("output that fails", func(t *testing.T) {
		r, w := io.Pipe()
		_ = r.Close()
		if _, err := io.ReadAll(newMessages(strings.NewReader("x\n"+ping), w)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

// Whatever comes in, the SDK gets lines that it can read.
func FuzzMCPLines(f *testing.F) {
	for _, in := range []string{ping, "[" + ping + "]", "hello\n", "{\n}", `{"jsonrpc":"2.0","id":1e400,"method":"a"}`, "[[]]"} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var answered bytes.Buffer
		passed, err := io.ReadAll(newMessages(iotest.OneByteReader(strings.NewReader(in)), &answered))
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(passed)) {
			if _, err := jsonrpc.DecodeMessage([]byte(line)); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
		for line := range strings.Lines(answered.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("answered %q", line)
			}
		}
	})
}

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
[{"jsonrpc":"2.0","method":"notifications/a"},{"jsonrpc":"2.0","method":"notifications/b"}]
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
			Error  struct{ Code int }
		}
		if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
			t.Errorf("%q: %v", stdout.Bytes(), err)
		}
		if answer.Result != nil {
			results[string(answer.ID)] = true
		} else {
			refused[string(answer.ID)] = answer.Error.Code
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, stderr)
	}
	if diff := cmp.Diff(map[string]bool{"0": true, "1": true, "2": true}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"null": jsonrpc.CodeParseError, "3": jsonrpc.CodeInvalidRequest}, refused); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

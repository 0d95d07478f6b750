//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/test/npmtest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/mcptools"
)

// MCP clients that others wrote work with a sidecar, over HTTP and by `feishu-relay mcp`.
func TestForeignMCPClients(t *testing.T) {
	verify.Only(t)
	dir := npmtest.Installed(t, "testdata/foreign/mcp/package.json", "@modelcontextprotocol/conformance")
	clearEnvironment(t, nil)
	data := t.TempDir()
	addr := startSidecar(t, "coder", data)
	startSidecar(t, "tester", data)
	f := &foreignMCP{dir: dir, home: t.TempDir(), url: "http://" + addr + "/mcp"}
	t.Setenv("LISTEN_ADDR", addr) // for `feishu-relay mcp`
	t.Run("conformance suite", f.conforms)
	t.Run("TypeScript SDK over HTTP", func(t *testing.T) { f.converses(t, "URL="+f.url) })
	t.Run("TypeScript SDK by command", func(t *testing.T) { f.converses(t, `COMMAND=["feishu-relay","mcp","--addr","`+addr+`"]`) })
}

// foreignMCP is where the clients are and the server that they are pointed at.
type foreignMCP struct{ dir, home, url string }

// run starts one of the programs of node_modules, with the Node that they need.
func (f *foreignMCP) run(t *testing.T, env []string, stdin, script string, args ...string) (stdout []byte) {
	t.Helper()
	node := exec.CommandContext(t.Context(), npmtest.Node(f.dir), append([]string{script}, args...)...)
	node.Dir, node.Env = f.dir, append(endsAtOnce(), append(env, "HOME="+f.home, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")...)
	node.Stdin = strings.NewReader(stdin)
	var out, log bytes.Buffer
	node.Stdout, node.Stderr = &out, &log
	if err := node.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, &out, &log)
	}
	return out.Bytes()
}

// missing is why a scenario of the conformance suite may fail: the server does not have what it asks for.
var missing = regexp.MustCompile(`unknown tool "test_|'json_schema_2020_12_tool' not found|unknown prompt "test_|` +
	`Resource not found|method not found: "(completion/complete|resources/(un)?subscribe)"`)

// conforms runs the official conformance suite, which fails on a scenario that neither passes nor is expected to fail,
// and on one that is expected to fail and passes.
func (f *foreignMCP) conforms(t *testing.T) {
	expected, err := filepath.Abs("testdata/foreign/mcp/expected-failures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	results := t.TempDir()
	out := f.run(t, nil, "", "node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", f.url,
		"--suite", "all", "--expected-failures", expected, "--output-dir", results)
	t.Logf("%s", regexp.MustCompile(`Total: .*`).Find(out))
	passed := 0
	err = filepath.WalkDir(results, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "checks.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(data, &checks); err != nil {
			return err
		}
		for _, c := range checks {
			switch c.Status {
			case "SUCCESS":
				passed++
			case "FAILURE":
				if !missing.MatchString(c.ErrorMessage) {
					t.Errorf("%s fails for another reason than a missing feature: %s", c.ID, c.ErrorMessage)
				}
			}
		}
		return nil
	})
	if err != nil || passed == 0 {
		t.Errorf("%d checks passed: %v", passed, err)
	}
}

// converses has a program on the TypeScript SDK list and call tools of the server that env names.
func (f *foreignMCP) converses(t *testing.T, env string) {
	script, err := filepath.Abs("../../mcptools/testdata/node/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	out := f.run(t, []string{env}, `{"name":"send_to_peer","arguments":{"to":"tester","message":"hello"}}`+"\n"+
		`{"name":"send_to_peer","arguments":{"to":"coder","message":"hello"}}`+"\n", script)
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) != 3 {
		t.Fatalf("it printed %s", out)
	}
	var tools []struct{ Name string }
	if err := json.Unmarshal(lines[0], &tools); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ourTools(), namesOf(tools)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if !bytes.Contains(lines[1], []byte(`"delivered_to":["tester"]`)) || !bytes.Contains(lines[2], []byte(`"isError":true`)) {
		t.Errorf("it was told %s and %s", lines[1], lines[2])
	}
}

func ourTools() (names []string) {
	for _, tool := range mcptools.Tools() {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func namesOf(tools []struct{ Name string }) (names []string) {
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// attached starts a program on a terminal, which it returns as well, or with its output in a pipe.
func attached(t *testing.T, cmd *exec.Cmd, terminal bool) (out io.Reader, tty *os.File) {
	t.Helper()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if terminal {
		tty, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tty.Close() })
		return tty, tty
	}
	read, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = written, written
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = written.Close()
	t.Cleanup(func() { _ = read.Close() })
	return read, nil
}

// starts runs the program on a terminal or with its output in a pipe. next returns its next line that
// matches.
func starts(t *testing.T, terminal bool, args ...string) (cmd *exec.Cmd, next func(pattern string) string) {
	t.Helper()
	cmd = exec.Command("feishu-relay", args...)
	out, _ := attached(t, cmd, terminal)
	lines := bufio.NewScanner(out)
	return cmd, func(pattern string) string {
		t.Helper()
		var seen []string
		for want := regexp.MustCompile(pattern); lines.Scan(); {
			line := strings.TrimRight(lines.Text(), "\r")
			if seen = append(seen, line); want.MatchString(line) {
				return line
			}
		}
		t.Fatalf("no line matches %q:\n%s", pattern, strings.Join(seen, "\n"))
		return ""
	}
}

// Logs are JSON where a program reads them and for people on a terminal, unless LOG_FORMAT says
// otherwise. The first ones say where the viewer and the gateway are, and what comes next.
func TestLogsAreForTheirReader(t *testing.T) {
	const escape = "\x1b["
	for _, tt := range []struct {
		name                     string
		terminal                 bool
		format, noColor          string
		listening, gateway, next string
		colour                   bool
	}{
		{name: "piped", listening: `^\{"time":"[^"]*","level":"INFO","msg":"listening","addr":"127.0.0.1:\d+",.*"viewer":"http://127.0.0.1:\d+/"\}$`,
			gateway: `^\{.*"msg":"the gateway listens","addr":"127.0.0.1:\d+"`,
			next:    `^\{.*"msg":"next step","do":"point the bot's Feishu SDK at http://127.0.0.1:\d+ .*feishu-relay check`},
		{name: "logfmt", format: "text", listening: `^time=\S+ level=INFO msg=listening `, gateway: `msg="the gateway listens"`,
			next: `msg="next step"`},
		{name: "for people, piped", format: "console", listening: `^\d\d:\d\d:\d\d INF listening addr=127.* viewer=http://`,
			gateway: `INF the gateway listens addr=127`, next: `INF next step do=`},
		{name: "terminal", terminal: true, listening: `INF.* listening .*viewer=`, gateway: `the gateway listens`, next: `next step`,
			colour: true},
		{name: "NO_COLOR", terminal: true, noColor: "1", listening: `^\d\d:\d\d:\d\d INF listening addr=127.* viewer=http://`,
			gateway: `the gateway listens`, next: `next step`},
		{name: "JSON on a terminal", terminal: true, format: "json", listening: `"msg":"listening"`, gateway: `"the gateway listens"`,
			next: `"next step"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clearEnvironment(t, nil)
			for name, value := range map[string]string{"AGENT_NAME": "agent_a", "DATA_DIR": t.TempDir(), "LISTEN_ADDR": "127.0.0.1:0",
				"GATEWAY_ADDR": "127.0.0.1:0", "LOG_FORMAT": tt.format, "NO_COLOR": tt.noColor, "TERM": "xterm"} {
				t.Setenv(name, value)
			}
			cmd, next := starts(t, tt.terminal)
			first := next(tt.listening)
			if got := strings.Contains(first, escape); got != tt.colour {
				t.Errorf("coloured: %v, want %v: %q", got, tt.colour, first)
			}
			next(tt.gateway)
			next(tt.next)
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			next(`stopped`)
		})
	}
}

// On a terminal each screen of status --watch takes the place of the one before; in a pipe it follows.
func TestStatusWatch(t *testing.T) {
	statusAPI(t)
	for terminal, screen := range map[bool]string{true: `^\x1b\[H\x1b\[2J\x1b\[1mSidecar\x1b\[0m   agent_a, \x1b\[32mready`,
		false: `^Sidecar   agent_a, ready`} {
		cmd, next := starts(t, terminal, "status", "--watch")
		next(screen)
		next(screen)
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("terminal %v, interrupted: %v", terminal, err)
		}
	}
}

// statusAPI is the local API of a sidecar without groups, and the environment by which status finds it.
func statusAPI(t *testing.T) {
	t.Helper()
	clearEnvironment(t, map[string]string{"TERM": "xterm", "LANG": "C"})
	mux := http.NewServeMux()
	for path, body := range map[string]string{"/v1/status": `{"identity":{"agent_name":"agent_a"},"ready":true,"door":{"name":"stream"}}`,
		"/v1/groups": `{"groups":[]}`, "/v1/deliveries": `{"deliveries":[]}`} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Setenv("LISTEN_ADDR", srv.Listener.Addr().String())
}

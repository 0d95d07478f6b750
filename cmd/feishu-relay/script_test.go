package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"feishu-relay": main})
}

// TestMailboxScripts runs the program against a sidecar that answers what the
// script's files say: api/GET_v1_mailbox_agents.200.json is the answer to
// GET /v1/mailbox/agents. What it was asked stands in the file requests.
func TestMailboxScripts(t *testing.T) { runScripts(t, "testdata/mailbox") }

// TestCommandLineScripts is about what all commands have in common: the installation, env files,
// completion, misspelt commands.
func TestCommandLineScripts(t *testing.T) { runScripts(t, "testdata/cli") }

// TestOperatorScripts is about status, why and the logs.
func TestOperatorScripts(t *testing.T) { runScripts(t, "testdata/operator") }

// TestDocsScripts runs what pages tell to paste.
func TestDocsScripts(t *testing.T) { runScripts(t, "testdata/docs") }

func runScripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			s := httptest.NewServer(&scriptedAPI{dir: env.WorkDir})
			env.Defer(s.Close)
			files := httptest.NewServer(http.FileServer(http.Dir(env.WorkDir)))
			env.Defer(files.Close)
			scripts, err := filepath.Abs("../../scripts")
			if err != nil {
				return err
			}
			env.Setenv("SCRIPTS", scripts)
			env.Setenv("FILES_URL", files.URL)
			env.Setenv("LISTEN_ADDR", s.Listener.Addr().String())
			env.Setenv("API_TOKEN", "let-me-in")
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each call ends a second late
			return nil
		},
	})
}

type scriptedAPI struct {
	dir string
	mu  sync.Mutex // held while requests is written
}

func (s *scriptedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer let-me-in" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if err := s.record(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	name := r.Method + strings.ReplaceAll(r.URL.EscapedPath(), "/", "_")
	found, err := filepath.Glob(filepath.Join(s.dir, "api", name+".*.json"))
	if err != nil || len(found) != 1 {
		http.NotFound(w, r)
		return
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var status int
	if _, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(found[0]), name+"."), "%d.json", &status); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(data) // the program may have gone
}

func (s *scriptedAPI) record(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(s.dir, "requests"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %s\n%s", r.Method, r.URL.RequestURI(), body)
	return err
}

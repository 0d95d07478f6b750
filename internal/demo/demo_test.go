package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/test/programtest"
	"feishu-relay/internal/test/verify"
)

// program builds feishu-relay, once for all tests.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "feishu-relay.exe")
	return path, programtest.Build(programtest.Relay, path)
})

var buildDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if buildDir, err = os.MkdirTemp("", "demo-test-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(buildDir)
		return m.Run()
	}())
}

// options are for a demo with its folder below the test's.
func options(t *testing.T, out io.Writer) Options {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("OPENAI_API_KEY", "a judge that must not be asked")
	t.Setenv("AGENT_NAME", "somebody else")
	return Options{Program: path, Output: out}
}

func TestScenesComeToTheirEnds(t *testing.T) {
	verify.Only(t)
	for _, tt := range []struct {
		act    int
		fates  int // shown
		drafts int // of cards: three each
		last   string
		zh     string // the same in Chinese
	}{
		{1, 40, 12, "OK: 20 sent, 26 delivered, 14 stopped (judge_no 2, max_depth 9, not_a_member 3), 0 doubled, 0 lost",
			"OK: 发送 20，送达 26，拦下 14（judge_no 2, max_depth 9, not_a_member 3），重复 0，丢失 0"},
		{2, 7, 3, "OK: 2 tasks given (completed 1, failed 1), 11 sent, 6 delivered, 1 stopped (RATE_LIMITED 1), 0 doubled, 0 lost",
			"OK: 派出任务 2（已完成 1, 失败 1），发送 11，送达 6，拦下 1（RATE_LIMITED 1），重复 0，丢失 0"},
	} {
		for _, played := range []Options{{Backend: "file"}, {Backend: "redis"}, {Backend: "file", Chinese: true}} {
			t.Run(fmt.Sprintf("act %d on %s, Chinese %v", tt.act, played.Backend, played.Chinese), func(t *testing.T) {
				var out bytes.Buffer
				o := options(t, &out)
				o.Act, o.Backend, o.Chinese = tt.act, played.Backend, played.Chinese
				last := tt.last
				if o.Chinese {
					last = tt.zh
				}
				s, err := play(t, t.Context(), o)
				if err != nil {
					t.Fatalf("run: %v\n%s", err, &out)
				}
				if got := lastLine(&out); got != last {
					t.Errorf("last line: got %q, want %q", got, last)
				}
				if han := regexp.MustCompile(`.*\p{Han}.*`).FindString(out.String()); !o.Chinese && han != "" {
					t.Errorf("the English demo says %q", han)
				}
				if en := regexp.MustCompile(`(?i).*\b(the|is|was|user|delivered|stopped)\b.*`).FindString(out.String()); o.Chinese && en != "" {
					t.Errorf("the Chinese demo says %q", en)
				}
				if n := strings.Count(out.String(), "\n          ↳ "); n != tt.fates {
					t.Errorf("fates shown: got %d, want %d", n, tt.fates)
				}
				if n := strings.Count(out.String(), "⋯ "); n != tt.drafts {
					t.Errorf("drafts shown: got %d, want %d", n, tt.drafts)
				}
				nothingLeft(t, s)
			})
		}
	}
}

func TestActsToPlay(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want []int
	}{
		{Options{}, []int{1, 2}},
		{Options{Act: 2}, []int{2}},
		{Options{Chat: true}, []int{1}},
		{Options{View: true}, []int{1}},
		{Options{View: true, Act: 2}, []int{2}},
	} {
		if got := tt.o.acts(); !slices.Equal(got, tt.want) {
			t.Errorf("act %d, chat %v: got %v, want %v", tt.o.Act, tt.o.Chat, got, tt.want)
		}
	}
}

func TestChatEndsWithItsInput(t *testing.T) {
	var out bytes.Buffer
	o := options(t, &out)
	o.Chat, o.Input = true, strings.NewReader("hello everyone <b>\n\n@Planner thank Coder for me\x1b[2J\n/quit\n@Planner too late\n")
	s, err := play(t, t.Context(), o)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, &out)
	}
	if got, want := lastLine(&out), "OK: 5 sent, 8 delivered, 2 stopped (judge_no 2), 0 doubled, 0 lost"; got != want {
		t.Errorf("last line: got %q, want %q", got, want)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("an escape that the user typed reaches the terminal")
	}
	nothingLeft(t, s)
}

// TestChatSteersTheBots types commands, and lets go on what was stopped.
func TestChatSteersTheBots(t *testing.T) {
	verify.Only(t)
	t.Cleanup(func(was time.Duration) func() { return func() { restWithin = was } }(restWithin))
	restWithin = time.Hour // all that is waited for comes, however busy the machine is
	talk := "@Planner discuss sorting with Coder\n"
	var out bytes.Buffer
	o := options(t, &out)
	o.Chat, o.Input = true, strings.NewReader("/relay pause\n"+talk+"/中继 恢复\n"+talk+"@Coder continue\n"+
		"/relay answer Coder\nhello\n/relay limit 5\n/relay stop\n")
	s, err := play(t, t.Context(), o)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, &out)
	}
	for _, want := range []string{"messages are paused", "@Coder quicksort or merge sort", "消息已恢复",
		"puts the reaction CrossMark on: @Coder ten million", "Coder is given what had stopped: @Coder ten million",
		"Reviewer is not given what you said: not_for_me", "The limit is 5", "Stopped. The bots continue"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the chat does not show %q:\n%s", want, &out)
		}
	}
	// How much is said depends on which Coder answers first: the word that let it go on, or what it was given then.
	want := regexp.MustCompile(`^OK: \d+ sent, \d+ delivered, \d+ stopped \(max_depth [34], paused 2\), 0 doubled, 0 lost$`)
	if got := lastLine(&out); !want.MatchString(got) {
		t.Errorf("last line: got %q, want %s:\n%s", got, want, &out)
	}
	nothingLeft(t, s)
}

// The page is where it is wanted, and asks for the token that it is given. In act 2 a bot calls that sidecar's /mcp.
func TestPageIsServedWhereItIsWanted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr, err := loopback.Addr()
	if err != nil {
		t.Fatal(err)
	}
	const token = "a token of the test's own"
	var status []int
	o := options(t, writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "Ctrl-C") {
			for _, with := range []string{"", token} {
				resp, err := (&http.Client{Transport: bearer(with)}).Get("http://" + addr + "/")
				if err != nil {
					t.Error(err)
					continue
				}
				resp.Body.Close()
				status = append(status, resp.StatusCode)
			}
			cancel()
		}
		return len(p), nil
	}))
	o.Act, o.View, o.Listen, o.Token = 2, true, addr, token
	if _, err := play(t, ctx, o); err != nil {
		t.Errorf("run: %v", err)
	}
	if want := []int{http.StatusUnauthorized, http.StatusOK}; !slices.Equal(status, want) {
		t.Errorf("the page without and with the token: got %v, want %v", status, want)
	}
}

func TestTheSecondActHasNoChat(t *testing.T) {
	o := options(t, nil)
	o.Act, o.Chat, o.Input = 2, true, strings.NewReader("hello\n")
	s, err := play(t, t.Context(), o)
	if !errors.Is(err, errNoChat) {
		t.Errorf("run: got %v, want %v", err, errNoChat)
	}
	nothingLeft(t, s)
}

// TestInterruptEndsEverything cuts each act off at some of its lines.
func TestInterruptEndsEverything(t *testing.T) {
	verify.Only(t)
	for act, lines := range map[int][]string{
		1: {"Three unchanged bots", "three sidecars", "1. ", "Thinking", "depth 1", "SIGKILL", "summary"},
		2: {"Two agents", "two sidecars", "is away", "offline", "accepted", "SIGKILL", "RATE_LIMITED"},
	} {
		for i, at := range lines {
			// Not by what is waited for: the name stands in the folder's path.
			t.Run(fmt.Sprintf("act %d at line %d", act, i), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				o := options(t, writerFunc(func(p []byte) (int, error) {
					if strings.Contains(string(p), at) {
						cancel()
					}
					return len(p), nil
				}))
				o.Act = act
				s, err := play(t, ctx, o)
				if !errors.Is(err, errInterrupted) {
					t.Errorf("run: got %v, want %v", err, errInterrupted)
				}
				nothingLeft(t, s)
			})
		}
	}
}

// TestTheActsFollowEachOther interrupts the last where it begins.
func TestTheActsFollowEachOther(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	err := Run(ctx, options(t, writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "Two agents") {
			cancel()
		}
		return out.Write(p)
	})))
	if !errors.Is(err, errInterrupted) {
		t.Errorf("run: got %v, want %v", err, errInterrupted)
	}
	if n := strings.Count(out.String(), "\nOK: "); n != 1 {
		t.Errorf("acts that came to their end: got %d, want 1\n%s", n, &out)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestUnexpectedEndIsToldWithTheLogs(t *testing.T) {
	for act, name := range map[int]string{1: "Reviewer", 2: "Coder"} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			var s *stage
			o := options(t, writerFunc(func(p []byte) (int, error) {
				defer func() { // a step may come in two writes
					if strings.Contains(out.String(), "2. ") {
						s.sidecars[len(s.sidecars)-1].process.Kill()
					}
				}()
				return out.Write(p)
			}))
			o.Act = act
			s, err := newStage(o, act)
			if err != nil {
				t.Fatal(err)
			}
			err = s.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("run: got %v, want an error that names the bot", err)
			}
			for _, want := range []string{"msg=listening", "kept: " + s.dir} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output has no %q:\n%s", want, &out)
				}
			}
			if strings.Contains(out.String(), "OK:") {
				t.Error("the output says OK")
			}
		})
	}
}

func TestMissingProgramIsTold(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	err := Run(t.Context(), Options{Program: filepath.Join(t.TempDir(), "none")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run: got %v, want %v", err, os.ErrNotExist)
	}
}

func TestMissingRedisIsTold(t *testing.T) {
	o := options(t, nil)
	o.Backend = "redis"
	t.Setenv("PATH", t.TempDir())
	err := Run(t.Context(), o)
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "--backend file") {
		t.Errorf("run: got %v, want an error that says what to do", err)
	}
}

// play runs a demo, and returns it for a look at what is left.
func play(t *testing.T, ctx context.Context, o Options) (*stage, error) {
	t.Helper()
	s, err := newStage(o, o.acts()[0])
	if err != nil {
		t.Fatal(err)
	}
	return s, s.run(ctx)
}

// nothingLeft checks that the processes and the folder are gone.
func nothingLeft(t *testing.T, s *stage) {
	t.Helper()
	for _, sc := range s.sidecars {
		if sc.process != nil && sc.runs() {
			t.Errorf("the sidecar of %s is still there", sc.Name)
		}
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder: got %v, want %v", err, os.ErrNotExist)
	}
}

func lastLine(out *bytes.Buffer) string {
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1]
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

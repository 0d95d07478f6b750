package endurance

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"feishu-relay/internal/test/programtest"
)

// raceDetector is whether the tests run with the race detector. Then this version of the program does
// too: its packages are compiled already.
var raceDetector bool

// present builds this version of the program once.
var present = sync.OnceValues(func() (program string, err error) {
	if presentDir, err = os.MkdirTemp("", "feishu-relay-program"); err != nil {
		return "", err
	}
	program = filepath.Join(presentDir, "feishu-relay")
	return program, build(program)
})

var presentDir string // "" until present was called

func TestMain(m *testing.M) {
	code := m.Run()
	if presentDir != "" {
		_ = os.RemoveAll(presentDir)
	}
	os.Exit(code)
}

func presentProgram(t *testing.T) string {
	t.Helper()
	program, err := present()
	must(t, err)
	return program
}

// build compiles this version of the program.
func build(program string, flags ...string) error {
	if raceDetector {
		flags = append(flags, "-race")
	}
	return programtest.Build(programtest.Relay, program, flags...)
}

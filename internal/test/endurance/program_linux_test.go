package endurance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the top of the repository, as seen from this package's tests.
const root = "../../.."

// raceDetector is whether the tests run with the race detector. Then this version of the program does
// too: its packages are compiled already.
var raceDetector bool

// present builds this version of the program once.
var present = sync.OnceValues(func() (program string, err error) {
	if presentDir, err = os.MkdirTemp("", "feishu-relay-program"); err != nil {
		return "", err
	}
	program = filepath.Join(presentDir, "feishu-relay")
	return program, build(root, program, raceDetector)
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

// build compiles the program of a source folder, as `make build` does or with the race detector.
func build(source, program string, race bool, flags ...string) error {
	args, env := []string{"build", "-buildvcs=false", "-o", program}, os.Environ()
	if race {
		args = append(args, "-race")
	} else {
		args, env = append(args, "-trimpath"), append(env, "CGO_ENABLED=0")
	}
	cmd := exec.Command("go", append(append(args, flags...), "./cmd/feishu-relay")...)
	cmd.Dir, cmd.Env = source, env
	return output(cmd, nil)
}

// output runs a command and stores what it prints, without white space around it.
func output(cmd *exec.Cmd, into *string) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if into != nil {
		*into = strings.TrimSpace(string(out))
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

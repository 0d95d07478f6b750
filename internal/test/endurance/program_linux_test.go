package endurance

import (
	"bytes"
	"context"
	"errors"
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

func git(args ...string) (out string, err error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	return out, output(cmd, &out)
}

// version is an earlier version of the program.
type version struct {
	name    string // as a person writes it: a tag or a commit
	commit  string
	program string
	// signsMail is whether it signs mail where RELAY_SECRET is set.
	signsMail bool
}

// earlier builds the version that from names: a tag or a commit; "" is the last version tag, or
// without one the last version that CHANGELOG.md names.
func earlier(ctx context.Context, from string) (v version, err error) {
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil {
		return v, fmt.Errorf("the history is needed, so run this in a git clone: %w", err)
	} else if shallow == "true" {
		return v, errors.New("the history of this clone is shallow; fetch it with `git fetch --unshallow --tags`")
	}
	if from == "" {
		if from, err = lastVersion(); err != nil {
			return v, err
		}
	}
	v.name = from
	if v.commit, err = git("rev-parse", "--verify", "--end-of-options", from+"^{commit}"); err != nil {
		return v, fmt.Errorf("FROM=%s is neither a tag nor a commit of this repository: %w", from, err)
	}
	if _, err := git("grep", "-q", "MAILBOX_UNSIGNED", v.commit, "--", "cmd", "sidecar"); err == nil {
		v.signsMail = true
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return v, err
	}
	home := filepath.Join(cache, "feishu-relay-test")
	v.program = filepath.Join(home, "feishu-relay-"+v.commit)
	if _, err := os.Stat(v.program); err == nil {
		return v, nil
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return v, err
	}
	source, err := os.MkdirTemp(home, "source")
	if err != nil {
		return v, err
	}
	defer os.RemoveAll(source)
	archive, built := filepath.Join(source, "source.tar"), filepath.Join(source, "feishu-relay")
	if _, err := git("archive", "--output", archive, v.commit); err != nil {
		return v, err
	}
	if err := output(exec.CommandContext(ctx, "tar", "-xf", archive, "-C", source), nil); err != nil {
		return v, err
	}
	if err := build(source, built, false); err != nil {
		return v, err
	}
	return v, os.Rename(built, v.program)
}

// lastVersion is the newest version tag of the history, else the commit in the newest
// heading of CHANGELOG.md, such as `## 0.5 (up to 7a0e6ad)`.
func lastVersion() (string, error) {
	tag, err := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if err == nil {
		return tag, nil
	}
	data, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if _, rest, ok := strings.Cut(line, "(up to "); ok && strings.HasPrefix(line, "## ") {
			commit, _, _ := strings.Cut(rest, ")")
			return commit, nil
		}
	}
	return "", errors.New("no version tag, and no heading `## VERSION (up to COMMIT)` in CHANGELOG.md: set FROM")
}

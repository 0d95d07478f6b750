// Package programtest builds our program for tests that start it, and finds the programs of others.
package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// Build compiles a package of this module, such as feishu-relay/cmd/feishu-relay, to the file program, as releases are.
// Further flags are those of go build.
func Build(pkg, program string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", program}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	if !slices.Contains(flags, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Relay is our program, for [Build].
const Relay = "feishu-relay/cmd/feishu-relay"

// Find returns the path of a program. Without the program a test fails if `make verify-tools` can install it, which
// is so with apt or brew, and in CI. Elsewhere it is skipped.
func Find(t testing.TB, program string) (path string) {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case CI() || installed("apt-get") || installed("brew"):
		t.Fatalf("%s is not installed: call `make verify-tools`", program)
	default:
		t.Skipf("%s is not installed", program)
	}
	return path
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// CI reports whether the tests run in continuous integration, where nothing that can be had may be missing.
func CI() bool { return os.Getenv("CI") != "" && os.Getenv("CI") != "false" }

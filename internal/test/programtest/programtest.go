// Package programtest finds the programs of others that tests start.
package programtest

import (
	"os"
	"os/exec"
	"testing"
)

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

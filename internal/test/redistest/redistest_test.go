package redistest_test

import (
	"os/exec"
	"strings"
	"testing"

	"feishu-relay/internal/test/redistest"
)

func TestMissingProgramIsSaid(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := redistest.Launch(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), exec.ErrNotFound.Error()) || !strings.Contains(err.Error(), "install") {
		t.Fatalf("got %v, want how to mend it", err)
	}
}

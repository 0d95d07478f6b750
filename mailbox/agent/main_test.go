package agent

import (
	"os"
	"testing"
)

// TestMain is also the program of the processes that tests start and kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		sendUntilKilled(dir, os.Getenv(childDies))
	}
	os.Exit(m.Run())
}

package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func readTask(tb testing.TB, dir, name string) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

package programtest_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"feishu-relay/internal/test/programtest"
)

// told is a test that notes how it ends.
type told struct {
	testing.TB
	how string
}

func (*told) Helper()                 {}
func (r *told) Fatalf(string, ...any) { r.how = "failed" }
func (r *told) Skipf(string, ...any)  { r.how = "skipped" }

func TestMissingProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("programs have other names there")
	}
	for _, tt := range []struct{ ci, has, want string }{
		{"", "", "skipped"}, {"false", "", "skipped"}, {"true", "", "failed"}, {"", "apt-get", "failed"}, {"", "brew", "failed"},
		{"", "tool", ""}, {"true", "tool", ""},
	} {
		bin := t.TempDir()
		if tt.has != "" {
			if err := os.WriteFile(filepath.Join(bin, tt.has), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", bin)
		t.Setenv("CI", tt.ci)
		r := &told{}
		path := programtest.Find(r, "tool")
		if r.how != tt.want || (path != "") != (tt.has == "tool") {
			t.Errorf("CI=%q, with %q: %q, path %q; want %q", tt.ci, tt.has, r.how, path, tt.want)
		}
	}
}

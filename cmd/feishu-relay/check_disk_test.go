package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Folders on one disk are told once, as that disk.
func TestCheckDisksOnce(t *testing.T) {
	configured(t)
	_, found := checked(t)
	if len(found["disk space"]) != 1 {
		t.Errorf("got %+v, want one", found["disk space"])
	}
}

func TestForeignFiles(t *testing.T) {
	data := configured(t)
	write(t, filepath.Join(data, "relay", "outbound.jsonl"), "")
	write(t, filepath.Join(data, "relay", "offsets", "agent_b.lock"), "")
	write(t, filepath.Join(data, "relay", scratch+"x"), "")
	if err := os.Symlink("/nowhere", filepath.Join(data, "relay", "link")); err != nil {
		t.Fatal(err)
	}
	if found := foreignFiles(t.Context(), []string{filepath.Join(data, "relay"), filepath.Join(data, "none")}, mayWrite); len(found) > 0 {
		t.Errorf("of one's own: %+v", found)
	}
	not := func(info fs.FileInfo) bool { return info.IsDir() }
	found := foreignFiles(t.Context(), []string{filepath.Join(data, "relay")}, not)
	want := "this user cannot write in " + filepath.Join(data, "relay") + ": " + filepath.Join("offsets", "agent_b.lock") + ", outbound.jsonl"
	if len(found) != 1 || found[0].Detail.en != want || !strings.HasPrefix(found[0].Mend.en, "chown -R ") {
		t.Errorf("got %+v, want %s", found, want)
	}
}

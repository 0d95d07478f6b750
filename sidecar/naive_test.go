//go:build unix

package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// beNaiveWriter appends half a line to a file and is killed.
func beNaiveWriter(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	line := naiveLine("torn")
	if _, err := f.Write(line[:len(line)/2]); err != nil {
		return err
	}
	die()
	return nil
}

func naiveLine(id string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"content":"a line that another one may be glued to"}`+"\n", id)
}

// naiveFileMustLose lets a writer die in the middle of a line, and shows that
// the line of the next one is swallowed where nobody ends the torn one.
func naiveFileMustLose(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "naive.jsonl")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), naiveEnv+"="+path)
	if err := cmd.Run(); err == nil {
		t.Fatal("the naive writer was not killed")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	for _, id := range []string{"innocent", "later"} {
		_, err := f.Write(naiveLine(id))
		must(t, err)
	}
	if got := naiveRead(t, path); got["innocent"] || !got["later"] {
		t.Errorf("naive programs have lost nothing: the reader got %v", got)
	}
}

// naiveRead is which lines a reader finds that takes a line for a message.
func naiveRead(t *testing.T, path string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	got := map[string]bool{}
	for line := range bytes.Lines(data) {
		var m struct{ ID string }
		if json.Unmarshal(line, &m) == nil {
			got[m.ID] = true
		}
	}
	return got
}

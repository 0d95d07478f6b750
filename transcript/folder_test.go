package transcript

import (
	"os"
	"path/filepath"
	"testing"
)

// A folder that is removed or renamed while stores use it is reached again by
// its path, by those that write as by those that read.
func TestFolderIsReachedAgain(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"removed and made again": func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o700))
		},
		"renamed": func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".old")) },
		"renamed and made again": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "transcripts")
			writer := open(t, dir, nil)
			reader := open(t, dir, &Options{ReadOnly: true})
			add(t, writer, true, messages(0, 3)...)
			expectTail(t, reader, 3, messages(0, 3))
			replace(t, dir)
			add(t, writer, true, message(3))
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Fatalf("the message is not in the folder that is at the path: %v", err)
			}
			add(t, writer, true, messages(0, 3)...) // they are not in the new folder
			add(t, writer, false, messages(0, 4)...)
			for _, s := range []*Store{writer, reader} {
				if got, err := s.Tail("feishu", "oc_x", 10); err != nil || len(got) != 4 {
					t.Errorf("tail: %d messages, %v, want 4", len(got), err)
				}
				if got, err := s.Chats(); err != nil || len(got) != 1 {
					t.Errorf("chats: %d, %v, want 1", len(got), err)
				}
			}
		})
	}
}

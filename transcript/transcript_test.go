package transcript

import (
	"testing"
)

func open(tb testing.TB, dir string, o *Options) *Store {
	tb.Helper()
	s, err := Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}
func onFullDisk(dir, chat string) error { return nil }

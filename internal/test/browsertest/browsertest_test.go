package browsertest

import (
	"strings"
	"testing"
)

func TestMissingBrowserIsSaid(t *testing.T) {
	t.Setenv("PATH", "")
	for _, wanted := range []string{"", "no-such-browser"} {
		if path, err := find(wanted); err == nil || !strings.Contains(err.Error(), "CHROME") {
			t.Errorf("CHROME=%q: got %q, %v, want how to mend it", wanted, path, err)
		}
	}
}

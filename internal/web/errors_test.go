package web

import (
	"os"
	"regexp"
	"testing"

	"feishu-relay/relay"
)

func TestEachCodeHasAStatus(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^\t\w+ +Code = "(\w+)"$`)
	for path, least := range map[string]int{"../../relay/error.go": 9} {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		codes := declared.FindAllSubmatch(source, -1)
		if len(codes) < least {
			t.Errorf("%s: %d codes found, want at least %d", path, len(codes), least)
		}
		for _, code := range codes {
			if statuses[relay.Code(code[1])] == 0 {
				t.Errorf("%s: code %s has no status", path, code[1])
			}
		}
	}
}

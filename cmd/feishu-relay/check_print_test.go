package main

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
)

func TestCheckGolden(t *testing.T) {
	const want = "\x1b[1mFiles\x1b[0m\n" +
		"\x1b[32m✓\x1b[0m relay folder: locks work\n" +
		"\x1b[33m!\x1b[0m disk space: 150 MiB are left\n    df -h /data\n\n" +
		"\x1b[1mFeishu\x1b[0m\n" +
		"\x1b[31m✗\x1b[0m Feishu: code 10014\n    copy the \"secret\"\n\n1 to fix, 1 to know of\n"
	var b bytes.Buffer
	out := newFindings(&b, false, words.Words{})
	out.paint.on = true
	out.add(selftest.Finding{Area: "Files", Name: "relay folder", Status: selftest.OK, Detail: "locks work"},
		selftest.Finding{Area: "Files", Name: "disk space", Status: selftest.Warn, Detail: "150 MiB are left", Mend: "df -h /data"})
	out.add()
	out.add(selftest.Finding{Area: "Feishu", Name: "Feishu", Status: selftest.Fail, Detail: "code 10014", Mend: "copy the \"secret\""})
	if err := out.end(); !errors.Is(err, errFailed) {
		t.Errorf("got %v, want that something fails", err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheckNothingFound(t *testing.T) {
	for asJSON, want := range map[bool]string{false: "\nno problems found\n", true: "[]\n"} {
		var b bytes.Buffer
		if err := newFindings(&b, asJSON, words.Words{}).end(); err != nil || b.String() != want {
			t.Errorf("got %q, %v, want %q", b.String(), err, want)
		}
	}
}

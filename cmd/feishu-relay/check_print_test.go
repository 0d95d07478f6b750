package main

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckGolden(t *testing.T) {
	for _, tt := range []struct {
		name             string
		terminal, asJSON bool
		want             string
	}{
		{"terminal", true, false, "\x1b[1mFiles\x1b[0m\n" +
			"\x1b[32m✓\x1b[0m relay folder: locks work\n" +
			"\x1b[33m!\x1b[0m disk space: 150 MiB are left\n    df -h /data\n\n" +
			"\x1b[1mFeishu\x1b[0m\n" +
			"\x1b[31m✗\x1b[0m Feishu: code 10014\n    copy the \"secret\"\n\n1 to fix, 1 to know of\n"},
		{"JSON", false, true, `[
  {
    "name": "relay folder",
    "status": "ok",
    "detail": "locks work",
    "mend": ""
  },
  {
    "name": "disk space",
    "status": "warn",
    "detail": "150 MiB are left",
    "mend": "df -h /data"
  },
  {
    "name": "Feishu",
    "status": "fail",
    "detail": "code 10014",
    "mend": "copy the \"secret\""
  }
]
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			out := newFindings(&b, tt.asJSON, false)
			out.paint.on = tt.terminal
			out.add("Files", finding{"relay folder", statusOK, alike("locks work"), text{}},
				finding{"disk space", statusWarn, alike("150 MiB are left"), alike("df -h /data")})
			out.add("Empty")
			out.add("Feishu", finding{"Feishu", statusFail, alike("code 10014"), alike("copy the \"secret\"")})
			if err := out.end(); !errors.Is(err, errFailed) {
				t.Errorf("got %v, want that something fails", err)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckNothingFound(t *testing.T) {
	for asJSON, want := range map[bool]string{false: "\nno problems found\n", true: "[]\n"} {
		var b bytes.Buffer
		if err := newFindings(&b, asJSON, false).end(); err != nil || b.String() != want {
			t.Errorf("got %q, %v, want %q", b.String(), err, want)
		}
	}
}

// Whoever waits at a terminal is told for what, and only there.
func TestCheckShowsWhatItWaitsFor(t *testing.T) {
	for _, tt := range []struct {
		name             string
		terminal, asJSON bool
		took             time.Duration
		want             string
	}{
		{"at once", true, false, patience / 2, ""},
		{"slow", true, false, time.Second, "\x1b[2m… judge\x1b[0m\r\x1b[K"},
		{"slow, not on a terminal", false, false, time.Second, ""},
		{"slow, JSON", true, true, time.Second, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				out := newFindings(&b, tt.asJSON, false)
				out.paint.on = tt.terminal
				result := make(chan []finding, 1)
				time.AfterFunc(tt.took, func() { result <- well("answered", "") })
				if found := out.await("judge", result); len(found) != 1 || b.String() != tt.want {
					t.Errorf("got %v and %q, want %q", found, b.String(), tt.want)
				}
			})
		})
	}
}

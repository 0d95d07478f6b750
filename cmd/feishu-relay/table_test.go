package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := writeTable(&b, "WHO|STATE|WHAT", [][]string{{"小明", "idle", "写"}, {"agent_b", "", "x"}, {"e\u0301", "ｗｉｄｅ", ""}}); err != nil {
		t.Fatal(err)
	}
	want := "WHO      STATE     WHAT\n" +
		"小明     idle      写\n" +
		"agent_b            x\n" +
		"e\u0301        ｗｉｄｅ\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

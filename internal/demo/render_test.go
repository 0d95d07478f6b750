package demo

import (
	"strings"
	"testing"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

func TestLinesStandInColumns(t *testing.T) {
	var out strings.Builder
	p := &printer{w: &out}
	p.said(&message{ts: 1, group: "Dev", name: "Planner", text: "@Coder \x1b[31m看\u202e\nline two"})
	p.became("Reviewer", &fate{decided: true, depth: 2, tier: "judge", reason: "judge_no", stopped: relay.JudgeNo})
	p.became("Coder", &fate{decided: true, depth: 1, tier: "threshold", reason: "depth 1 <= threshold 1", delivered: 1, received: 1})
	p.became("Coder", &fate{stopped: relay.NotAMember})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if got, want := strings.TrimLeft(lines[0], "0123456789:"), "  Planner     → Dev      @Coder [31m看"; got != want {
		t.Errorf("message: got %q, want %q", got, want)
	}
	if got, want := runes.Columns(lines[1]), runes.Columns(lines[0])-runes.Columns("@Coder [31m看")+len("line two"); got != want {
		t.Errorf("second line ends at cell %d, want %d", got, want)
	}
	for i, want := range []string{
		"          ↳ Reviewer    depth 2  ✗ judge      judge_no                stopped",
		"          ↳ Coder       depth 1  ✓ threshold  depth 1 <= threshold 1  delivered",
		"          ↳ Coder                ✗            not_a_member            stopped",
	} {
		if got := lines[2+i]; got != want {
			t.Errorf("fate: got %q, want %q", got, want)
		}
	}
}

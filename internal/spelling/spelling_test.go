package spelling_test

import (
	"testing"

	"feishu-relay/internal/spelling"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "AB", 2}, {"AB", "", 2}, {"AB", "AB", 0}, {"AB", "BA", 1}, {"ABC", "AC", 1}, {"AC", "ABC", 1},
		{"ABC", "AXC", 1}, {"GATEWAY_ADDRESS", "GATEWAY_ADDR", 3}, {"CA", "ABC", 3},
		{"暂亭", "暂停", 1}, {"停暂", "暂停", 1}, {"状态", "暂停", 2}, {"é", "e", 1},
	} {
		if got := spelling.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if !spelling.Near(tt.a, tt.b, tt.want) || tt.want > 0 && spelling.Near(tt.a, tt.b, tt.want-1) {
			t.Errorf("%q, %q: not near by %d edits, or by fewer", tt.a, tt.b, tt.want)
		}
	}
}

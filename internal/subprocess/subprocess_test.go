package subprocess

import "testing"

func TestLastLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\n", 10, "a\nb\n"},
		{"first\nsecond\nthird\n", 10, "third\n"},
		{"好好好", 4, "好"},
	} {
		if got := lastLines(tt.text, tt.n); got != tt.want {
			t.Errorf("lastLines(%q, %d): got %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

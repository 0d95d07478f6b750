package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestDemoExplainsItsFlags(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backend string // the environment's
		args    []string
		status  int
		says    string
	}{
		{"help", "", []string{"--help"}, 0, "--chat"},
		{"help on acts", "", []string{"--help"}, 0, "--act=[1|2|all]"},
		{"no such backend", "", []string{"--backend", "kafka"}, 2, `want file or redis, got "kafka"`},
		{"no such backend in the environment", "nats", nil, 2, `want file or redis, got "nats"`},
		{"no such act", "", []string{"--act", "4"}, 2, "Invalid value `4'"},
		{"no such language", "", []string{"--lang", "fr"}, 2, "Invalid value `fr'"},
		{"an address without a page", "", []string{"--listen", "127.0.0.1:8787"}, 2, "want --view or --chat"},
		{"an address without a port", "", []string{"--view", "--listen", "127.0.0.1:0"}, 2, "with a port that is not 0"},
		{"an address of other hosts without a token", "", []string{"--view", "--listen", "0.0.0.0:8787"}, 2, "set API_TOKEN"},
		{"too much", "", []string{"now"}, 2, `unexpected argument "now"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clearEnvironment(t, nil)
			t.Setenv("BACKEND", tt.backend)
			var out bytes.Buffer
			if got := run(t.Context(), append([]string{"demo"}, tt.args...), &out, &out); got != tt.status {
				t.Errorf("status: got %d, want %d", got, tt.status)
			}
			if got := out.String(); !strings.Contains(got, tt.says) {
				t.Errorf("output: got %q, want %q in it", got, tt.says)
			}
		})
	}
}

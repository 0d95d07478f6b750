package jsonl

import "testing"

func fillDisk(t *testing.T, _ *Log) { t.Fatal("not on this system") }

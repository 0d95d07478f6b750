package gateway

import (
	"errors"
	"net"
	"testing"
)

// A sidecar whose own way to Feishu leads to its gateway says so, and does not
// call itself for ever.
func TestLoopIsNoticed(t *testing.T) {
	ours, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	dial := notToUs(ours.Addr())
	if _, err := dial(t.Context(), "tcp", ours.Addr().String()); !errors.Is(err, errLoop) {
		t.Errorf("got %v for ourselves, want errLoop", err)
	}
	conn, err := dial(t.Context(), "tcp", theirs.Addr().String())
	if err != nil {
		t.Fatalf("another listener: %v", err)
	}
	_ = conn.Close()
}

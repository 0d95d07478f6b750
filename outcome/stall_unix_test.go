//go:build unix

package outcome

import (
	"context"
	"testing"

	"feishu-relay/internal/redistest"
)

// Redis stands still (SIGSTOP): connections are taken by the kernel and nobody
// answers. Writing ends by itself, reading too, and both go on when it does.
func TestStalledRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := openRedis(t, srv.URL())
	must(t, s.Append(t.Context(), lines("a", 1, 3)))
	e := follow(t, s)
	e.want(lines("a", 1, 3))
	must(t, srv.Pause())
	if err := s.Append(context.Background(), lines("a", 4, 1)); err == nil {
		t.Error("Append: no error")
	}
	stopped := follow(t, s) // ends while Redis stands still
	stopped.stop()
	must(t, srv.Resume())
	must(t, s.Append(t.Context(), lines("a", 5, 1)))
	e.until(lines("a", 5, 1)[0])
}

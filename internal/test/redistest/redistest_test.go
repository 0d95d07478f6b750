package redistest_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"feishu-relay/internal/test/redistest"

	"github.com/redis/go-redis/v9"
)

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestKillForgetsAndRestartKeepsTheAddress(t *testing.T) {
	srv := redistest.Start(t)
	addr := srv.Addr()
	if err := client(t, srv.URL()).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	if err := client(t, srv.URL()).Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	if got, want := srv.Addr(), addr; got != want {
		t.Errorf("got address %s, want %s", got, want)
	}
	if err := client(t, srv.URL()).Get(t.Context(), "k").Err(); err != redis.Nil {
		t.Errorf("got %v for the old key, want %v", err, redis.Nil)
	}
}

func TestUnixSocket(t *testing.T) {
	srv := redistest.StartUnix(t)
	if err := client(t, srv.URL()).Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsReachTheServer(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "pw")
	if err := client(t, srv.URL()).Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Fatalf("got %v, want NOAUTH", err)
	}
}

func TestSentinelKnowsTheMaster(t *testing.T) {
	master := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, master, "main")
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	defer c.Close()
	got, err := c.GetMasterAddrByName(context.Background(), "main").Result()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(got, ":"), master.Addr(); got != want {
		t.Errorf("got master %s, want %s", got, want)
	}
}

func TestBadOptionIsReportedWithTheServersWords(t *testing.T) {
	_, err := redistest.Launch(t.TempDir(), "--no-such-option", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Fatalf("got %v, want the server's message", err)
	}
}

func TestMissingProgramIsSaid(t *testing.T) {
	t.Setenv("PATH", "")
	_, err := redistest.Launch(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), exec.ErrNotFound.Error()) || !strings.Contains(err.Error(), "install") {
		t.Fatalf("got %v, want how to mend it", err)
	}
}

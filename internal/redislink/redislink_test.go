package redislink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestExplainKeepsWhatWasThere(t *testing.T) {
	w := Words{Closed: "closed"}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, redis.ErrClosed, &Fault{Says: "silent"}} {
		got := Explain(err, w)
		if !errors.Is(got, err) {
			t.Errorf("%v is no more in %v", err, got)
		}
		if again := Explain(got, w); again.Error() != got.Error() {
			t.Errorf("got %q when explained again, want %q", again, got)
		}
	}
	if Explain(nil, w) != nil {
		t.Error("no error became one")
	}
}

func TestExplainUsesTheCallersWords(t *testing.T) {
	w := Words{Rights: "no rights", WrongType: "wrong type", Closed: "closed", TLS: true}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("NOPERM User nano has no permissions to run the 'get' command"), "no rights"},
		{errors.New("ERR ACL failure in script: hunter2"), "no rights"},
		{errors.New("WRONGTYPE Operation against a key holding the wrong kind of value"), "wrong type"},
		{redis.ErrClosed, "closed"},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), "redis://"},
		{errors.New("NOAUTH Authentication required."), "REDIS_URL"},
	} {
		if got := Explain(tt.err, w).Error(); !strings.Contains(got, tt.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%v: got %q, want %q in it", tt.err, got, tt.want)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	for _, text := range []string{"1795211093522-3", "0-0", "18446744073709551615-0", "5", "-", "+5-1", "05-1", "1-2-3", "1_alice.msg.json"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := ParseEntry(text); ok && id.String() != text {
			t.Errorf("%q was taken for %s", text, id)
		}
	})
}

package filerelay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/relay/filerelay"
)

// A write that the disk cuts short is refused. What stays of it does not harm the next line.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	a := childtest.Start(t, "limited", dir, "a")
	for _, want := range []string{"short", "refused", "accepted"} {
		if got := a.Line(); got != want {
			t.Fatalf("the limited process said %q, want %q", got, want)
		}
	}
	h := listenFor(t, queue(t, dir, "b", filerelay.Options{}), messageID)
	if got := h.wait(3); !slices.Equal(got, []string{"om_a_1", "fragment", "om_a_2"}) {
		t.Errorf("got %q", got)
	}
}

// limited is the part of a process that may write 2,000 bytes to a file.
func limited(args []string) error {
	q, err := open(args)
	if err = errors.Join(err, childtest.LimitFiles(2000)); err != nil {
		return err
	}
	first, second := sized("a", 1, 1500), sized("a", 2, 1000)
	if _, err := q.Publish(context.Background(), [][]byte{first}, ""); err != nil {
		return err
	}
	if _, err := q.Publish(context.Background(), [][]byte{second}, ""); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("publish beyond the limit: %w", err)
	}
	fmt.Println("short")
	if _, err := q.Publish(context.Background(), [][]byte{second}, ""); err == nil {
		return errors.New("publish beyond the limit was accepted")
	}
	fmt.Println("refused")
	if err := childtest.LimitFiles(0); err != nil {
		return err
	}
	if _, err := q.Publish(context.Background(), [][]byte{second}, ""); err != nil {
		return err
	}
	fmt.Println("accepted")
	return nil
}

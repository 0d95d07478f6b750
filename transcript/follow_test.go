package transcript

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// following runs Follow and hands out what it yields, entry by entry.
type following struct {
	t       *testing.T
	entries chan Entry
	end     chan error
	stop    context.CancelFunc
}

func follow(t *testing.T, s *Store, n int) *following {
	ctx, stop := context.WithCancel(t.Context())
	f := &following{t: t, entries: make(chan Entry), end: make(chan error, 1), stop: stop}
	go func() {
		defer close(f.end)
		for e, err := range s.Follow(ctx, "feishu", "oc_x", n) {
			if err != nil {
				f.end <- err
				return
			}
			select {
			case f.entries <- e:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { stop(); <-f.end })
	return f
}

func (f *following) expect(want ...Entry) {
	f.t.Helper()
	for _, w := range want {
		select {
		case got := <-f.entries:
			if got != w {
				f.t.Fatalf("follow yields %s, want %s", got.MessageID, w.MessageID)
			}
		case err := <-f.end:
			f.t.Fatalf("follow ended: %v", err)
		}
	}
}

func TestFollow(t *testing.T) {
	t.Run("the last ones, then new ones", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		add(t, s, true, messages(0, 10)...)
		f := follow(t, s, 3)
		f.expect(messages(7, 10)...)
		add(t, s, true, message(10))
		f.expect(message(10))
		add(t, s, false, message(10))
		add(t, s, true, message(11))
		f.expect(message(11))
		f.stop()
		if err, open := <-f.end; open {
			t.Errorf("ended with %v, want no error", err)
		}
	})
	t.Run("a chat that does not exist yet", func(t *testing.T) {
		dir := t.TempDir()
		f := follow(t, open(t, dir, &Options{ReadOnly: true}), 3)
		add(t, open(t, dir, nil), true, messages(0, 3)...)
		f.expect(messages(0, 3)...)
	})
	t.Run("rotation", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, &Options{RotateSize: 500, Keep: 1000})
		add(t, s, true, messages(0, 10)...)
		f := follow(t, open(t, dir, &Options{ReadOnly: true}), 8)
		f.expect(messages(2, 10)...)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, e := range messages(10, 200) {
				if _, err := s.Append("feishu", "oc_x", e); err != nil {
					t.Error(err)
				}
			}
		}()
		t.Cleanup(func() { <-done }) // before the store is closed
		f.expect(messages(10, 200)...)
	})
	t.Run("truncation, replacement and removal", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, file)
		s := open(t, dir, nil)
		add(t, s, true, messages(0, 5)...)
		f := follow(t, s, 1)
		f.expect(message(4))
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		writeFile(t, path, "")
		add(t, s, true, message(5))
		f.expect(message(5))

		writeFile(t, path, string(whole)) // what comes back is not new
		add(t, s, true, message(6))
		f.expect(message(6))

		writeFile(t, path+"~", string(whole[:len(whole)/2]))
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
		add(t, s, true, message(7))
		f.expect(message(7))

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		add(t, s, true, message(8))
		f.expect(message(8))
	})
	t.Run("a line in two pieces", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, file)
		s := open(t, dir, nil)
		add(t, s, true, message(0))
		f := follow(t, s, 1)
		f.expect(message(0))
		line, err := encode(message(1))
		if err != nil {
			t.Fatal(err)
		}
		addFile(t, path, string(line[:20]))
		addFile(t, path, string(line[20:]))
		f.expect(message(1))
	})
	t.Run("breaking off", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		add(t, s, true, messages(0, 5)...)
		for range s.Follow(t.Context(), "feishu", "oc_x", 5) {
			break
		}
	})
	t.Run("closing the store", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		f := follow(t, s, 1)
		add(t, s, true, message(0))
		f.expect(message(0))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-f.end; !errors.Is(err, ErrClosed) {
			t.Errorf("ended with %v, want ErrClosed", err)
		}
	})
}

package sidecar_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The commands that change or look at what surrounds the sidecars.

func (s *story) judgeSays(_ context.Context, args []string) error {
	s.judge.set(args[0])
	return nil
}

func (s *story) judged(_ context.Context, args []string) error { return s.check(s.judge.seen(), args) }

func (s *story) webhook(_ context.Context, args []string) error {
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = fmt.Sscan(args[1], &a.hooked)
	return err
}

// edit replaces the groups file as editors do.
func (s *story) edit(_ context.Context, args []string) error {
	text, err := s.value(args[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.groupsFile()+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.groupsFile()+".new", s.groupsFile())
}

func (s *story) chatter(_ context.Context, args []string) error {
	var begin []func()
	for _, name := range args[2:] {
		a, err := s.actor(name)
		if err != nil {
			return err
		}
		answer := s.answers(a, args[0], strings.TrimPrefix(args[1], "-"))
		a.mu.Lock()
		a.answer = answer
		a.mu.Unlock()
		begin = append(begin, answer)
	}
	for _, answer := range begin { // to the person, whom each has heard from Feishu
		answer()
	}
	return nil
}

func (s *story) saidBetween(_ context.Context, args []string) error {
	var low, high int
	if _, err := fmt.Sscan(args[0]+" "+args[1], &low, &high); err != nil {
		return err
	}
	if n := s.talk.count(); n < low || n > high {
		return fmt.Errorf("got %d messages, want %d to %d", n, low, high)
	}
	return nil
}

// snapshot waits until all outcomes are written, which no message waits for.
func (s *story) snapshot(ctx context.Context, _ []string) (err error) {
	for _, a := range s.running() {
		none := fmt.Sprintf("text~feishu_relay_outbox_pending_messages{agent=%q,queue=\"side\"} 0\n", a.cfg.Agent)
		written := []string{"get", string(a.cfg.Agent), "/metrics", "200", none}
		if err := s.until(ctx, written); err != nil {
			return err
		}
	}
	s.before, err = s.written()
	return err
}

func (s *story) unchanged(context.Context, []string) error {
	after, err := s.written()
	if err != nil {
		return err
	}
	for path, text := range after {
		if old, ok := s.before[path]; !ok || old != text {
			return fmt.Errorf("%s was written: %q", path, strings.TrimPrefix(text, old))
		}
	}
	return nil
}

// written is what the promises are about: queue, transcripts, outboxes, what was
// handled and delivered.
func (s *story) written() (map[string]string, error) {
	lines, err := s.queue.lines()
	if err != nil {
		return nil, err
	}
	out := map[string]string{"the queue": strings.Join(lines, "\n")}
	err = filepath.WalkDir(s.home, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".jsonl" || strings.Contains(path, "relay/feishu/") {
			return err // relay/feishu has who was met before, and is saved later
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	return out, err
}

func (s *story) folder(_ context.Context, args []string) error {
	paths, err := filepath.Glob(filepath.Join(s.home, args[0]))
	if err != nil {
		return err
	}
	got := []string{}
	for _, path := range paths {
		got = append(got, filepath.Base(path))
	}
	if !slices.Equal(got, args[1:]) {
		return fmt.Errorf("got %q, want %q", got, args[1:])
	}
	return nil
}

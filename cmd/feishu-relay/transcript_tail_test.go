package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"feishu-relay/transcript"
)

// following runs tail -f and returns its lines, and what ends it and gives
// its exit status.
func following(t *testing.T, args ...string) (lines *bufio.Scanner, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"transcript", "tail", "-f"}, args...), write, io.Discard)
		_ = write.Close()
	}()
	end = func() int {
		cancel()
		return <-code
	}
	t.Cleanup(func() {
		cancel()
		_ = read.Close()
	})
	return bufio.NewScanner(read), end
}

func wantLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("the output ended (%v), want %q", lines.Err(), want)
	}
	if got := lines.Text(); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestTranscriptTailFollows(t *testing.T) {
	clearEnvironment(t, nil)
	_, store := record(t, map[string][]transcript.Entry{"feishu/oc_x": talk()})
	lines, end := following(t, "-n", "1", "oc_x")
	wantLine(t, lines, "--:--:--  agent_b (bot)  [image]")
	add(t, store, "feishu/oc_x", transcript.Entry{Role: "user", Sender: "李四", Content: "new", MessageID: "om_5"})
	wantLine(t, lines, "--:--:--  李四  new")
	if code := end(); code != 0 {
		t.Errorf("interrupted: status %d, want 0", code)
	}
}

func TestTranscriptTailFollowsAllChats(t *testing.T) {
	clearEnvironment(t, nil)
	say := func(text, id string, ts int64) transcript.Entry {
		return transcript.Entry{Role: "user", Sender: "u", Content: text, MessageID: id, TS: ts}
	}
	day := at("2026-11-20 10:00:00")
	_, store := record(t, map[string][]transcript.Entry{
		"feishu/oc_1": {say("skipped", "a0", day), say("first\nsecond", "a1", day+1000)},
		"slack/c":     {say("third", "b1", day+2000)},
	})
	lines, end := following(t, "-n", "2")
	wantLine(t, lines, "── Fri 2026-11-20 ──")
	wantLine(t, lines, "oc_1  10:00:01  u  first")
	wantLine(t, lines, "oc_1            second")
	wantLine(t, lines, "slack/c  10:00:02  u  third")
	add(t, store, "slack/c", say("fourth", "b2", day+3000))
	wantLine(t, lines, "slack/c  10:00:03  u  fourth")
	add(t, store, "feishu/oc_1", say("fifth", "a2", day+4000))
	wantLine(t, lines, "oc_1  10:00:04  u  fifth")
	add(t, store, "feishu/oc_2", say("a new chat", "c1", day+5000))
	wantLine(t, lines, "oc_2  10:00:05  u  a new chat")
	if code := end(); code != 0 {
		t.Errorf("interrupted: status %d, want 0", code)
	}

	code, stdout, _ := program(t, "transcript", "tail", "--json", "-n", "1")
	if want := `{"channel":"feishu","chat_id":"oc_2","role":"user",`; code != 0 || !strings.HasPrefix(stdout, want) || strings.Count(stdout, "\n") != 1 {
		t.Errorf("status %d, got %q, want one line with %q", code, stdout, want)
	}
}

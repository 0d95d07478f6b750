package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// program runs a command and returns what it wrote.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

// records are the transcripts that a stand-in for a sidecar serves, by channel/chat_id.
type records struct {
	mu   sync.Mutex
	all  map[string][]httpapi.ShownEntry
	adds relay.Millis // how often something was added
}

func serveRecords(t *testing.T) *records {
	t.Helper()
	clearEnvironment(t, nil)
	r := &records{all: map[string][]httpapi.ShownEntry{}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /v1/transcripts", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var list httpapi.TranscriptList
		for name := range r.all {
			channel, id, _ := strings.Cut(name, "/")
			list.Transcripts = append(list.Transcripts, httpapi.Transcript{Channel: channel, ChatID: id, Modified: r.adds})
		}
		web.WriteJSON(w, http.StatusOK, list)
	})
	routes.HandleFunc("GET /v1/transcripts/{channel}/{chat}", func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		web.WriteJSON(w, http.StatusOK, httpapi.TranscriptPage{Entries: r.all[q.PathValue("channel")+"/"+q.PathValue("chat")]})
	})
	t.Setenv("LISTEN_ADDR", serveHTTP(t, routes))
	return r
}

// add adds a message at a second.
func (r *records) add(name, text string, second int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adds++
	r.all[name] = append(r.all[name], httpapi.ShownEntry{Entry: transcript.Entry{Role: "user", Sender: "u", Content: text,
		TS: 1000 * second}})
}

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

// tail -f goes on with what is said, also in chats that are new, and ends well when it is interrupted.
func TestTranscriptTailFollows(t *testing.T) {
	r := serveRecords(t)
	t.Setenv("NO_COLOR", "1")
	r.add("feishu/oc_1", "skipped", 10)
	r.add("feishu/oc_1", "first\nsecond", 11)
	r.add("slack/c", "third", 12)
	lines, end := following(t, "-n", "2")
	wants := func(chat string, text string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), chat) || !strings.HasSuffix(lines.Text(), text) {
			t.Fatalf("got %q (%v), want %s and %s", lines.Text(), lines.Err(), chat, text)
		}
	}
	wants("──", "──")
	wants("oc_1  ", "  u  first")
	wants("oc_1  ", "second")
	wants("slack/c  ", "  u  third")
	r.add("slack/c", "fourth", 13)
	wants("slack/c  ", "  u  fourth")
	r.add("feishu/oc_2", "a new chat", 14)
	wants("oc_2  ", "  u  a new chat")
	if code := end(); code != 0 {
		t.Errorf("interrupted: status %d, want 0", code)
	}
}

func TestTranscriptColours(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out, paint: &paint{on: true}}
	for _, e := range []transcript.Entry{{Role: "user", Sender: "Tom", Content: "hi"},
		{Role: "assistant", Sender: "agent_a", SenderName: "BotA", Content: "yes", ThreadID: "omt_0123456789"}} {
		if err := p.print(httpapi.Transcript{Channel: "feishu", ChatID: "oc_x"}, httpapi.ShownEntry{Entry: e}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"\x1b[1mTom\x1b[0m", "\x1b[" + p.paint.bot("agent_a") + "mBotA (agent_a)\x1b[0m",
		"\x1b[2m--:--:--\x1b[0m", "\x1b[2m↳456789\x1b[0m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}

// A pipe that nobody reads any more, as with head, is no error.
func TestTranscriptClosedPipe(t *testing.T) {
	serveRecords(t).add("feishu/oc_x", "text", 1)
	for _, args := range []string{"show oc_x", "tail", "tail -f oc_x", "tail -f", "list", "list --json", "--help"} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Close(); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"transcript"}, strings.Fields(args)...), write, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: status %d, stderr %q", args, code, stderr.String())
		}
		_ = write.Close()
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

func at(clock string) int64 {
	when, err := time.ParseInLocation(time.DateTime, clock, time.Local)
	if err != nil {
		panic(err) // a mistake in a test
	}
	return when.UnixMilli()
}

// record writes the entries of chats, named channel/chat_id, to a new folder, which a stand-in for a sidecar serves.
func record(t *testing.T, chats map[string][]transcript.Entry) (dir string, store *transcript.Store) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "transcripts")
	store, err := transcript.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	for name, entries := range chats {
		add(t, store, name, entries...)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /v1/transcripts", func(w http.ResponseWriter, r *http.Request) {
		chats, err := store.Chats()
		var all httpapi.TranscriptList
		for _, c := range chats {
			all.Transcripts = append(all.Transcripts, httpapi.Transcript{Channel: c.Channel, ChatID: c.ChatID, Bytes: c.Size,
				Modified: relay.MillisOf(c.Modified), Last: c.Last})
		}
		answer(t, w, all, err)
	})
	routes.HandleFunc("GET /v1/transcripts/{channel}/{chat}", func(w http.ResponseWriter, r *http.Request) {
		entries, err := store.Tail(r.PathValue("channel"), r.PathValue("chat"), 1000)
		var page httpapi.TranscriptPage
		for _, e := range entries {
			page.Entries = append(page.Entries, httpapi.ShownEntry{Entry: e})
		}
		answer(t, w, page, err)
	})
	t.Setenv("LISTEN_ADDR", serveHTTP(t, routes))
	return dir, store
}

func answer(t *testing.T, w http.ResponseWriter, v any, err error) {
	if err != nil {
		t.Error(err)
	}
	web.WriteJSON(w, http.StatusOK, v)
}

func add(t *testing.T, store *transcript.Store, name string, entries ...transcript.Entry) {
	t.Helper()
	channel, id, _ := strings.Cut(name, "/")
	for _, e := range entries {
		if _, err := store.Append(channel, id, e); err != nil {
			t.Fatal(err)
		}
	}
}

func talk() []transcript.Entry {
	return []transcript.Entry{
		{Role: "user", Sender: "张三", Content: "大家好", MessageID: "om_1", TS: at("2026-11-20 21:44:53")},
		{Role: "assistant", Sender: "agent_a", SenderName: "BotA", Content: "one\n\ttwo\r\n21:44:54  张三  forged\n", MessageID: "om_2", TS: at("2026-11-20 21:44:54")},
		{Role: "assistant", Sender: "agent_b", Content: "\x1b[2Jgone\u202e", MessageID: "om_3", TS: at("2026-11-21 00:00:01"), ThreadID: "omt_0123456789"},
		{Role: "assistant", Sender: "agent_b", SenderName: "agent_b", MsgType: "image", MessageID: "om_4"},
	}
}

func TestTranscriptShow(t *testing.T) {
	clearEnvironment(t, nil)
	record(t, map[string][]transcript.Entry{"feishu/oc_x": talk()})
	want := "── Fri 2026-11-20 ──\n" +
		"21:44:53  张三  大家好\n" +
		"21:44:54  BotA (agent_a)  one\n" +
		"              two\n" +
		"          21:44:54  张三  forged\n" +
		"── Sat 2026-11-21 ──\n" +
		"00:00:01  agent_b (bot)  ↳456789 ␛[2Jgone\\u202e\n" +
		"--:--:--  agent_b (bot)  [image]\n"
	code, stdout, stderr := program(t, "transcript", "show", "oc_x")
	if diff := cmp.Diff(want, stdout); diff != "" || code != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout (-want +got):\n%s", code, stderr, diff)
	}
	t.Run("last ones", func(t *testing.T) {
		_, stdout, _ := program(t, "transcript", "show", "-n", "1", "oc_x")
		if want := "--:--:--  agent_b (bot)  [image]\n"; stdout != want {
			t.Errorf("got %q, want %q", stdout, want)
		}
	})
	t.Run("raw", func(t *testing.T) {
		_, stdout, _ := program(t, "transcript", "show", "--json", "oc_x")
		if strings.ContainsAny(strings.ReplaceAll(stdout, "\n", ""), "\x1b\u202e\u009b") {
			t.Errorf("a terminal would obey %q", stdout)
		}
		var got []transcript.Entry
		for dec := json.NewDecoder(strings.NewReader(stdout)); dec.More(); {
			var e transcript.Entry
			if err := dec.Decode(&e); err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		if diff := cmp.Diff(talk(), got); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
	})
}

// Names and ids are as hostile as texts.
func TestTranscriptHostileNames(t *testing.T) {
	clearEnvironment(t, nil)
	record(t, map[string][]transcript.Entry{"feishu/oc_\x1b[2J\nx": {
		{Role: "assistant", Sender: "a\x1b]0;t\a", SenderName: "\u202eB\n21:44:53  张三", Content: "x", ThreadID: "\x1b[31m", MsgType: "\x1b"},
		{Role: "user", Sender: "\x9bP", Content: "\x1b"},
		{Role: "user", MsgType: "\x1b[0m"},
	}})
	for _, args := range [][]string{
		{"list"}, {"list", "--json"}, {"show", "oc_"}, {"show", "--json", "oc_"}, {"tail"}, {"tail", "--json"}, {"show", "\x1bno"},
	} {
		_, stdout, stderr := program(t, append([]string{"transcript"}, args...)...)
		if strings.ContainsFunc(strings.ReplaceAll(stdout+stderr, "\n", ""), obeyed) {
			t.Errorf("%q: a terminal would obey %q", args, stdout+stderr)
		}
		if n := strings.Count(stdout, "\n21:44:53"); n > 0 {
			t.Errorf("%q: a name passes for a message: %q", args, stdout)
		}
	}
}

func TestTranscriptColours(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out, paint: &paint{on: true}}
	for _, e := range talk() {
		if err := p.print(httpapi.Transcript{Channel: "feishu", ChatID: "oc_x"}, httpapi.ShownEntry{Entry: e}); err != nil {
			t.Fatal(err)
		}
	}
	for what, want := range map[string]string{
		"the person":      "\x1b[1m张三\x1b[0m",
		"one bot":         "\x1b[" + (&paint{}).bot("agent_a") + "mBotA (agent_a)\x1b[0m",
		"another bot":     "magent_b (bot)\x1b[0m",
		"the text's own":  "␛[2Jgone",
		"the time":        "\x1b[2m21:44:53\x1b[0m",
		"the topic":       "\x1b[2m↳456789\x1b[0m",
		"a day's heading": "\x1b[2m── Fri 2026-11-20 ──\x1b[0m\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in %q", what, want, out.String())
		}
	}
}

func TestTranscriptList(t *testing.T) {
	clearEnvironment(t, nil)
	dir, _ := record(t, map[string][]transcript.Entry{
		"feishu/oc_old": {{Role: "user", Content: "a", TS: at("2026-11-19 08:00:00")}},
		"other/oc_new":  {{Role: "user", Content: strings.Repeat("x", 2000), TS: at("2026-11-20 09:30:00")}},
	})
	old, err := os.Stat(filepath.Join(dir, "feishu_oc_old.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := program(t, "transcript", "list")
	var got [][]string
	for line := range strings.Lines(stdout) {
		got = append(got, strings.Fields(line))
	}
	want := [][]string{
		{"CHANNEL", "CHAT", "SIZE", "LAST", "MESSAGE"},
		{"other", "oc_new", "2.0", "KiB", "2026-11-20", "09:30:00"},
		{"feishu", "oc_old", strconv.FormatInt(old.Size(), 10), "B", "2026-11-19", "08:00:00"},
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 0 {
		t.Errorf("status %d (-want +got):\n%s", code, diff)
	}
	_, stdout, _ = program(t, "transcript", "list", "--json")
	wantJSON := fmt.Sprintf(`{"channel":"feishu","chat_id":"oc_old","size":%d,"last_ts":%d}`+"\n", old.Size(), at("2026-11-19 08:00:00"))
	if !strings.HasSuffix(stdout, wantJSON) || strings.Count(stdout, "\n") != 2 {
		t.Errorf("got %q, want it to end in %q", stdout, wantJSON)
	}
}

func TestTranscriptChat(t *testing.T) {
	clearEnvironment(t, nil)
	one := func(text string) []transcript.Entry { return []transcript.Entry{{Role: "user", Content: text}} }
	record(t, map[string][]transcript.Entry{
		"feishu/oc_abc": one("abc"), "feishu/oc_abd": one("abd"), "feishu/oc_x": one("x"), "feishu/oc_xy": one("xy"),
		"slack/oc_x": one("slack x"), "slack/c1": one("c1"),
	})
	tests := []struct{ name, chat, text, complaint string }{
		{"exact", "oc_abc", "abc", ""},
		{"exact, though others begin so", "oc_x", "x", ""},
		{"with channel", "slack/oc_x", "slack x", ""},
		{"other channel, by id", "c1", "c1", ""},
		{"prefix", "oc_xy", "xy", ""},
		{"prefix with channel", "slack/c", "c1", ""},
		{"ambiguous", "oc_ab", "", "names several groups"},
		{"unknown", "oc_no", "", "known: "},
		{"of no known chat", "", "", "which CHAT?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := program(t, "transcript", "show", tt.chat)
			if tt.complaint != "" {
				if code == 0 || stdout != "" || !strings.Contains(stderr, tt.complaint) {
					t.Errorf("status %d, stdout %q, stderr %q, want %q in it", code, stdout, stderr, tt.complaint)
				}
				if tt.name == "ambiguous" && (!strings.Contains(stderr, "oc_abc") || !strings.Contains(stderr, "oc_abd") || strings.Contains(stderr, "oc_x")) {
					t.Errorf("%q does not name the two", stderr)
				}
				return
			}
			if want := "--:--:--  ?  " + tt.text + "\n"; code != 0 || stdout != want {
				t.Errorf("status %d, got %q, want %q (%s)", code, stdout, want, stderr)
			}
		})
	}
}

func TestTranscriptUsage(t *testing.T) {
	clearEnvironment(t, nil)
	record(t, map[string][]transcript.Entry{"feishu/-x": {{Role: "user", Content: "dash"}}})
	tests := []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"", 2, "", "Please specify one command of: list, redact, show or tail"},
		{"erase", 2, "", "Unknown command `erase'"},
		{"--help", 0, "CHAT is a chat id", ""},
		{"list --help", 0, "feishu-relay [OPTIONS] transcript list", ""},
		{"show --help", 0, "feishu-relay [OPTIONS] transcript show", ""},
		{"tail oc_x --help", 0, "feishu-relay [OPTIONS] transcript tail", ""},
		{"list x", 2, "", `unexpected argument "x"`},
		{"show a b", 2, "", `unexpected argument "b"`},
		{"show a --bogus", 2, "", "unknown flag `bogus'"},
		{"show -n -1 oc_x", 2, "", "-n: want a number"},
		{"tail -n 100001", 2, "", "-n: want a number"},
		{"show -- -x", 0, "dash", ""},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := program(t, append([]string{"transcript"}, strings.Fields(tt.args)...)...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) ||
				(tt.stdout == "") != (stdout == "") || (tt.stderr == "") != (stderr == "") {
				t.Errorf("status %d, stdout %q, stderr %q; want %d, %q, %q", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
		})
	}
}

// A pipe that nobody reads any more, as with head, is no error.
func TestTranscriptClosedPipe(t *testing.T) {
	clearEnvironment(t, nil)
	record(t, map[string][]transcript.Entry{"feishu/oc_x": talk()})
	for _, args := range []string{"show oc_x", "tail", "tail -f oc_x", "tail -f", "list", "list --json", "--help"} {
		t.Run(args, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer write.Close()
			if err := read.Close(); err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			full := append([]string{"transcript"}, strings.Fields(args)...)
			if code := run(t.Context(), full, write, &stderr); code != 0 || stderr.Len() > 0 {
				t.Errorf("status %d, stderr %q", code, stderr.String())
			}
		})
	}
}

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/sidecar"
	"feishu-relay/transcript"
)

// marked writes a record and its notices.
func marked(t *testing.T, entries, notices []transcript.Entry) (dir string, store, marks *transcript.Store) {
	t.Helper()
	dir, store = record(t, map[string][]transcript.Entry{"feishu/oc_x": entries})
	marks, err := transcript.Open(filepath.Join(dir, sidecar.MarksFolder), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = marks.Close() })
	add(t, marks, "feishu/oc_x", notices...)
	return dir, store, marks
}

func noticeAt(clock, id, kind, act, content string, set string) transcript.Entry {
	return transcript.Entry{Role: transcript.RoleNotice, Sender: "agent_a", Content: content, MessageID: id, TS: at(clock),
		Mark: &transcript.Mark{Kind: kind, Act: act, By: "张三", Set: json.RawMessage(set)}}
}

func TestTranscriptShowsNotices(t *testing.T) {
	clearEnvironment(t, nil)
	say := func(clock, id, text string) transcript.Entry {
		return transcript.Entry{Role: "user", Sender: "u", Content: text, MessageID: id, TS: at(clock)}
	}
	dir, _, _ := marked(t,
		[]transcript.Entry{say("2026-11-20 10:00:00", "om_1", "one"), say("2026-11-20 10:00:10", "om_2", "two")},
		[]transcript.Entry{
			noticeAt("2026-11-20 09:00:00", "om_c0", "command", "set", "/relay limit 5", `{"limit":5}`),
			noticeAt("2026-11-20 10:00:05", "om_c1", "command", "set", "/relay pause", `{"paused":{"until":null}}`),
			noticeAt("2026-11-20 10:00:06", "om_n1", "notice", "answer", "Bots' messages\nare paused.", ""),
			noticeAt("2026-11-20 10:00:20", "notice:1", "command", "set", "", `{"limit":4}`),
		})
	const day, all = "── Fri 2026-11-20 ──\n", "10:00:00  u  one\n" +
		"10:00:05  张三 (command)  /relay pause\n" +
		"10:00:06  notice  Bots' messages\n" +
		"          are paused.\n" +
		"10:00:10  u  two\n" +
		"10:00:20  张三 (command)  [set limit 4]\n"
	for args, want := range map[string]string{
		"show oc_x":      day + "09:00:00  张三 (command)  /relay limit 5\n" + all,
		"show -n 2 oc_x": day + all,
		"show -n 1 oc_x": day + "10:00:10  u  two\n10:00:20  张三 (command)  [set limit 4]\n",
		"show -n 0 oc_x": "",
		"tail -n 2 oc_x": day + all,
	} {
		code, stdout, stderr := program(t, append(append([]string{"transcript"}, strings.Fields(args)...), "--dir", dir)...)
		if code != 0 || stdout != want {
			t.Errorf("%s: status %d %s, got\n%s\nwant\n%s", args, code, stderr, stdout, want)
		}
	}
	code, stdout, _ := program(t, "transcript", "tail", "-n", "1", "--dir", dir)
	if want := day + "oc_x  10:00:10  u  two\noc_x  10:00:20  张三 (command)  [set limit 4]\n"; code != 0 || stdout != want {
		t.Errorf("of all chats: got\n%s\nwant\n%s", stdout, want)
	}
	_, stdout, _ = program(t, "transcript", "show", "--json", "-n", "1", "oc_x", "--dir", dir)
	_, last, _ := strings.Cut(stdout, "\n")
	if !strings.Contains(last, `"role":"notice"`) || !strings.Contains(last, `"kind":"command","act":"set","by":"张三","set":{"limit":4}`) {
		t.Errorf("as JSON a notice is %s", last)
	}
}

func TestTranscriptTailFollowsNotices(t *testing.T) {
	for lead, chat := range map[string][]string{"": {"oc_x"}, "oc_x  ": nil} {
		clearEnvironment(t, nil)
		one := transcript.Entry{Role: "user", Sender: "u", Content: "one", MessageID: "om_1"}
		two := transcript.Entry{Role: "user", Sender: "u", Content: "two", MessageID: "om_2"}
		one.TS, two.TS = at("2026-11-20 10:00:00"), at("2026-11-20 10:00:26")
		dir, store, marks := marked(t, []transcript.Entry{one},
			[]transcript.Entry{noticeAt("2026-11-20 10:00:05", "om_n1", "notice", "answer", "Paused", "")})
		lines, end := following(t, append(chat, "-n", "1", "--dir", dir)...)
		wantLine(t, lines, "── Fri 2026-11-20 ──")
		wantLine(t, lines, lead+"10:00:00  u  one")
		wantLine(t, lines, lead+"10:00:05  notice  Paused")
		add(t, marks, "feishu/oc_x", noticeAt("2026-11-20 10:00:25", "om_n2", "notice", "stop", "Stopped", ""))
		wantLine(t, lines, lead+"10:00:25  notice  Stopped")
		add(t, store, "feishu/oc_x", two)
		wantLine(t, lines, lead+"10:00:26  u  two")
		add(t, marks, "feishu/oc_x", noticeAt("2026-11-20 10:00:27", "om_n3", "notice", "stop", "Stopped again", ""))
		wantLine(t, lines, lead+"10:00:27  notice  Stopped again")
		if code := end(); code != 0 {
			t.Errorf("interrupted: status %d, want 0", code)
		}
	}
}

func TestTranscriptShowsRecalls(t *testing.T) {
	clearEnvironment(t, nil)
	said := transcript.Entry{Role: "user", Sender: "u", MessageID: "om_1", TS: at("2026-11-20 10:00:00"), Recalled: true}
	dir, _ := record(t, map[string][]transcript.Entry{"feishu/oc_x": {said}})
	_, stdout, _ := program(t, "transcript", "show", "oc_x", "--dir", dir)
	if want := "── Fri 2026-11-20 ──\n10:00:00  u  [recalled]\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
}

// Notices that begin while one follows are shown.
func TestTranscriptTailFindsNotices(t *testing.T) {
	clearEnvironment(t, nil)
	dir, _ := record(t, map[string][]transcript.Entry{"feishu/oc_x": {{Role: "user", Sender: "u", Content: "one", MessageID: "om_1"}}})
	lines, _ := following(t, "oc_x", "--dir", dir)
	wantLine(t, lines, "--:--:--  u  one")
	marks, err := transcript.Open(filepath.Join(dir, sidecar.MarksFolder), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = marks.Close() })
	add(t, marks, "feishu/oc_x", noticeAt("2026-11-20 10:00:25", "om_n", "notice", "stop", "Stopped", ""))
	wantLine(t, lines, "── Fri 2026-11-20 ──")
	wantLine(t, lines, "10:00:25  notice  Stopped")
}

package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/spool"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

func TestBrokenFilesAreSetAside(t *testing.T) {
	story(t, func(r *rig) {
		r.send(message("good"))
		r.send(message("dead"))
		r.Nacked("dead", "coder", mailbox.Unauthorized, "")
		r.stop()
		broken := map[string]string{
			"empty":    "",
			"torn":     `{"envelope":{"id":"SECRET`,
			"list":     "[]",
			"null":     "null",
			"noletter": `{"envelope":{}}`,
			"nobody":   `{"envelope":{"id":"x","from":"me","type":"message","content":"hi","timestamp":"2026-11-21T10:00:00Z"}}`,
			"big":      `{"reason":"` + strings.Repeat("x", maxSentFile) + `"}`,
		}
		for name, content := range broken {
			writeFile(t, filepath.Join(r.dir, "unacked", name+unackedSuffix), content)
			writeFile(t, filepath.Join(r.dir, "dead", name+deadSuffix), content)
		}
		writeFile(t, filepath.Join(r.dir, "unacked", "1_coder_x.json.ABCDEFGH.tmp"), "{")
		writeFile(t, filepath.Join(r.dir, "dead", "notes.txt"), "mine")

		var log bytes.Buffer
		r.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.open()
		if r.Pending() != 1 || len(letterIDs(r)) != 1 {
			r.t.Errorf("%d wait, dead letters %v", r.Pending(), letterIDs(r))
		}
		for name, content := range broken {
			for _, path := range []string{"unacked/" + name + unackedSuffix, "dead/" + name + deadSuffix} {
				if data, err := os.ReadFile(filepath.Join(r.dir, path+".broken")); err != nil || string(data) != content {
					r.t.Errorf("%s was lost: %v", path, err)
				}
			}
			if !strings.Contains(log.String(), name+unackedSuffix) || !strings.Contains(log.String(), name+deadSuffix) {
				r.t.Errorf("no warning names %s", name)
			}
		}
		if strings.Contains(log.String(), "SECRET") || strings.Contains(log.String(), "xxxx") {
			r.t.Error("a warning holds what the file does")
		}
		if n := len(files(t, r.dir, "unacked")); n != 1+len(broken) {
			r.t.Errorf("unacked: %v", files(t, r.dir, "unacked"))
		}
		if n := len(files(t, r.dir, "dead")); n != 2+len(broken) {
			r.t.Errorf("dead: %v", files(t, r.dir, "dead"))
		}
	})
}

func writeFile(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// What waited without a signature of the secret of now, since the secret is new or another,
// or since somebody else put it there, is a dead letter when it would be sent, and is never
// sent; what the receiver has is watched on.
func TestMailOfAnotherSecret(t *testing.T) {
	for _, before := range []string{"", "0ld"} {
		for _, key := range []string{"", "k"} {
			t.Run(before+" "+key, func(t *testing.T) {
				story(t, func(r *rig) {
					r.set(func() { r.place = mailbox.Gone })
					waits := hourly("w")
					waits.Metadata.RequiresAck = key == "k"
					for _, e := range []mailbox.Envelope{waits, message("d")} {
						raw, err := mailbox.Signing{Secret: before}.Encode(e)
						if err != nil {
							t.Fatal(err)
						}
						if e.ID == "w" {
							err = r.unacked.Save("1", sentFile{Envelope: raw, Key: key})
						} else {
							err = r.dead.Save("2", deadFile{DeadLetter{ID: "d"}, raw})
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					r.opts.Signing = mailbox.Signing{Secret: "s3cret"}
					r.reopen()
					r.after(time.Minute)
					r.wantDied("w", mailbox.BadSignature, len(key), "not signed")
					r.reopen()
					r.wantCalls()
					r.wantLeft(0, 2)
					for _, id := range []string{"w", "d"} {
						err := r.Replay(t.Context(), id)
						if no, ok := errors.AsType[*mailbox.Error](err); !ok || no.Field != "id" {
							t.Errorf("sent again: %v", err)
						}
					}
					r.wantCalls()
					r.wantLeft(0, 2)
				})
			})
		}
	}
	t.Run("taken meanwhile", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(hourly("a"))
			r.send(message("b"))
			r.opts.Signing = mailbox.Signing{Secret: "s3cret"}
			r.set(func() { r.place = mailbox.Processed })
			r.reopen()
			r.after(time.Minute)
			r.wantLeft(0, 0)
			if n := len(r.deaths()); n != 0 {
				t.Errorf("%d died", n)
			}
		})
	})
}

// What a file holds is a message or broken, and what was read is what is
// written when the message is sent again.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"envelope":{"id":"x","from":"me","to":"coder","type":"message","content":"hi","timestamp":"2026-11-21T10:00:00Z","metadata":{"requiresAck":true,"maxRetries":2}},"key":"k","retryCount":1,"next":"2026-11-21T10:00:00Z","refused":true}`))
	f.Add([]byte(`{"envelope":{"id":"x","from":"me","to":"coder","type":"message","content":"hi","timestamp":"0000-01-01T00:00:00+23:59","metadata":{"ttl":315360000}},"retryCount":-9223372036854775808}`))
	f.Add([]byte(`{"envelope":null}`))
	f.Add([]byte(`{"envelope":"<"}`))
	b := &outgoing{}
	records := spool.New[sentFile](nil, unackedOptions(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := records.Decode(data)
		var e mailbox.Envelope
		if err == nil {
			e, err = b.decode(r.Envelope)
		}
		if err != nil {
			if !errors.Is(err, spool.ErrBroken) {
				t.Fatalf("%v", err)
			}
			return
		}
		if n := b.entryOf("x", e); n.retries > maxRetries || n.life < 0 && !n.expires.IsZero() {
			t.Fatalf("%+v", n)
		}
		if r.Envelope, err = mailbox.Encode(e); err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		line, err := relay.Marshal(r)
		if err != nil {
			return // a time that JSON cannot hold: save says so, and memory knows
		}
		again, err := records.Decode(line)
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Fatalf("%v, written (-) and read again (+):\n%s", err, diff)
		}
	})
}

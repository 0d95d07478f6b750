package outbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/relay"
)

func TestABrokenStatePublishesAgainAndLosesNothing(t *testing.T) {
	for name, state := range map[string]string{
		"missing":               "",
		"empty":                 " ",
		"torn":                  `{"segment":1,"off`,
		"another type":          `{"segment":"one"}`,
		"a negative offset":     `{"segment":1,"offset":-5,"seq":3}`,
		"beyond what was given": `{"segment":999,"offset":0,"seq":3}`,
		"null":                  "null",
	} {
		t.Run(name, func(t *testing.T) {
			dir, q := t.TempDir(), &backend{}
			b := openBox(t, dir, Options{})
			put(t, b, "1", "2", "3")
			path := filepath.Join(dir, stateFile)
			os.Remove(path)
			if state != "" {
				appendTo(t, path, state)
			}
			b = openBox(t, dir, Options{})
			put(t, b, "4")
			drain(t, b, q)
			wantIDs(t, "published", firsts(q.saw(t)), numbers(1, 4))
			wantEmpty(t, b)
		})
	}
}

func TestTornLines(t *testing.T) {
	const fragment = `{"relay_msg_id":"torn","channel":"feis`
	for name, tear := range map[string]func(t *testing.T, last string){
		"at the end":               func(t *testing.T, last string) { appendTo(t, last, fragment) },
		"of one byte":              func(t *testing.T, last string) { appendTo(t, last, "{") },
		"ended by another":         func(t *testing.T, last string) { appendTo(t, last, fragment+"\n") },
		"empty lines":              func(t *testing.T, last string) { appendTo(t, last, "\n\n\r\n") },
		"zeros after a power cut":  func(t *testing.T, last string) { appendTo(t, last, strings.Repeat("\x00", 5000)) },
		"as long as a line may be": func(t *testing.T, last string) { appendTo(t, last, strings.Repeat("x", relay.MaxLine-1)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, q := t.TempDir(), &backend{}
			put(t, openBox(t, dir, Options{}), "1", "2")
			tear(t, segmentFiles(t, dir)[0])
			b := openBox(t, dir, Options{})
			if m, err := b.Put(message("3")); err != nil || m.Seq != 3 {
				t.Errorf("seq: got %d, %v; want 3", m.Seq, err)
			}
			drain(t, b, q)
			put(t, b, "4")
			drain(t, b, q)
			wantIDs(t, "published", q.saw(t), numbers(1, 4))
			wantEmpty(t, b)
		})
	}
}

// Whatever crashes, fails and is forgotten: each accepted message is published
// at least once, and the first time in the order of Put.
func TestAnyHistoryOfFaults(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 3))
			dir := t.TempDir()
			q := &backend{before: func(lines int) (int, error) {
				switch rng.IntN(4) {
				case 0: // a part is accepted, but the call fails
					return rng.IntN(lines + 1), errAway
				case 1:
					return 0, errAway
				}
				return lines, nil
			}}
			b := openBox(t, dir, Options{})
			var accepted []string
			for range 150 {
				time.Sleep(relay.PointEvery)
				switch rng.IntN(12) {
				case 0: // killed, sometimes in the middle of a line
					if rng.IntN(2) == 0 {
						if files := segmentFiles(t, dir); len(files) > 0 {
							line := lineOf(t, "torn", 1)
							appendTo(t, files[len(files)-1], line[:1+rng.IntN(len(line)-2)])
						}
					}
					b = openBox(t, dir, Options{})
				case 1:
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					b = openBox(t, dir, Options{})
				case 2:
					if err := b.Save(); err != nil {
						t.Fatal(err)
					}
				case 3:
					switch rng.IntN(4) {
					case 0:
						q.forget()
					case 1:
						q.lose(rng.IntN(len(q.lines) + 1))
					}
				case 4:
					_ = b.verify(t.Context(), q) // an error is tried again
				case 5, 6, 7:
					_, _ = b.step(t.Context(), q)
				default:
					id := fmt.Sprint(len(accepted) + 1)
					put(t, b, id)
					accepted = append(accepted, id)
				}
			}
			q.before = nil
			drain(t, b, q)
			wantIDs(t, "first occurrences", firsts(q.saw(t)), accepted)
			for range 3 { // an idle box notices on its own
				if err := b.verify(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			held := q.holds(t)
			if missing := slices.DeleteFunc(accepted, func(id string) bool { return slices.Contains(held, id) }); len(missing) > 0 {
				t.Errorf("seed %d: the backend lost %v and was not given them again", seed, missing)
			}
			wantEmpty(t, b)
		})
	}
}

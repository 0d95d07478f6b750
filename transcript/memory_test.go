package transcript

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// What a store that appends answers from its memory is what another one reads from the
// files, regardless of who writes, cuts and rotates them.
func TestMemoryAgreesWithTheFiles(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		opts := &Options{keep: 4}
		if r.IntN(2) == 0 {
			opts.rotateSize = 20_000 + r.Int64N(2_000_000)
		}
		s, other := open(t, dir, opts), open(t, dir, opts)
		path := filepath.Join(dir, file)
		size := 1 + r.IntN(6000)
		next, newest := 0, int64(1)
		var written []Entry
		entry := func() Entry {
			next++
			newest += r.Int64N(1000)
			e := Entry{Role: []string{relay.RoleUser, relay.RoleAssistant}[r.IntN(2)], Sender: "s", MessageID: fmt.Sprint("om_", next),
				TS: newest, Content: strings.Repeat("字", r.IntN(1+r.IntN(size)))}
			switch r.IntN(8) {
			case 0: // it comes late
				e.TS = max(1, newest-r.Int64N(100_000))
			case 1:
				e.TS += r.Int64N(5000)
			case 2:
				e.ThreadID, e.RootID, e.ParentID, e.PartOf, e.UserTS = "omt_1", "om_1", `om_"2`, "om_3", e.TS-1
			case 3:
				e.MessageID, e.Content = "", fmt.Sprint("without id ", next)
			case 4:
				e.EditOf = fmt.Sprint("om_", 1+r.IntN(next))
			}
			written = append(written, e)
			return e
		}
		entry()
		if r.IntN(3) == 0 { // more than is read on opening
			var many []Entry
			for range 2500 {
				many = append(many, entry())
				many[len(many)-1].Content = fmt.Sprint(next)
			}
			writeFile(t, path, lines(t, many...))
		}
		for range 15 {
			switch k := r.IntN(12); {
			case k < 7:
				writer := s
				if k < 2 {
					writer = other
				}
				for range r.IntN(60) {
					_, err := writer.Append("feishu", "oc_x", entry())
					must(t, err)
				}
			case k < 9: // a writer that knows nothing of repeats
				addFile(t, path, lines(t, written[r.IntN(len(written))]))
			case k == 9:
				addFile(t, path, "no entry\n\n"+`{"role":"user", "content":"spaced", "sender":"x", "message_id":"", "ts":`+fmt.Sprint(newest)+"}\n")
			case k == 10:
				addFile(t, path, `{"role":"assistant","content":"torn`)
			case k == 11 && r.IntN(3) == 0:
				if info, err := os.Stat(path); err == nil {
					must(t, os.Truncate(path, info.Size()/2))
				}
			}
			cold := open(t, dir, &Options{ReadOnly: true})
			for range 3 {
				n, at := 1+r.IntN(1+r.IntN(3000)), int64(math.MaxInt64)
				if r.IntN(4) > 0 {
					at = newest - r.Int64N(1+r.Int64N(newest))
				}
				if r.IntN(3) == 0 {
					n = 1 + r.IntN(70)
				}
				want, err := cold.TailTo("feishu", "oc_x", n, at)
				must(t, err)
				got, err := s.TailTo("feishu", "oc_x", n, at)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: the last %d at %d: %v (-got +want)\n%s", seed, n, at, err, cmp.Diff(got, want))
				}
			}
		}
	}
}

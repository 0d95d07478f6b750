package judge_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// TestRulesOnPublicData measures the rules on public dialogues, which are not in the repository. JUDGE_CORPORA is
// a folder of *.jsonl files; each line has a kind, what this agent said (ours) and the answer (text). The kinds
// request, fact, "answer?" and "answer." (a yes or no to a request with and without a question mark) have limits.
func TestRulesOnPublicData(t *testing.T) {
	dir := os.Getenv("JUDGE_CORPORA")
	if dir == "" {
		t.Skip("JUDGE_CORPORA names no folder of corpora")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpora in %s: %v", dir, err)
	}
	limits := map[string]float64{"request": 0.001, "fact": 0.002, "answer?": 0.04, "answer.": 0.1}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, stopped := map[string]int{}, map[string]int{}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var x struct{ Kind, Ours, Text string }
			if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			q := labelled{Text: x.Text}.question()
			if x.Ours != "" {
				e := policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: x.Ours}
				q.Transcript = append(q.Transcript, e)
			}
			all[x.Kind]++
			if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow {
				stopped[x.Kind]++
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, kind := range slices.Sorted(maps.Keys(all)) {
			share := float64(stopped[kind]) / float64(all[kind])
			t.Logf("%s, %s: stopped %d of %d (%.2f %%)", filepath.Base(file), kind, stopped[kind], all[kind], 100*share)
			if limit, ok := limits[kind]; ok && share > limit {
				t.Errorf("%s, %s: want at most %.1f %%", filepath.Base(file), kind, 100*limit)
			}
		}
	}
}

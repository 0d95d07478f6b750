package judge_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"feishu-relay/policy/judge"
)

// BenchmarkJudgeOverhead compares a whole verdict, prompt and all, with a bare
// POST of the same size to the same stub: by the mean, and by the median, which other
// load on the machine disturbs less. The third part takes turns between the two.
func BenchmarkJudgeOverhead(b *testing.B) {
	var size int
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		size = int(n)
		io.WriteString(w, completion("NO", "stop"))
	}))
	defer s.Close()

	l, err := judge.New(judge.Options{APIKey: testKey, BaseURL: s.URL})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	ours := func() {
		n++ // each question is new: no answer comes from the cache
		if _, err := l.Judge(b.Context(), ask(fmt.Sprint("question ", n))); err != nil {
			b.Fatal(err)
		}
	}
	ours()
	body := bytes.Repeat([]byte("x"), size)
	bare := func() {
		res, err := http.Post(s.URL+"/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(median(timed(b, ours)), "p50-ns")
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(median(timed(b, bare)), "p50-ns")
	})
	b.Run("ratio", func(b *testing.B) {
		var a, c []time.Duration
		for b.Loop() {
			a, c = append(a, once(ours)), append(c, once(bare))
		}
		b.ReportMetric(median(a)/median(c), "ours/bare")
	})
}

func once(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func timed(b *testing.B, f func()) []time.Duration {
	var took []time.Duration
	for b.Loop() {
		took = append(took, once(f))
	}
	return took
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

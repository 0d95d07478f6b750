package feishu

import (
	"encoding/json"
	"testing"
)

func FuzzSplice(f *testing.F) {
	for _, s := range []string{`{"URL":"a\"b"}`, `{}`, `{"a":{"URL":[1, 2]} , "URL" :null }`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		from, to, err := Member(data, "URL")
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Errorf("%q is taken for JSON", data)
		}
		if from < to && !json.Valid(data[from:to]) {
			t.Errorf("%q: the value is %q", data, data[from:to])
		}
		out, err := SetMember(data, "URL", []byte(`"x"`))
		if err != nil || !json.Valid(out) {
			t.Fatalf("%q became %q: %v", data, out, err)
		}
		if f, to, err := Member(out, "URL"); err != nil || string(out[f:to]) != `"x"` {
			t.Errorf("%q became %q", data, out)
		}
	})
}

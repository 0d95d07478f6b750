package redisrelay

import (
	"encoding/json"
	"testing"
)

func FuzzParseCursor(f *testing.F) {
	f.Add([]byte(`{"id":"1795211093522-3","n":17,"history":"5-0"}`))
	f.Add([]byte(`{"id":"0-0","n":-1}`))
	f.Add([]byte(`{"id":"18446744073709551615-18446744073709551615","n":9223372036854775807}`))
	f.Add([]byte(`{"id":5}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCursor(data)
		if err != nil {
			if c != (cursor{}) {
				t.Errorf("an error and the cursor %v", c)
			}
			return
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseCursor(again)
		if err != nil || back != c {
			t.Errorf("got %v, %v after %s, want %v", back, err, again, c)
		}
	})
}

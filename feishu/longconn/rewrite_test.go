package longconn

import "testing"

func TestShorten(t *testing.T) {
	for in, want := range map[string]string{
		`{"ReconnectCount":-1,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":120}`: `{"ReconnectCount":-1,"ReconnectInterval":3,"ReconnectNonce":2,"PingInterval":120}`,
		`{"ReconnectCount":-1,"ReconnectInterval":1,"ReconnectNonce":0,"PingInterval":5}`:      `{"ReconnectCount":-1,"ReconnectInterval":1,"ReconnectNonce":0,"PingInterval":5}`,
		`{"ReconnectCount":5,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":120}`:  `{"ReconnectCount":5,"ReconnectInterval":120,"ReconnectNonce":2,"PingInterval":120}`,
		` { "PingInterval" : 9 } `:                                       ` { "PingInterval" : 9,"ReconnectCount":-1,"ReconnectInterval":3,"ReconnectNonce":2} `,
		`{"x":{"PingInterval":1},"ReconnectNonce":7,"ReconnectNonce":8}`: `{"x":{"PingInterval":1},"ReconnectNonce":7,"ReconnectNonce":2,"ReconnectCount":-1,"ReconnectInterval":3,"PingInterval":60}`,
	} {
		got, _, err := shorten([]byte(in), 60)
		if err != nil || string(got) != want {
			t.Errorf("%s:\ngot  %s %v\nwant %s", in, got, err, want)
		}
	}
	for _, in := range []string{``, `null`, `[]`, `{}`, `{"a":1}`, `{"PingInterval":"x"}`, `{"PingInterval":1.5}`, `{"PingInterval":1`, `{"PingInterval":1}x`, `{"PingInterval":1}{}`} {
		if got, _, err := shorten([]byte(in), 60); err == nil {
			t.Errorf("%s: got %s", in, got)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	for _, s := range []string{`{"ReconnectCount":-1,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":120}`, `{"URL":"a\"b"}`, `{}`, `{"a":{"URL":[1, 2]} , "URL" :null }`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, ping, err := shorten(data, 60); err == nil {
			if again, p, err := shorten(out, 1); err != nil || p != ping || string(again) != string(out) {
				t.Errorf("%s became %s, then %s: %v", data, out, again, err)
			}
		}
	})
}

package feishu_test

import (
	"strings"
	"testing"

	"feishu-relay/feishu"
)

// docs/feishu.md 2.3 has these two vectors.
func TestSignVector(t *testing.T) {
	got := feishu.Sign("1608725989", "nonce", "test key", []byte(`{"encrypt":"x"}`))
	if want := "86dbe362761c79f565027e3f08ee0882612a0680cba441907e7429415091b70d"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDecryptVector(t *testing.T) {
	got, err := feishu.Decrypt("test key", []byte(`{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}`))
	if err != nil || !strings.HasPrefix(string(got), "hello world") { // the padding is not cut off outside of an object
		t.Errorf("got %q, %v", got, err)
	}
	const event = `{"text":"中文 <at> & 😀"}`
	body, _ := feishu.Encrypt("key", []byte(event)) // Decrypt finds an error
	if back, err := feishu.Decrypt("key", body); err != nil || string(back) != event {
		t.Errorf("%s came back as %q, %v", event, back, err)
	}
	braces, _ := feishu.Encrypt("key", []byte("}SECRET{"))
	for _, body := range []string{"hello", `{}`, `{"encrypt":7}`, `{"encrypt":"SECRET!"}`, string(braces)} {
		if _, err := feishu.Decrypt("key", []byte(body)); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestIsOpenHost(t *testing.T) {
	for host, want := range map[string]bool{
		"open.feishu.cn": true, "open.larksuite.com": true, "OPEN.Feishu.CN:443": true, "open.feishu.cn:80": true, "open.larksuite.com.:443": true,
		"open.feishu.cn:8443": false, "open.feishu.cn:": false, "feishu.cn": false, "open.feishu.cn.evil.com": false,
		"xopen.feishu.cn": false, "msg-frontier.feishu.cn": false, "": false, ":443": false, "[::1]:443": false, "open.feishu.cn:443:443": false,
	} {
		if got := feishu.IsOpenHost(host); got != want {
			t.Errorf("IsOpenHost(%q) = %v", host, got)
		}
	}
}

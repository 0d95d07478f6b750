package feishu_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"

	"feishu-relay/feishu"
)

// docs/feishu.md 2.3 has these two vectors.
func TestSignVector(t *testing.T) {
	got := feishu.Sign("1608725989", "nonce", "test key", []byte(`{"encrypt":"x"}`))
	if want := "86dbe362761c79f565027e3f08ee0882612a0680cba441907e7429415091b70d"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if sdk := larkevent.Signature("1608725989", "nonce", "test key", `{"encrypt":"x"}`); got != sdk {
		t.Errorf("the SDK has %s", sdk)
	}
}

func TestDecryptVector(t *testing.T) {
	got, err := feishu.Decrypt("test key", []byte(`{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}`))
	if err != nil || string(got) != "hello world" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestEncryptedIsReadByTheSDKAndBack(t *testing.T) {
	for _, plain := range []string{"", `{"a":1}`, `{"text":"中文 <at> & 😀"}`, strings.Repeat("x", 15), strings.Repeat("x", 16), strings.Repeat("x", 17), strings.Repeat("长", 70_000)} {
		body, err := feishu.Encrypt("key", []byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := feishu.Decrypt("key", body); err != nil || string(back) != plain {
			t.Errorf("%d bytes came back as %d, %v", len(plain), len(back), err)
		}
		if !strings.HasPrefix(plain, "{") {
			continue
		}
		text := strings.TrimSuffix(strings.TrimPrefix(string(body), `{"encrypt":"`), `"}`)
		if back, err := larkevent.EventDecrypt(text, "key"); err != nil || string(back) != plain {
			t.Errorf("the SDK reads %q, %v", back, err)
		}
	}
	made, err := larkcore.EncryptedEventMsg(t.Context(), map[string]string{"a": "b"}, "key")
	if err != nil {
		t.Fatal(err)
	}
	if back, err := feishu.Decrypt("key", []byte(`{"encrypt":"`+made+`"}`)); err != nil || string(back) != `{"a":"b"}` {
		t.Errorf("the SDK's comes out as %q, %v", back, err)
	}
}

func TestEncryptUsesAFreshIV(t *testing.T) {
	a, _ := feishu.Encrypt("key", []byte("same"))
	b, _ := feishu.Encrypt("key", []byte("same"))
	if string(a) == string(b) {
		t.Error("the same text is the same twice")
	}
}

func TestDecryptRefuses(t *testing.T) {
	good, err := feishu.Encrypt("key", []byte("SECRET"))
	if err != nil {
		t.Fatal(err)
	}
	padded := func(last ...byte) string { // a block that ends in the given bytes
		key := sha256.Sum256([]byte("key"))
		block, _ := aes.NewCipher(key[:])
		data := make([]byte, 2*aes.BlockSize)
		copy(data[len(data)-len(last):], last)
		cipher.NewCBCEncrypter(block, data[:aes.BlockSize]).CryptBlocks(data[aes.BlockSize:], data[aes.BlockSize:])
		return `{"encrypt":"` + base64.StdEncoding.EncodeToString(data) + `"}`
	}
	for name, tt := range map[string]struct{ key, body string }{
		"an empty key":            {"", string(good)},
		"no JSON":                 {"key", "hello"},
		"no encrypt":              {"key", `{}`},
		"encrypt of another type": {"key", `{"encrypt":7}`},
		"no base64":               {"key", `{"encrypt":"SECRET!"}`},
		"an IV alone":             {"key", `{"encrypt":"AAAAAAAAAAAAAAAAAAAAAA=="}`},
		"half a block":            {"key", `{"encrypt":"` + base64.StdEncoding.EncodeToString(make([]byte, 40)) + `"}`},
		"padding of 0":            {"key", padded(0)},
		"padding of 17":           {"key", padded(17)},
		"padding that differs":    {"key", padded(2, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := feishu.Decrypt(tt.key, []byte(tt.body))
			if err == nil {
				t.Fatalf("got %q", plain)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error quotes the body: %v", err)
			}
		})
	}
	if _, err := feishu.Encrypt("", nil); err == nil {
		t.Error("an empty key encrypts")
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

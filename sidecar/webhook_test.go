package sidecar

import "testing"

// The vector was made with openssl; docs/api.md shows it.
func TestPostSignature(t *testing.T) {
	got := postSignature("0123456789abcdef", "1795368201", []byte(`{"content":"你好"}`))
	if want := "v1=4b939a825e8178c49fdcf0f75db21fa6a31776995f80201e9ac5635f74a2bf76"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

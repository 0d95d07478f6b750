package feishu

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Sign returns the signature of a webhook call with an Encrypt Key: 64 hex
// digits over the body as it is sent (docs/feishu.md 2.3).
func Sign(timestamp, nonce, key string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(timestamp + nonce + key))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// encrypted is a webhook's body where the app has an Encrypt Key.
type encrypted struct {
	Encrypt string `json:"encrypt"`
}

// Encrypt returns the body {"encrypt":"…"} that carries plain: AES-256-CBC under
// the SHA-256 of key, a random IV in front, PKCS7 padding (docs/feishu.md 2.3).
func Encrypt(key string, plain []byte) (body []byte, err error) {
	block, err := newCipher(key)
	if err != nil {
		return nil, err
	}
	pad := aes.BlockSize - len(plain)%aes.BlockSize
	data := make([]byte, aes.BlockSize, aes.BlockSize+len(plain)+pad)
	rand.Read(data)
	data = append(data, plain...)
	data = append(data, bytes.Repeat([]byte{byte(pad)}, pad)...)
	text := data[aes.BlockSize:]
	cipher.NewCBCEncrypter(block, data[:aes.BlockSize]).CryptBlocks(text, text)
	return compact(encrypted{base64.StdEncoding.EncodeToString(data)}), nil
}

// Decrypt returns the content of a body {"encrypt":"…"}. A wrong key is recognized
// by the padding only, so the content may still be invalid JSON.
func Decrypt(key string, body []byte) (plain []byte, err error) {
	block, err := newCipher(key)
	if err != nil {
		return nil, err
	}
	var e encrypted
	if json.Unmarshal(body, &e) != nil || e.Encrypt == "" {
		return nil, errors.New(`decrypt: the body is not {"encrypt":"…"}`)
	}
	data, err := base64.StdEncoding.DecodeString(e.Encrypt)
	if err != nil {
		return nil, errors.New("decrypt: the body is not base64")
	}
	if len(data) < 2*aes.BlockSize || len(data)%aes.BlockSize != 0 {
		return nil, fmt.Errorf("decrypt: %d bytes are not whole blocks behind an IV", len(data))
	}
	text := data[aes.BlockSize:]
	cipher.NewCBCDecrypter(block, data[:aes.BlockSize]).CryptBlocks(text, text)
	pad := int(text[len(text)-1])
	if pad == 0 || pad > aes.BlockSize || !bytes.Equal(text[len(text)-pad:], bytes.Repeat([]byte{byte(pad)}, pad)) {
		return nil, errors.New("decrypt: wrong Encrypt Key or damaged body")
	}
	return text[:len(text)-pad], nil
}

func newCipher(key string) (cipher.Block, error) {
	if key == "" {
		return nil, errors.New("the Encrypt Key is empty")
	}
	sum := sha256.Sum256([]byte(key))
	return aes.NewCipher(sum[:])
}

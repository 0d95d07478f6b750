package feishu

import (
	"context"
	"encoding/json"
	"errors"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
)

// encrypted is a webhook's body where the app has an Encrypt Key (docs/feishu.md 2.3).
type encrypted struct {
	Encrypt string `json:"encrypt"`
}

// Sign returns the signature of a webhook call with an Encrypt Key, over the body as it is sent (docs/feishu.md 2.3).
func Sign(timestamp, nonce, key string, body []byte) string {
	return larkevent.Signature(timestamp, nonce, key, string(body))
}

// Encrypt returns the body {"encrypt":"…"} that carries plain.
func Encrypt(key string, plain []byte) (body []byte, err error) {
	if key == "" {
		return nil, errors.New("encrypt: the Encrypt Key is empty")
	}
	text, err := larkcore.EncryptedEventMsg(context.Background(), plain, key)
	return compact(encrypted{text}), err
}

// Decrypt returns the JSON object in a body {"encrypt":"…"}. A wrong key gives bytes that make no sense. An error
// quotes nothing of the body.
func Decrypt(key string, body []byte) (plain []byte, err error) {
	var e encrypted
	if json.Unmarshal(body, &e) != nil || e.Encrypt == "" || key == "" {
		return nil, errors.New(`decrypt: the body is not {"encrypt":"…"}, or the Encrypt Key is empty`)
	}
	if plain, err = larkevent.EventDecrypt(e.Encrypt, key); err != nil {
		return nil, errors.New("decrypt: the text is not base64 of whole blocks behind an IV")
	}
	return plain, nil
}

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

// Encrypt returns the body {"encrypt":"…"} that carries plain. key is not empty.
func Encrypt(key string, plain []byte) (body []byte, err error) {
	text, err := larkcore.EncryptedEventMsg(context.Background(), plain, key)
	return compact(encrypted{text}), err
}

// Decrypt returns the JSON object in a body {"encrypt":"…"}. A wrong key gives an error, or bytes that make no sense.
// An error quotes nothing of the body.
func Decrypt(key string, body []byte) (plain []byte, err error) {
	defer func() {
		if recover() != nil || plain == nil { // the SDK panics where a brace closes before one opens
			plain, err = nil, errors.New(`decrypt: the body is not {"encrypt":"…"}, or the Encrypt Key is wrong`)
		}
	}()
	var e encrypted
	if json.Unmarshal(body, &e) == nil && key != "" {
		plain, err = larkevent.EventDecrypt(e.Encrypt, key)
	}
	return plain, err
}

package webhook

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"

	"feishu-relay/feishu"
)

const typeChallenge = "url_verification"

// envelope is what of a post is looked at, in either schema (FEISHU.md 2.1, 2.2).
type envelope struct {
	Encrypt   string `json:"encrypt"`
	Type      string `json:"type"`
	Token     string `json:"token"`
	Challenge string `json:"challenge"`
	Header    struct {
		AppID string `json:"app_id"`
		Token string `json:"token"`
	} `json:"header"`
	Event struct {
		AppID string `json:"app_id"` // of the 1.0 schema
	} `json:"event"`
}

func (e *envelope) app() string {
	if e.Header.AppID != "" {
		return e.Header.AppID
	}
	return e.Event.AppID
}

func (e *envelope) token() string {
	if e.Header.Token != "" {
		return e.Header.Token
	}
	return e.Token
}

var (
	errNoJSON    = errors.New("the body is not JSON")
	errEncrypted = errors.New("the body is encrypted, and FEISHU_ENCRYPT_KEY is not set")
	errDecrypt   = errors.New("the body was not encrypted with FEISHU_ENCRYPT_KEY")
	errSignature = errors.New("the signature is not one of FEISHU_ENCRYPT_KEY")
	errToken     = errors.New("the token is not FEISHU_VERIFICATION_TOKEN")
)

// verify proves that a post is Feishu's (FEISHU.md 2.3) and returns its
// contents in clear. With an encrypt key the signature must be right, except
// that an encrypted challenge need not have one; with a token the token must be. The
// callbacks of old cards are signed with the token, and theirs is another one.
// A signature is looked at before anything is decrypted.
func (s *Server) verify(r *http.Request, body []byte) (plain []byte, e envelope, err error) {
	if json.Unmarshal(body, &e) != nil {
		return nil, e, errNoJSON
	}
	old := r.URL.Path == CardPath && s.oldCard(r.Header, body)
	signature := r.Header.Get("X-Lark-Signature")
	if s.EncryptKey != "" && signature != "" && !old {
		want := feishu.Sign(r.Header.Get("X-Lark-Request-Timestamp"), r.Header.Get("X-Lark-Request-Nonce"), s.EncryptKey, body)
		if !same(signature, want) {
			return nil, e, errSignature
		}
	}
	plain = body
	encrypted := e.Encrypt != ""
	if encrypted {
		if s.EncryptKey == "" {
			return nil, e, errEncrypted
		}
		if plain, err = feishu.Decrypt(s.EncryptKey, body); err != nil {
			return nil, e, errDecrypt
		}
		e = envelope{}
		if json.Unmarshal(plain, &e) != nil {
			return nil, e, errDecrypt
		}
	}
	switch {
	case old:
	case s.EncryptKey != "" && signature == "" && !(encrypted && e.Type == typeChallenge):
		return nil, e, errSignature
	case s.VerificationToken != "" && !same(e.token(), s.VerificationToken):
		return nil, e, errToken
	}
	return plain, e, nil
}

// oldCard reports whether a callback of a card is signed in the way that was
// used before card.action.trigger: with SHA-1 and the verification token.
func (s *Server) oldCard(h http.Header, body []byte) bool {
	if s.VerificationToken == "" {
		return false
	}
	sum := sha1.New()
	for _, part := range []string{h.Get("X-Lark-Request-Timestamp"), h.Get("X-Lark-Request-Nonce"), s.VerificationToken} {
		sum.Write([]byte(part))
	}
	sum.Write(body)
	return same(h.Get("X-Lark-Signature"), hex.EncodeToString(sum.Sum(nil)))
}

func same(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

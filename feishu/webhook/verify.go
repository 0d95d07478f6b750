package webhook

import (
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"feishu-relay/feishu"
)

const typeChallenge = "url_verification"

// envelope is what of a post is looked at, in either schema (docs/feishu.md 2.1, 2.2).
type envelope struct {
	Encrypt   string `json:"encrypt"`
	Type      string `json:"type"`
	Token     string `json:"token"`
	Challenge string `json:"challenge"`
	UUID      string `json:"uuid"` // of the 1.0 schema
	Header    struct {
		EventID string `json:"event_id"`
		AppID   string `json:"app_id"`
		Token   string `json:"token"`
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

// key is what an event is known by; "" for one without an id, such as the callback of an old card.
func (e *envelope) key() string {
	id := cmp.Or(e.Header.EventID, e.UUID)
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(e.app() + "\n" + id))
	return hex.EncodeToString(sum[:16])
}

// errForged says that a post is not proven to be Feishu's. The others say why.
var (
	errForged    = errors.New("forged")
	errNoJSON    = fmt.Errorf("%w: the body is not JSON", errForged)
	errEncrypted = fmt.Errorf("%w: the body is encrypted, and FEISHU_ENCRYPT_KEY is not set", errForged)
	errDecrypt   = fmt.Errorf("%w: the body was not encrypted with FEISHU_ENCRYPT_KEY", errForged)
	errSignature = fmt.Errorf("%w: the signature is not one of FEISHU_ENCRYPT_KEY", errForged)
	errToken     = fmt.Errorf("%w: the token is not FEISHU_VERIFICATION_TOKEN", errForged)
	errTimestamp = fmt.Errorf("%w: the signed timestamp is more than an hour from this machine's clock; "+
		"if the post is Feishu's, set the clock", errForged)
)

// maxSkew is how far a signed timestamp may be from the clock: a post that was recorded cannot be used for longer.
const maxSkew = time.Hour

// admit checks what the head of a post shows, before the body is read, and
// returns how many bytes the body may have.
func (s *Server) admit(r *http.Request) (most int, err error) {
	most = maxBody
	if s.EncryptKey != "" {
		switch signature := r.Header.Get("X-Lark-Signature"); {
		case signature == "":
			most = maxUnsigned
		case len(signature) != 2*sha256.Size && !(len(signature) == 2*sha1.Size && r.URL.Path == CardPath):
			return 0, errSignature
		case !isFresh(r.Header):
			return 0, errTimestamp
		}
	}
	if r.ContentLength > int64(most) {
		return 0, errTooLarge
	}
	return most, nil
}

// isFresh reports whether the timestamp of a post, in Unix seconds, is near the clock's.
func isFresh(h http.Header) bool {
	seconds, err := strconv.ParseInt(h.Get("X-Lark-Request-Timestamp"), 10, 64)
	return err == nil && time.Since(time.Unix(seconds, 0)).Abs() <= maxSkew
}

// verify proves that a post is Feishu's (docs/feishu.md 2.3) and returns its
// contents in clear. With an encrypt key the signature must be right, except
// that an encrypted challenge need not have one; with a token the token must be. The
// callbacks of old cards are signed with the token, and theirs is another one.
// A signature is checked before anything is parsed or decrypted.
func (s *Server) verify(r *http.Request, body []byte) (plain []byte, e envelope, err error) {
	old := r.URL.Path == CardPath && s.oldCard(r.Header, body)
	if old && !isFresh(r.Header) {
		return nil, e, errTimestamp
	}
	signature := r.Header.Get("X-Lark-Signature")
	if s.EncryptKey != "" && signature != "" && !old {
		want := feishu.Sign(r.Header.Get("X-Lark-Request-Timestamp"), r.Header.Get("X-Lark-Request-Nonce"), s.EncryptKey,
			body)
		if !same(signature, want) {
			return nil, e, errSignature
		}
	}
	if json.Unmarshal(body, &e) != nil {
		return nil, e, errNoJSON
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

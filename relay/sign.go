package relay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// ErrBadSignature is wrapped by every error of [Verify].
var ErrBadSignature = errors.New("bad signature")

// Sign returns line, an encoded message without a signature, with its `sig`
// field: the HMAC-SHA256 of the message in the canonical form of RFC 8785, in
// lower-case hex.
func Sign(line []byte, secret string) ([]byte, error) {
	mac, err := mac(line, secret)
	if err != nil {
		return nil, fmt.Errorf("sign message: %w", err)
	}
	signed := make([]byte, 0, len(line)+80)
	signed = append(signed, line[:len(line)-1]...) // without the closing brace
	return fmt.Appendf(signed, `,"sig":"%s"}`, hex.EncodeToString(mac)), nil
}

// Verify checks the signature of line as it came, fields that we do not know
// included.
func Verify(line []byte, secret string) error {
	if !utf8.Valid(line) {
		return fmt.Errorf("%w: not UTF-8", ErrBadSignature)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, withoutText(err))
	}
	var sig string
	if json.Unmarshal(fields["sig"], &sig) != nil || sig == "" {
		return fmt.Errorf("%w: the message is not signed", ErrBadSignature)
	}
	delete(fields, "sig")
	unsigned, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, withoutText(err))
	}
	want, err := mac(unsigned, secret)
	if err != nil {
		return fmt.Errorf("%w: no canonical form", ErrBadSignature)
	}
	got, err := hex.DecodeString(sig)
	if err != nil || !hmac.Equal(got, want) {
		return fmt.Errorf("%w: it does not match", ErrBadSignature)
	}
	return nil
}

func mac(message []byte, secret string) ([]byte, error) {
	canonical, err := jcs.Transform(message)
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(canonical)
	return h.Sum(nil), nil
}

package relay

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
// included. A line that names a field twice is refused: of two, readers might
// take the one that was not signed.
func Verify(line []byte, secret string) error {
	if !utf8.Valid(line) {
		return fmt.Errorf("%w: not UTF-8", ErrBadSignature)
	}
	fields, err := members(line)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
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

// members takes the JSON object line apart.
func members(line []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("no JSON object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, withoutText(err)
		}
		key := fmt.Sprint(name) // always a string here
		if _, twice := fields[key]; twice {
			return nil, errors.New("a field stands twice")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, withoutText(err)
		}
		fields[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, withoutText(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON object")
	}
	return fields, nil
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

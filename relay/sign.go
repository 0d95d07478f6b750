package relay

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// ErrBadSignature is wrapped by every error of [Verify].
var ErrBadSignature = errors.New("bad signature")

// ErrUnsignable is wrapped by every error of [Sign].
var ErrUnsignable = errors.New("the message cannot be signed")

// Fingerprint returns a value by which secrets can be compared without showing them: 32 bits, in
// hex, of an HMAC keyed with the secret. It is "" without a secret.
func Fingerprint(secret string) string {
	if secret == "" {
		return ""
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("feishu-relay RELAY_SECRET fingerprint"))
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// Sign returns line, an encoded message without a signature, with its `sig`
// field: the HMAC-SHA256 of the message in the canonical form of RFC 8785, in
// lower-case hex.
func Sign(line []byte, secret string) ([]byte, error) {
	mac, err := mac(line, secret)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsignable, err)
	}
	signed := make([]byte, 0, len(line)+80)
	signed = append(signed, line[:len(line)-1]...) // without the closing brace
	return fmt.Appendf(signed, `,"sig":"%s"}`, hex.EncodeToString(mac)), nil
}

// Verify checks the signature of line as received, including fields unknown
// here. A line that has a field twice is refused: readers might use the one
// that was not signed.
func Verify(line []byte, secret string) error {
	if !utf8.Valid(line) {
		return fmt.Errorf("%w: not UTF-8", ErrBadSignature)
	}
	unsigned, sig, ok := cutSignature(line)
	if !ok {
		var err error
		if unsigned, sig, err = takeSignature(line); err != nil {
			return fmt.Errorf("%w: %w", ErrBadSignature, err)
		}
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

// cutSignature cuts the signature off the end of a line, where [Sign] puts it. ok is false if the
// signature is elsewhere, or also elsewhere. [mac] finds other fields that occur twice.
func cutSignature(line []byte) (unsigned []byte, sig string, ok bool) {
	const before, behind = `,"sig":"`, `"}`
	at := len(line) - len(before) - 2*sha256.Size - len(behind)
	if at < 1 || !bytes.HasPrefix(line[at:], []byte(before)) || !bytes.HasSuffix(line, []byte(behind)) ||
		bytes.Contains(line[:at], []byte(`sig"`)) || !json.Valid(line) {
		return nil, "", false
	}
	unsigned = append(bytes.Clone(line[:at]), '}')
	return unsigned, string(line[at+len(before) : len(line)-len(behind)]), true
}

// takeSignature removes the signature from a line, at any place in it.
func takeSignature(line []byte) (unsigned []byte, sig string, err error) {
	var fields map[string]json.RawMessage
	if _, err := jcs.Transform(line); err != nil { // also of a field that occurs twice
		return nil, "", errors.New("no canonical form")
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, "", withoutText(err)
	}
	if json.Unmarshal(fields["sig"], &sig) != nil || sig == "" {
		return nil, "", errors.New("the message is not signed")
	}
	delete(fields, "sig")
	if unsigned, err = json.Marshal(fields); err != nil {
		return nil, "", withoutText(err)
	}
	return unsigned, sig, nil
}

func mac(message []byte, secret string) ([]byte, error) {
	canonical, err := jcs.Transform(message)
	if err != nil {
		return nil, err
	}
	if err := checkNumbers(message); err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(canonical)
	return h.Sum(nil), nil
}

// checkNumbers refuses a number that the canonical form of message may round to the
// nearest double: a message with other digits there would have the same signature.
func checkNumbers(message []byte) error {
	const inNumber = "+-.0123456789Ee"
	for i := 0; i < len(message); i++ {
		switch c := message[i]; {
		case c == '"':
			for i++; message[i] != '"'; i++ {
				if message[i] == '\\' {
					i++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(message) && strings.IndexByte(inNumber, message[end]) >= 0 {
				end++
			}
			if !exact(string(message[i:end])) {
				return errors.New("a number is beyond 2^53, or not written as the canonical form writes it; write it as a string")
			}
			i = end - 1
		}
	}
	return nil
}

// exact reports whether a JSON number is certainly kept by the canonical form: it is not beyond
// 2^53, and it is short or written as that form writes it.
func exact(number string) bool {
	double, err := strconv.ParseFloat(number, 64)
	if err != nil || math.Abs(double) > 1<<53 {
		return false
	}
	if len(number) < 16 && !strings.ContainsAny(number, "Ee") {
		return true // a double keeps 15 digits
	}
	written, err := json.Marshal(double)
	return err == nil && string(written) == number
}

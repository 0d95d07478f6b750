// Package plainjson reads and writes lines of JSON of the form that our own programs write:
// no spaces, known keys, few kinds of values. It is several times as fast as encoding/json
// and takes little memory, which counts because each sidecar reads the lines of all others.
// What is of another form is refused, for the caller to leave it to encoding/json; what
// is accepted means the same there.
package plainjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// Scanner cuts a line into its parts. Each method takes a part from where the one before
// ended, and after a false the scanner is of no more use.
type Scanner struct {
	line []byte
	at   int
}

// Scan returns a scanner at the beginning of a line, which is not changed.
func Scan(line []byte) Scanner { return Scanner{line: line} }

// Text is a string in a line.
type Text struct {
	Raw   []byte // between the quotes; a part of the line
	At    int    // where Raw begins in the line
	Plain bool   // Raw is the string itself: it has no escapes
}

// String returns a copy; it fails on an escape that JSON does not know.
func (t *Text) String() (s string, ok bool) {
	if t.Plain {
		return string(t.Raw), true
	}
	quoted := t.Raw[:len(t.Raw)+1] // its closing quote is behind it
	err := json.Unmarshal(append([]byte{'"'}, quoted...), &s)
	return s, err == nil
}

// Done reports whether the line ends here.
func (s *Scanner) Done() bool { return s.at == len(s.line) }

// Byte takes c.
func (s *Scanner) Byte(c byte) bool {
	if s.at < len(s.line) && s.line[s.at] == c {
		s.at++
		return true
	}
	return false
}

// Text takes a string. It fails on what no string may contain, and on bytes that are not UTF-8.
func (s *Scanner) Text() (t Text, ok bool) {
	if !s.Byte('"') {
		return t, false
	}
	end := endOfString(s.line[s.at:])
	if end < 0 {
		return t, false
	}
	t.Raw, t.At = s.line[s.at:s.at+end], s.at
	s.at += end + 1
	var bits byte
	for _, c := range t.Raw {
		if c < 0x20 {
			return t, false
		}
		bits |= c
	}
	if bits >= utf8.RuneSelf && !utf8.Valid(t.Raw) {
		return t, false
	}
	t.Plain = bytes.IndexByte(t.Raw, '\\') < 0
	return t, t.Plain || knownEscapes(t.Raw)
}

// Key takes the name of a field and the colon behind it. It fails on one with escapes.
func (s *Scanner) Key() (key []byte, ok bool) {
	t, ok := s.Text()
	return t.Raw, ok && t.Plain && s.Byte(':')
}

// Number takes a whole number of at most 15 digits, without sign and leading zeros.
func (s *Scanner) Number() (n int64, ok bool) {
	start := s.at
	for s.at < len(s.line) && s.line[s.at] >= '0' && s.line[s.at] <= '9' && s.at-start < 15 {
		n = n*10 + int64(s.line[s.at]-'0')
		s.at++
	}
	digits := s.at - start
	return n, digits > 0 && (digits == 1 || s.line[start] != '0')
}

// Millis is Number for a time in Unix milliseconds; it fails on what may be seconds.
func (s *Scanner) Millis() (n int64, ok bool) {
	n, ok = s.Number()
	return n, ok && (n < 1e9 || n >= 1e11)
}

// Scalar takes a string, a whole number, true, false or null, and returns it as it is in
// the line.
func (s *Scanner) Scalar() (raw []byte, ok bool) {
	start := s.at
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(s.line[s.at:], []byte(word)) {
			s.at += len(word)
			return s.line[start:s.at], true
		}
	}
	if s.at < len(s.line) && s.line[s.at] == '"' {
		_, ok = s.Text()
	} else {
		_, ok = s.Number()
	}
	return s.line[start:s.at], ok
}

// IsScalar reports whether value is what [Scanner.Scalar] takes.
func IsScalar(value []byte) bool {
	s := Scan(value)
	_, ok := s.Scalar()
	return ok && s.Done()
}

func knownEscapes(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return true
		}
		b = b[i+1:]
		if b[0] == 'u' {
			if len(b) < 5 || !isHex(b[1:5]) {
				return false
			}
		} else if bytes.IndexByte([]byte(`"\/bfnrt`), b[0]) < 0 {
			return false
		}
		b = b[1:] // what was escaped may be a backslash
	}
}

func isHex(b []byte) bool {
	_, err := strconv.ParseUint(string(b), 16, 16)
	return err == nil
}

// endOfString returns the place of the first quote that is not escaped, or -1.
func endOfString(b []byte) int {
	for from := 0; ; from++ {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		from += i
		escapes := 0
		for escapes < from && b[from-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return from
		}
	}
}

// AppendString appends s as a JSON string, as encoding/json writes it where it does not
// escape HTML.
func AppendString(to []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	to = append(to, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			to = append(to, s[done:i]...)
			switch c {
			case '"', '\\':
				to = append(to, '\\', c)
			case '\b':
				to = append(to, `\b`...)
			case '\f':
				to = append(to, `\f`...)
			case '\n':
				to = append(to, `\n`...)
			case '\r':
				to = append(to, `\r`...)
			case '\t':
				to = append(to, `\t`...)
			default:
				to = append(to, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			done = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			to = append(append(to, s[done:i]...), `\ufffd`...)
			done = i + size
		case r == '\u2028' || r == '\u2029': // no line may end there in JavaScript
			to = append(append(to, s[done:i]...), `\u202`...)
			to = append(to, hexDigits[r&15])
			done = i + size
		}
		i += size
	}
	return append(append(to, s[done:]...), '"')
}

// Line is a line that is being written.
type Line []byte

// Text appends what stands before a string, such as a field's name, and the string.
func (l *Line) Text(before, value string) { *l = AppendString(append(*l, before...), value) }

// Some is Text unless the string is empty.
func (l *Line) Some(before, value string) {
	if value != "" {
		l.Text(before, value)
	}
}

// Number appends what stands before a number, and the number.
func (l *Line) Number(before string, n int64) { *l = strconv.AppendInt(append(*l, before...), n, 10) }

// SomeNumber is Number unless that is 0.
func (l *Line) SomeNumber(before string, n int64) {
	if n != 0 {
		l.Number(before, n)
	}
}

// Raw appends text as it is.
func (l *Line) Raw(text string) { *l = append(*l, text...) }

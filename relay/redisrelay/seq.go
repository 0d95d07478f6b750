package redisrelay

import (
	"encoding/json"
	"strings"

	"feishu-relay/relay"
)

// numbered reports whether line is a JSON object with a seq above 0, which is
// what tells a sidecar's message from another program's.
//
// It looks at the top level only and skips values by their brackets and
// quotes, without decoding: every line passes here when it is published, and
// again in each sidecar that hears the channel. What is no JSON may be judged
// either way; sender and reader ask the same function, so they agree on it.
func numbered(line string) bool {
	found := false
	rest, ok := cutByte(line, '{')
	for ok {
		var key, value string
		if rest, _ = cutByte(rest, ','); len(rest) == 0 || rest[0] != '"' {
			return found
		}
		if key, rest, ok = cutString(rest); !ok {
			return false
		}
		if rest, ok = cutByte(rest, ':'); !ok {
			return false
		}
		if value, rest, ok = cutValue(rest); !ok {
			return false
		}
		if isSeq(key) {
			found = isPositive(value)
		}
	}
	return false
}

// cutByte cuts c and the white space around it off the front of b.
func cutByte(b string, c byte) (rest string, ok bool) {
	if b = skipSpace(b); len(b) == 0 || b[0] != c {
		return b, false
	}
	return skipSpace(b[1:]), true
}

func skipSpace(b string) string {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// isPositive tells what [relay.Seq] makes of a value; the plain number that
// sidecars write needs no parsing.
func isPositive(value string) bool {
	value = strings.TrimRight(value, " \t\r\n")
	if len(value) > 0 && len(value) < 18 && value[0] >= '1' && value[0] <= '9' &&
		!strings.ContainsFunc(value, func(r rune) bool { return r < '0' || r > '9' }) {
		return true
	}
	var n relay.Seq
	return n.UnmarshalJSON([]byte(value)) == nil && n > 0
}

func isSeq(quoted string) bool {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted == `"seq"`
	}
	var name string
	return json.Unmarshal([]byte(quoted), &name) == nil && name == "seq"
}

// cutString cuts a quoted string, quotes included, off the front of b.
func cutString(b string) (quoted, rest string, ok bool) {
	for i := 1; i < len(b); {
		j := strings.IndexByte(b[i:], '"')
		if j < 0 {
			break
		}
		end := i + j
		escapes := 0
		for b[end-1-escapes] == '\\' {
			escapes++ // stops at the opening quote
		}
		if escapes%2 == 0 {
			return b[:end+1], b[end+1:], true
		}
		i = end + 1
	}
	return "", "", false
}

// cutValue cuts a value off the front of b, up to the comma or bracket behind it.
func cutValue(b string) (value, rest string, ok bool) {
	if len(b) > 0 && b[0] == '"' {
		return cutString(b)
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			quoted, _, ok := cutString(b[i:])
			if !ok {
				return "", "", false
			}
			i += len(quoted) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return b[:i], b[i:], true
			}
			depth--
		case ',':
			if depth == 0 {
				return b[:i], b[i:], true
			}
		}
	}
	return "", "", false
}

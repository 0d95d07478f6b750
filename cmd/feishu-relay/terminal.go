package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// SGR codes of what is set off on a terminal.
const (
	dim    = "2"
	bold   = "1"
	green  = "32"
	yellow = "33"
	red    = "31"
)

// botColours are told apart on dark and on light ground.
var botColours = [...]string{"36", "35", "33", "32", "34", "31", "96", "95", "93", "92", "94", "91"}

// paint sets text off where its reader is a person at a terminal.
type paint struct{ on bool }

// forceColour is the variable by which programs paint although they write to a pipe, as `up` wants its
// sidecars to.
const forceColour = "CLICOLOR_FORCE"

// newPaint paints if w is a terminal, or forceColour is set, and NO_COLOR does not forbid it.
func newPaint(w io.Writer) *paint {
	forced := os.Getenv(forceColour)
	return &paint{on: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" &&
		(isTerminal(w) || forced != "" && forced != "0")}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p *paint) text(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// bot is the colour of a bot, the same in each run. More bots than colours share them.
func (p *paint) bot(name string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // never fails
	return botColours[h.Sum32()%uint32(len(botColours))]
}

// neutral makes text that somebody else wrote safe to show in one line: what a
// terminal would obey (escapes, also the eight-bit ones), what changes the
// order of reading and what cannot be seen is written out, as ␛ or \u202e.
func neutral(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune('␀' + r)
		case r == 0x7f:
			b.WriteRune('␡')
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// obeyed tells the runes that are not simply seen. The two joiners are left:
// emoji and several scripts are written with them.
func obeyed(r rune) bool {
	return !unicode.IsGraphic(r) && r != '\u200c' && r != '\u200d' || r == '\u2028' || r == '\u2029'
}

// neutralJSON does the same to a JSON text, whose strings may hold what a
// terminal obeys, and leaves its meaning as it is.
func neutralJSON(line []byte) []byte {
	keeps := func(r rune) bool { return !obeyed(r) || r == '\n' }
	if !bytes.ContainsFunc(line, func(r rune) bool { return !keeps(r) }) {
		return line
	}
	out := make([]byte, 0, len(line))
	for _, r := range string(line) {
		switch {
		case keeps(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

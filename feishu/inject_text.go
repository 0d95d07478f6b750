package feishu

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxInjectedMentions is how many others a text may address; further ones stay
// plain names.
const maxInjectedMentions = 50

// addressed returns the text with the keys in it, and the mentions that they
// name, the receiver's first.
func (in *Injected) addressed() (string, []injectedMention) {
	var named []addressee
	var list []injectedMention
	if in.MentionsSelf {
		list = append(list, injectedMention{Key: "@_user_1", ID: injectedID{OpenID: in.Self.OpenID},
			MentionedType: SenderBot, Name: in.Self.Name, TenantKey: in.TenantKey})
		named = append(named, addressee{name: in.Self.Name, at: 0})
	}
	all := slices.Clone(list)
	for _, m := range in.Mentions[:min(len(in.Mentions), maxInjectedMentions)] {
		if m.OpenID == "" || m.OpenID == in.Self.OpenID {
			continue
		}
		named = append(named, addressee{name: m.Name, at: len(all)})
		all = append(all, injectedMention{ID: injectedID{UnionID: m.UnionID, UserID: m.UserID, OpenID: m.OpenID},
			MentionedType: m.Type, Name: m.Name, TenantKey: in.TenantKey})
	}
	body := harmless(in.Text)
	text, used := withKeys(body, named, len(all), len(list))
	for i := len(list); i < len(all); i++ {
		if key := used[i]; key != "" {
			all[i].Key = key
			list = append(list, all[i])
		}
	}
	slices.SortStableFunc(list, func(a, b injectedMention) int { return cmp.Or(len(a.Key)-len(b.Key), strings.Compare(a.Key, b.Key)) })
	if in.MentionsSelf && used[0] == "" {
		text = strings.TrimRight("@_user_1 "+text, " ")
	}
	return noCommand(prefixSigns.Replace(oneLine(in.Prefix)) + text), list
}

// addressee is one whose name may stand in a text: number at of the mentions.
type addressee struct {
	name string
	at   int
}

// withKeys writes a key, with spaces around it as Koishi needs (docs/feishu.md 3.5),
// for each "@Name" in text, longest name first; not in code and not in e-mail
// addresses. It returns the key of each of n mentions, "" for those that the text
// does not show; the first fixed ones are numbered in their order, the others as
// they appear.
func withKeys(text string, named []addressee, n, fixed int) (string, []string) {
	keys := make([]string, n)
	next := fixed
	named = slices.DeleteFunc(slices.Clone(named), func(a addressee) bool { return strings.TrimSpace(a.name) == "" })
	slices.SortStableFunc(named, func(a, b addressee) int { return len(b.name) - len(a.name) })
	if len(named) == 0 {
		return text, keys
	}
	code := codeRE.FindAllStringIndex(text, -1)
	var b strings.Builder
	last := ' ' // the rune that b ends in
	for i := 0; i < len(text); {
		if len(code) > 0 && i == code[0][0] {
			b.WriteString(text[i:code[0][1]])
			i, code, last = code[0][1], code[1:], '`'
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		who := -1
		if r == '@' && !wordRune(last) {
			who = slices.IndexFunc(named, func(a addressee) bool { return shows(text[i+1:], a.name) })
		}
		if who < 0 {
			b.WriteString(text[i : i+size])
			i, last = i+size, r
			continue
		}
		at := named[who].at
		if keys[at] == "" {
			number := at + 1
			if at >= fixed {
				next++
				number = next
			}
			keys[at] = fmt.Sprintf("@_user_%d", number)
		}
		if !unicode.IsSpace(last) {
			b.WriteByte(' ')
		}
		b.WriteString(keys[at])
		i += 1 + len(named[who].name)
		last = '_'
		if r, _ := utf8.DecodeRuneInString(text[i:]); i < len(text) && !unicode.IsSpace(r) {
			b.WriteByte(' ')
			last = ' '
		}
	}
	return b.String(), keys
}

// shows reports whether text begins with name and the name ends there: "@Ann" is
// not "@Anna", while Chinese names need no border.
func shows(text, name string) bool {
	rest, ok := strings.CutPrefix(text, name)
	if !ok {
		return false
	}
	return !wordRune(lastRune(name)) || !wordRune(firstRune(rest))
}

func firstRune(s string) rune { r, _ := utf8.DecodeRuneInString(s); return r }
func lastRune(s string) rune  { r, _ := utf8.DecodeLastRuneInString(s); return r }

// wordRune reports whether r is one of the signs that make words with borders.
func wordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

var (
	poseRE      = regexp.MustCompile(`(?i)@(_user_|_all)|<(/?at)([\s>/]|$)`)
	prefixSigns = strings.NewReplacer("@", "＠", "<", "＜")
	leadRE      = regexp.MustCompile(`^(?:@_user_[0-9]+|[\s\p{Z}\p{C}])*`)
	commandRE   = regexp.MustCompile(`^[/／!！][\s\p{Z}\p{C}]*[\pL\pN_]`)
)

// harmless writes what would be a key or a tag so that it is none, with the
// full-width form of its first sign: it is still read, but names nobody.
func harmless(text string) string {
	return replaceAll(poseRE, strings.ToValidUTF8(text, "\uFFFD"), func(m []string, _ string) string {
		if m[1] != "" {
			return "＠" + m[1]
		}
		return "＜" + m[2] + m[3]
	})
}

// noCommand keeps a text that begins like a command, behind the keys that
// frameworks take away first, from being one: by an invisible sign.
func noCommand(text string) string {
	lead := len(leadRE.FindString(text))
	if !commandRE.MatchString(text[lead:]) {
		return text
	}
	return text[:lead] + "\u2060" + text[lead:]
}

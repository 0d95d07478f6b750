package feishu

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"feishu-relay/mention"
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
	slices.SortStableFunc(list, func(a, b injectedMention) int {
		return cmp.Or(len(a.Key)-len(b.Key), strings.Compare(a.Key, b.Key))
	})
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

// withKeys writes a key, with spaces around it as Koishi needs (docs/feishu.md 3.5), for each "@Name" in
// text, as package mention finds them; of names that differ only in letter case the one that is written exactly
// so is meant. It returns the key of each of n mentions, "" for those that the text does not show; the first
// fixed ones are numbered in their order, the others as they appear.
func withKeys(text string, named []addressee, n, fixed int) (string, []string) {
	keys := make([]string, n)
	next := fixed
	var anyone mention.Agent // has all names, so that none is ambiguous
	agents := make([]mention.Agent, 0, len(named))
	for _, a := range named {
		agents = append(agents, mention.Agent{ID: a.name})
		anyone.Names = append(anyone.Names, a.name)
		anyone.ID = cmp.Or(anyone.ID, a.name)
	}
	each := mention.NewDirectory(agents)
	// who returns the index in named of whom a text that is "@Name" names, -1 for several.
	who := func(text string) int {
		_, size := utf8.DecodeRuneInString(text)
		exact := slices.IndexFunc(named, func(a addressee) bool { return a.name == text[size:] })
		if exact >= 0 {
			return exact
		}
		name, _ := each.Prefix(text)
		return slices.IndexFunc(named, func(a addressee) bool { return name != "" && a.name == name })
	}
	var b strings.Builder
	end := 0 // of what is written
	for _, hit := range mention.NewDirectory([]mention.Agent{anyone}).Plain(text) {
		i := who(text[hit.From:hit.To])
		if i < 0 {
			continue
		}
		at := named[i].at
		if keys[at] == "" {
			number := at + 1
			if at >= fixed {
				next++
				number = next
			}
			keys[at] = fmt.Sprintf("@_user_%d", number)
		}
		b.WriteString(text[end:hit.From])
		if before, _ := utf8.DecodeLastRuneInString(text[end:hit.From]); hit.From > end && !unicode.IsSpace(before) {
			b.WriteByte(' ')
		}
		b.WriteString(keys[at])
		if after, _ := utf8.DecodeRuneInString(text[hit.To:]); hit.To < len(text) && !unicode.IsSpace(after) {
			b.WriteByte(' ')
		}
		end = hit.To
	}
	return b.String() + text[end:], keys
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

package mention

import (
	"strings"
	"unicode/utf8"

	"feishu-relay/feishu/content"
	"feishu-relay/internal/runes"
)

// hit is an agent that was found, with the record that names it.
type hit struct {
	agent int
	ref   Ref
}

// scanner searches one message.
type scanner struct {
	dir  *Directory
	list []Ref           // the message's records
	refs map[string]Ref  // the records with a key, by key
	keys map[string]bool // which of these keys are in the text, in code too
	hits []hit
	hit  []bool // by agent: whether it is in hits
	all  bool
	// plain, if not nil, is called for each name after an '@' with its
	// position.
	plain func(from, to int, name entry)
}

func (d *Directory) scan(t Text) *scanner {
	s := &scanner{
		dir:  d,
		list: t.Refs[:min(len(t.Refs), MaxRefs)],
		refs: map[string]Ref{},
		keys: map[string]bool{},
		hit:  make([]bool, len(d.agents)),
	}
	for _, r := range s.list {
		if _, twice := s.refs[r.Key]; r.Key != "" && !twice {
			s.refs[r.Key] = r
		}
	}
	for _, b := range parts(t) {
		s.block(b)
	}
	for _, r := range s.list {
		// A record whose placeholder is in the text was found there, or is in
		// code and does not count. A record that the sender resolved always
		// counts.
		if _, resolved := d.byAgent[r.AgentName]; resolved || !s.keys[r.Key] {
			s.found(d.ofRef(r), r)
		}
	}
	return s
}

// found adds an agent, and reports whether agent is one or everyone.
func (s *scanner) found(agent int, r Ref) bool {
	switch {
	case agent == everyone:
		s.all = true
	case agent < 0:
		return false
	case !s.hit[agent]:
		s.hit[agent] = true
		s.hits = append(s.hits, hit{agent, r})
	}
	return true
}

// shown records that key is in the text.
func (s *scanner) shown(key string) (Ref, bool) {
	r, ok := s.refs[key]
	if ok {
		s.keys[key] = true
	}
	return r, ok
}

// key adds the agent that the placeholder key refers to.
func (s *scanner) key(key string) bool {
	r, ok := s.shown(key)
	return ok && s.found(s.dir.ofRef(r), r)
}

// block searches a text that is read on its own.
func (s *scanner) block(text string) {
	if !strings.Contains(text, "@") && !strings.Contains(text, "＠") && !strings.Contains(text, "<") {
		return
	}
	hidden := hide(text)
	end := 0 // of the last mention: the next may follow it directly
	for i := 0; i < len(text); {
		size := atSign(text[i:])
		if n := placeholder(text[i:]); n > 0 {
			s.shown(text[i : i+n])
		}
		switch {
		case hidden[i] || size == 0 && text[i] != '<':
			i++
		case text[i] == '<':
			tag, length := content.ParseTag(text[i:])
			if length == 0 {
				i++
				continue
			}
			s.tag(tag)
			i += length
			end = i
		default:
			next := s.mention(text, hidden, i, i+size, end)
			if next > i+size {
				end = next
			}
			i = next
		}
	}
}

// mention reads the name after the '@' at text[at:name] and returns where to
// continue. The previous mention ended at last.
func (s *scanner) mention(text string, hidden []bool, at, name, last int) int {
	if n := placeholder(text[at:]); n > 0 {
		// The platform wrote it, so the text before it does not matter.
		s.key(text[at : at+n])
		if s.plain != nil {
			s.plain(at, at+n, s.dir.names.find(text[at:at+n]))
		}
		return at + n
	}
	if at != last && !startsWell(text, at) {
		return name
	}
	found, end := s.dir.names.match(text, hidden, name)
	s.found(found.agent, Ref{})
	if s.plain != nil {
		s.plain(at, end, found)
	}
	return end
}

// tag adds the agent of an at-tag: by its key, by its ids, else by its name.
func (s *scanner) tag(t content.Tag) {
	if t.Key != "" && s.key(t.Key) {
		return
	}
	known := false
	for _, id := range t.IDs {
		if s.key(id) || s.found(lookUp(s.dir.byID, id), Ref{OpenID: id, Name: t.Name, Key: t.Key}) {
			known = true
		}
	}
	if known || len(t.IDs) > 1 {
		return
	}
	r := Ref{Name: t.Name, Key: t.Key}
	if len(t.IDs) == 1 && !strings.HasPrefix(t.IDs[0], "@") {
		r.OpenID = t.IDs[0]
	}
	s.found(s.dir.names.find(t.Name).agent, r)
}

// atSign returns the length of the '@' or '＠' that s begins with, or 0.
func atSign(s string) int {
	if r, size := utf8.DecodeRuneInString(s); r == '@' || r == '＠' {
		return size
	}
	return 0
}

// placeholder returns the length of the "@_user_1" that s begins with, or 0.
func placeholder(s string) int {
	rest, ok := strings.CutPrefix(s, "@_user_")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !ok || digits == 0 {
		return 0
	}
	return len(s) - len(rest) + digits
}

// clip cuts s to limit bytes, and drops a word cut in the middle, which would
// look like a shorter name.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.TrimRightFunc(runes.Cut(s, limit), wordRune)
}

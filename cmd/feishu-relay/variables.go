package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/internal/spelling"
)

// ourPrefixes begin no variable of anybody else's.
var ourPrefixes = []string{"GATEWAY_", "RELAY_", "INJECT_", "BOT_REPLY_"}

// ofKubernetes are variables that Kubernetes sets for a Service, of whatever name: one named "gateway" gives
// GATEWAY_SERVICE_HOST and GATEWAY_PORT_8788_TCP_ADDR.
var ofKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|` +
	`PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ourWords are the words by which a variable looks like ours. Words that many programs use in their variables, such as
// APP, KEY or OPENAI, are not among them.
var ourWords = []string{"FEISHU", "GATEWAY", "REDIS", "RELAY", "INJECT", "CONNECTOR", "STEER", "MAILBOX", "REPLY",
	"TRANSCRIPT", "DEDUP", "HEARTBEAT", "DELEGATES"}

// checkEnvironment looks for variables that were meant for us and are not read. Their values are not looked at.
func checkEnvironment(environ []string) (out []notice) {
	set := map[string]bool{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value != ""
	}
	known := variableNames()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if name == "" || slices.Contains(known, name) || ofKubernetes.MatchString(name) {
			continue
		}
		meant, edits := nearest(name, known)
		part, ours := shortened(name, known), prefixOf(name) != ""
		slips := min(1+len(name)/12, 2) // of the hand: two in a long name, since HOST_NAME is two from BOT_NAME
		// A name of somebody else's may be as near to one of ours; where that one is set, it is left alone.
		switch {
		case part != "" && !set[part]:
			out = append(out, notice{"environment", "variable shortened", []any{name, part}})
		case edits <= slips && (ours || !set[meant]):
			out = append(out, notice{"environment", "variable misspelt", []any{name, meant}})
		case ours:
			out = append(out, notice{"environment", "variable unknown", []any{name, meant}})
		}
	}
	return out
}

func variableNames() (names []string) {
	for _, v := range variables() {
		names = append(names, v.name)
	}
	return names
}

// shortened returns the first known name that has all words of name and more, if these words look like ours: one of
// ourWords is among them, or they are three or more. FEISHU alone may be anybody's. "" is none.
func shortened(name string, known []string) string {
	words := strings.Split(strings.ToUpper(name), "_")
	ours := func(word string) bool { return slices.Contains(ourWords, word) }
	if name == "FEISHU" || slices.Contains(words, "") || len(words) < 3 && !slices.ContainsFunc(words, ours) {
		return ""
	}
	for _, k := range known {
		of := strings.Split(k, "_")
		if !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(of, word) }) {
			return k
		}
	}
	return ""
}

// prefixOf is the prefix of ours that the name begins with, or "".
func prefixOf(name string) string {
	for _, prefix := range ourPrefixes {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// nearest is the known name that is fewest edits away, whatever the case; of one with a prefix of ours, among those
// with the same.
func nearest(name string, known []string) (meant string, edits int) {
	name = strings.ToUpper(name)
	away := func(k string) int {
		if !strings.HasPrefix(k, prefixOf(name)) {
			return len(name) + len(k) // further than any
		}
		return spelling.Distance(name, k)
	}
	meant = slices.MinFunc(known, func(a, b string) int { return away(a) - away(b) })
	return meant, away(meant)
}

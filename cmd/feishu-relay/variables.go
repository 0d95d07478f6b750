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
		part, parts := shortened(name, known)
		slips := 1 // of the hand: two in a long name, since HOST_NAME is two from BOT_NAME
		if len(name) >= 12 {
			slips = 2
		}
		// A name of somebody else's may be as near to one of ours; where that one is set, it is left alone.
		switch prefixed := prefixOf(name) != ""; {
		case parts && !set[part]:
			out = append(out, notice{"environment", "variable shortened", []any{name, part}})
		case edits <= slips && (prefixed || !set[meant]):
			out = append(out, notice{"environment", "variable misspelt", []any{name, meant}})
		case prefixed:
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
// ourWords is among them, or they are three or more. FEISHU alone may be anybody's.
func shortened(name string, known []string) (meant string, found bool) {
	words := strings.Split(strings.ToUpper(name), "_")
	ours := func(word string) bool { return slices.Contains(ourWords, word) }
	if !slices.ContainsFunc(words, ours) && len(words) < 3 ||
		slices.Contains(words, "") || len(words) == 1 && words[0] == "FEISHU" {
		return "", false
	}
	at := slices.IndexFunc(known, func(k string) bool {
		of := strings.Split(k, "_")
		return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(of, word) })
	})
	if at < 0 {
		return "", false
	}
	return known[at], true
}

// prefixOf is the prefix of ours that the name begins with, or "".
func prefixOf(name string) string {
	at := slices.IndexFunc(ourPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	if at < 0 {
		return ""
	}
	return ourPrefixes[at]
}

// nearest is the known name that is fewest edits away, whatever the case; of one with a prefix of ours, among those
// with the same.
func nearest(name string, known []string) (meant string, edits int) {
	upper := strings.ToUpper(name)
	prefix := prefixOf(upper)
	for _, to := range known {
		away := len(upper) + len(to) // further than any
		if strings.HasPrefix(to, prefix) {
			away = spelling.Distance(upper, to)
		}
		if meant == "" || away < edits {
			meant, edits = to, away
		}
	}
	return meant, edits
}

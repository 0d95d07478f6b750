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

// checkEnvironment looks for variables that were meant for us and are not read: those that begin as only ours do, and
// those that are nearly one of ours. Their values are not looked at.
func checkEnvironment(environ []string) (out []notice) {
	set, known := map[string]bool{}, variableNames()
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value != ""
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if slices.Contains(known, name) || ofKubernetes.MatchString(name) {
			continue
		}
		meant := nearest(name, known)
		slips := min(1+len(name)/12, 2) // of the hand: two in a long name, since HOST_NAME is two from BOT_NAME
		near := spelling.Near(strings.ToUpper(name), meant, slips)
		ours := slices.ContainsFunc(ourPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		// A name of somebody else's may be as near to one of ours; where that one is set, it is left alone.
		switch {
		case near && (ours || !set[meant]):
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

// nearest is the known name that is fewest edits away, whatever the case.
func nearest(name string, known []string) string {
	away := func(k string) int { return spelling.Distance(strings.ToUpper(name), k) }
	return slices.MinFunc(known, func(a, b string) int { return away(a) - away(b) })
}

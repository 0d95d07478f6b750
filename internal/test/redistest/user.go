package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// The login of the user in docs/redis.md.
const (
	User     = "relay"
	Password = "password"
)

// StartRestricted runs a server that grants little: the user of docs/redis.md, whose name page is,
// and none of the commands CONFIG, INFO, SCRIPT, and HELLO, without which only RESP2 is spoken.
func StartRestricted(tb TB, page string) *Server {
	tb.Helper()
	rules := UserRules(tb, page)
	args := append([]string{"--user", User}, rules[1:]...) // a configuration's user begins without rights: no "reset"
	for _, command := range []string{"CONFIG", "SCRIPT", "HELLO"} {
		args = append(args, "--rename-command", command, "")
	}
	args = append(args, "--rename-command", "INFO", hiddenInfo) // for Commands
	return Start(tb, args...)
}

const hiddenInfo = "hidden-info" // INFO at a server of StartRestricted

// Commands are the names of the commands that a server of [StartRestricted] was given, such as "xinfo|stream".
func (s *Server) Commands(tb TB) (names []string) {
	tb.Helper()
	for line := range strings.Lines(s.ask(hiddenInfo, "commandstats")) {
		if name, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			name, _, _ = strings.Cut(name, ":")
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		tb.Fatal("the server does not tell its commands")
	}
	return names
}

// PageCommands are the commands that the page's section about them names, in the form of Commands.
func PageCommands(tb TB, page string) (names []string) {
	tb.Helper()
	_, section, _ := strings.Cut(read(tb, page), "\n## Commands")
	_, table, _ := strings.Cut(section, "\n| command |")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		column, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for i, word := range strings.Split(column, "`") {
			if i%2 == 1 {
				names = append(names, strings.ToLower(strings.ReplaceAll(word, " ", "|")))
			}
		}
	}
	if len(names) == 0 {
		tb.Fatal(page + " has no table of commands")
	}
	return names
}

// UserRules are what the page's line ACL SETUSER gives the user.
func UserRules(tb TB, page string) []string {
	tb.Helper()
	_, line, found := strings.Cut(read(tb, page), "\nACL SETUSER "+User+" ")
	if !found {
		tb.Fatal(page + " has no line that begins with ACL SETUSER " + User)
	}
	line, _, _ = strings.Cut(line, "\n")
	return Rules(strings.Fields(line)...)
}

// RestrictSentinel gives the user of docs/redis.md, whose name page is, the rights at a Sentinel that the page
// says are enough, and no other user any. It returns the parameters of a URL that log in there: none before Redis 6.2,
// whose Sentinels have no users.
func (s *Server) RestrictSentinel(tb TB, page string) (login string) {
	tb.Helper()
	if Before(6, 2) {
		return ""
	}
	_, rights, found := strings.Cut(strings.ReplaceAll(read(tb, page), "\n", " "), "Sentinels need no more than `")
	if !found {
		tb.Fatal(page + " does not say what Sentinels need")
	}
	rights, _, _ = strings.Cut(rights, "`")
	user := append([]string{"ACL", "SETUSER", User, "reset", "on", ">" + Password}, Rules(strings.Fields(rights)...)...)
	for _, command := range [][]string{user, {"ACL", "SETUSER", "default", "off"}} {
		if got := s.ask(command...); got != "OK" {
			tb.Fatal("ACL SETUSER at the Sentinel: " + got)
		}
	}
	return "?sentinel_username=" + User + "&sentinel_password=" + Password
}

func read(tb TB, page string) string {
	tb.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// Rules leaves those for channels out, which Redis has since 6.2.
func Rules(rules ...string) []string {
	if !Before(6, 2) {
		return rules
	}
	return slices.DeleteFunc(rules, func(rule string) bool {
		return strings.HasPrefix(rule, "&") || strings.HasSuffix(rule, "channels")
	})
}

// RestrictedURL is the server's address with the login of [StartRestricted]'s user.
func (s *Server) RestrictedURL() string {
	return strings.Replace(s.URL(), "://", "://"+User+":"+Password+"@", 1)
}

// Refused fails the test if the server refused a user something.
func (s *Server) Refused(tb TB) {
	tb.Helper()
	out, err := exec.Command("redis-cli", "-u", s.URL(), "ACL", "LOG").CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil || text != "" {
		tb.Fatal(fmt.Sprintf("ACL LOG, %v:\n%s", err, text))
	}
}

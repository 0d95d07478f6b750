package redistest

import (
	"fmt"
	"os"
	"os/exec"
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
	for _, command := range []string{"CONFIG", "INFO", "SCRIPT", "HELLO"} {
		args = append(args, "--rename-command", command, "")
	}
	return Start(tb, args...)
}

// UserRules are what the page's line ACL SETUSER gives the user.
func UserRules(tb TB, page string) []string {
	tb.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		tb.Fatal(err)
	}
	_, line, found := strings.Cut(string(text), "\nACL SETUSER "+User+" ")
	if !found {
		tb.Fatal(page + " has no line that begins with ACL SETUSER " + User)
	}
	line, _, _ = strings.Cut(line, "\n")
	return strings.Fields(line)
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

package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// formatVerbs are the verbs of a format of fmt.
var formatVerbs = regexp.MustCompile(`%(\[\d\])?0?\d?[a-z]`)

// folded is the text of a string with 7 in place of what varies; ok is false for what is not a text of words.
func folded(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return formatVerbs.ReplaceAllString(text, "7"), true
		}
	case *ast.BinaryExpr:
		left, ok := folded(e.X)
		if right, also := folded(e.Y); ok || also {
			return left + right, true
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			return folded(e.Args[0])
		}
	}
	return "7", false
}

// composed are texts of which the parts that vary have to be known, with an example.
var composed = map[string]string{
	"redis may throw away 7 when memory is short (maxmemory-policy 7)7": "redis may throw away claims, so that a " +
		"notice comes twice, and malformed mail when memory is short (maxmemory-policy volatile-lru)",
	"7 of 7 are used; writes are refused, or keys thrown away, 7": "" +
		"9 MiB of 9 MiB are used; writes are refused, or keys thrown away, now",
	"this host's clock is 7 7 that of 7": "this host's clock is 9s ahead of that of redis",
	"set FEISHU_BASE_URL to Feishu's address 7; a proxy on the way may ask for a sign-in": "set FEISHU_BASE_URL " +
		"to Feishu's address (Lark's is https://open.larksuite.com); a proxy on the way may ask for a sign-in",
	"set FEISHU_BASE_URL 7, or HTTPS_PROXY if Feishu is reached by a proxy": "set FEISHU_BASE_URL " +
		"(Lark's is https://open.larksuite.com), or HTTPS_PROXY if Feishu is reached by a proxy",
	"7 is not known: 7":            "who the bot is is not known: no answer in time",
	"7; in groups the bot hears 7": "9 are granted; in groups the bot hears everything people say",
	"the bot is in 77: 7":          "the bot is in 9 groups: Lab",
}

// What the probes of files, relay and Feishu find and how to fix it is shown in Chinese by init.
func TestFindingsOfInitAreTranslated(t *testing.T) {
	found := 0
	translates := func(e ast.Expr) {
		text, ok := folded(e)
		if !ok || !regexp.MustCompile("[a-z]{2} [a-z]").MatchString(text) {
			return // no words of ours, such as "7: 7"
		}
		if strings.HasPrefix(text, "chmod ") || strings.HasPrefix(text, "redis-cli ") {
			return // a command
		}
		found++
		text = cmp.Or(composed[text], text)
		if translated(text) == text {
			t.Errorf("not translated: %q", text)
		}
	}
	for _, name := range []string{"check_files.go", "check_disk.go", "check_redis.go", "check_shared.go",
		"check_peers.go", "check_feishu.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return n.Name.Name != "checkGroups" && n.Name.Name != "checkManagers" // which init does not run
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok &&
					slices.Contains([]string{"well", "unseen", "warning", "failure", "found"}, f.Name) {
					translates(n.Args[0])
					if len(n.Args) > 1 && f.Name != "well" {
						translates(n.Args[1])
					}
				}
			case *ast.AssignStmt:
				if v, ok := n.Lhs[0].(*ast.Ident); ok && v.Name == "mend" {
					translates(n.Rhs[0])
				}
			case *ast.ReturnStmt:
				if len(n.Results) == 1 {
					if _, isCall := n.Results[0].(*ast.CallExpr); !isCall {
						translates(n.Results[0])
					}
				}
			}
			return true
		})
	}
	if found < 100 {
		t.Errorf("only %d texts", found)
	}
}

func TestTranslatedFindings(t *testing.T) {
	for _, c := range []struct{ english, want string }{
		{"/data/relay can be written, locks work", "/data/relay 可写，文件锁有效"},
		{"bot-relay:log holds 2 messages, the newest is 3 minutes old", "bot-relay:log 里有 2 条消息，最新的一条是 3 分钟前的"},
		{"run this check as the sidecar's user; if it is: put RELAY_DIR on a file system with locks",
			"请以边车的用户运行检查；如果已经是：把 RELAY_DIR 放到支持文件锁的文件系统上"},
		{"2 other agents were seen: b (3 minutes ago), c (1 day ago)", "见过 2 个其他智能体：b（3 分钟前），c（1 天前）"},
		{"open /data: permission denied", "open /data: permission denied"},
	} {
		if got := translated(c.english); got != c.want {
			t.Errorf("%q: %q, want %q", c.english, got, c.want)
		}
	}
	for _, p := range phrases {
		if en, zh := len(formatVerbs.FindAllString(p.en, -1)), strings.Count(p.zh, "%s"); en != zh {
			t.Errorf("%q has %d parts that vary, its Chinese %d", p.en, en, zh)
		}
	}
}

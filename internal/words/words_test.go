package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	verb    = regexp.MustCompile(`%(\[\d\])?[.\d]*[a-z]`)
	aWord   = regexp.MustCompile(`(^|[ ,;:(])[a-z]{2,}([ ,;:.)]|$)`)
	han     = regexp.MustCompile(`\p{Han}`)
	command = regexp.MustCompile("`[^`]*`|^(chmod|redis-cli|feishu-relay) .*")
)

// Every text is there in both languages, with the same things in it.
func TestBothLanguages(t *testing.T) {
	for key, text := range catalogue() {
		if strings.HasPrefix(key, "flag/") || strings.HasSuffix(key, "/more") {
			continue // help is in English; more is a page
		}
		prose := verb.ReplaceAllString(command.ReplaceAllString(text.en, ""), "%")
		if aWord.MatchString(prose) && !han.MatchString(text.zh) {
			t.Errorf("%s: no Chinese of %q: %q", key, text.en, text.zh)
		}
		en, _, _ := strings.Cut(text.en, "|")
		if n, m := len(verb.FindAllString(en, -1)), len(verb.FindAllString(text.zh, -1)); n != m && !strings.Contains(text.zh, "%[") &&
			!strings.Contains(text.en, "%[") {
			t.Errorf("%s: %d things in %q, %d in %q", key, n, text.en, m, text.zh)
		}
	}
}

// The program asks for no text that is missing, and for each one that there is.
func TestKeysAreThoseOfTheProgram(t *testing.T) {
	asked := map[string]bool{}
	for _, dir := range []string{"../../cmd", "../selftest", "."} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					keyOf(t, path, call)
				}
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, _ := strconv.Unquote(lit.Value)
					asked[text] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	table, err := os.ReadFile("../../cmd/feishu-relay/frameworks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		_, value, _ := strings.Cut(line, ": ")
		asked[strings.TrimSpace(value)] = true
	}
	for key := range catalogue() {
		name, _, _ := strings.Cut(strings.TrimSuffix(key, ".fix"), "/")
		if !asked[key] && !asked[name] && !asked[name+"/"] {
			t.Errorf("nothing says %q", key)
		}
	}
}

// sayers are the functions whose first argument is a key.
var sayers = []string{"Say", "Count", "say", "ok", "warn", "fail", "unknown"}

// keyOf fails where a call names a key that is missing.
func keyOf(t *testing.T, path string, call *ast.CallExpr) {
	t.Helper()
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	inTests := strings.Contains(path, "selftest")
	if !slices.Contains(sayers, name) || len(call.Args) == 0 || !inTests && name != "Say" && name != "Count" {
		return
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return
	}
	key, _ := strconv.Unquote(lit.Value)
	if !Has(key) {
		t.Errorf("%s: there is no text %q", path, key)
	}
	if (name == "warn" || name == "fail" || name == "unknown") && !Has(key+".fix") {
		t.Errorf("%s: %q has no fix", path, key)
	}
}

func TestSay(t *testing.T) {
	en, zh := In("en_US.UTF-8"), In("zh_CN.UTF-8")
	many := slices.Repeat([]string{"a"}, maxListed+2)
	for got, want := range map[string]string{
		en.Count("messages", 1): "1 message", en.Count("messages", 2): "2 messages", zh.Count("messages", 1): "1 条消息",
		en.Age(90 * time.Second): "1 minute", en.Age(-time.Second): "0 seconds", zh.Age(50 * time.Hour): "2 天",
		en.List([]string{"a", "b"}): "a, b", en.List(many): strings.Repeat("a, ", maxListed-1) + "a and 2 more",
		en.Say("no such text"): "no such text",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constantText is the value of a constant string in the source.
func constantText(e ast.Expr) (value string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil
	case *ast.BinaryExpr:
		left, ok := constantText(e.X)
		right, also := constantText(e.Y)
		return left + right, ok && also
	}
	return "", false
}

var (
	formatVerb = regexp.MustCompile(`%(\[\d\])?[.\d]*[a-z]`)
	aWord      = regexp.MustCompile(`(^|[ ,;:(])[a-z]{2,}([ ,;:.)]|$)`)
	hasHan     = regexp.MustCompile(`\p{Han}`)
)

// No text of a finding lacks its Chinese, nor does that lack what varies.
func TestFindingsHaveBothLanguages(t *testing.T) {
	sources, err := filepath.Glob("check*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		both := func(en, zh ast.Expr) {
			english, known := constantText(en)
			chinese, also := constantText(zh)
			if !known || !also {
				return
			}
			texts++
			if aWord.MatchString(formatVerb.ReplaceAllString(english, "%")) && !hasHan.MatchString(chinese) {
				t.Errorf("%s: no Chinese of %q: %q", source, english, chinese)
			}
			if en, zh := len(formatVerb.FindAllString(english, -1)), len(formatVerb.FindAllString(chinese, -1)); chinese != "" &&
				en != zh && !strings.Contains(chinese, "%[") {
				t.Errorf("%s: %q has %d parts that vary, its Chinese %d", source, english, en, zh)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				switch {
				case (name == "say" || name == "well") && len(n.Args) > 1:
					both(n.Args[0], n.Args[1])
				case slices.Contains([]string{"unseen", "warning", "failure", "found"}, name) && len(n.Args) > 2:
					both(n.Args[1], n.Args[2])
				case name == "alike":
					if english, known := constantText(n.Args[0]); known && strings.Contains(english, " ") &&
						!strings.HasPrefix(english, "redis-cli ") {
						t.Errorf("%s: %q has no Chinese", source, english)
					}
				}
			case *ast.CompositeLit:
				if name, ok := n.Type.(*ast.Ident); ok && name.Name == "text" && len(n.Elts) == 2 {
					both(n.Elts[0], n.Elts[1])
				}
			}
			return true
		})
	}
	if texts < 300 {
		t.Errorf("only %d texts were found", texts)
	}
}

func TestCheckInChinese(t *testing.T) {
	data := configured(t)
	for name, flags := range map[string][]string{"--lang": {"--lang", "zh"}, "LANG": nil} {
		t.Run(name, func(t *testing.T) {
			if flags == nil {
				t.Setenv("LANG", "zh_CN.UTF-8")
			}
			_, stdout, stderr := program(t, append([]string{"check"}, flags...)...)
			for _, want := range []string{"\n文件\n", "✓ relay folder: " + data + "/relay 还不存在，可以创建\n",
				"? peers: 还没有见过其他智能体\n    启动其他边车，再检查一次；"} {
				if !strings.Contains(stdout, want) || stderr != "" {
					t.Errorf("no %q in\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
	if code, _, stderr := program(t, "check", "--lang", "fr"); code != 2 || !strings.Contains(stderr, "want en or zh") {
		t.Errorf("--lang fr: status %d, %q", code, stderr)
	}
}

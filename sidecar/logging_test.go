package sidecar_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keysFrom is where the keys begin among the arguments of a call that logs.
var keysFrom = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0,
	"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3,
}

// attributes are the functions of slog whose first argument is a key.
var attributes = []string{"String", "Int", "Int64", "Uint64", "Float64", "Bool", "Time", "Duration", "Any", "Group"}

// reserved are slog's own keys: with one of them a JSON line has it twice, and
// most readers see only the second.
var reserved = []string{"msg", "level", "time"}

func TestLogKeysAreNotSlogsOwn(t *testing.T) {
	t.Parallel()
	calls := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			keys := logKeys(call)
			calls += min(len(keys), 1)
			for _, key := range keys {
				if slices.Contains(reserved, key) {
					t.Errorf("%s: the log key %q is slog's own; want such as message_id", files.Position(call.Pos()), key)
				}
			}
			return true
		})
		return nil
	})
	must(t, err)
	if calls < 100 {
		t.Errorf("found only %d calls that log with keys: this test no longer sees them", calls)
	}
}

// logKeys are the keys of a call that logs, as far as they are written in it.
func logKeys(call *ast.CallExpr) (keys []string) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	from, logs := keysFrom[fun.Sel.Name]
	if pkg, ok := fun.X.(*ast.Ident); ok && pkg.Name == "slog" && slices.Contains(attributes, fun.Sel.Name) {
		if key, ok := literal(call.Args[0]); ok {
			keys = append(keys, key)
		}
		return keys
	}
	for i := from; logs && i < len(call.Args); i++ {
		if key, ok := literal(call.Args[i]); ok {
			keys = append(keys, key)
			i++ // its value
		}
	}
	return keys
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// keysHere are all keys that this package logs, beside slog's own: a reader of
// logs can rely on them. A new one is entered here, where no other says the same.
var keysHere = []string{
	"addr", "agent", "allow", "backend", "before", "chat", "depth", "detail", "do", "door", "err", "filesystem", "fix", "folder",
	"judge_ms", "mentioned", "missing", "msg_id", "reason", "sender", "seq", "setting",
	"suppressed", "tier", "upstream", "version", "viewer",
}

func TestLogKeysAreTheKnownOnes(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	must(t, err)
	var files []*ast.File
	named := map[string]string{} // constants of keys
	positions := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		must(t, err)
		files = append(files, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && strings.HasPrefix(spec.Names[0].Name, "key") {
				if key, ok := literal(spec.Values[0]); ok {
					named[spec.Names[0].Name] = key
				}
			}
			return true
		})
	}
	used := map[string]bool{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			var keys []string
			switch n := n.(type) {
			case *ast.CallExpr:
				keys = logKeys(n)
			case *ast.Ident: // in a call that logs, or in a list for one
				keys = append(keys, named[n.Name])
			}
			for _, key := range keys {
				used[key] = true
				if key != "" && !slices.Contains(keysHere, key) {
					t.Errorf("%s: the log key %q is not among keysHere", positions.Position(n.Pos()), key)
				}
			}
			return true
		})
	}
	for _, key := range keysHere {
		if !used[key] {
			t.Errorf("no line has the log key %q any more", key)
		}
	}
}

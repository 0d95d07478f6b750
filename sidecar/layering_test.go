package sidecar_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport is the architecture: each package of this module, and which others
// of it its code (not its tests) may import. internal/safefile, which is about
// files and nothing else, is allowed to all but the pure ones.
var mayImport = map[string][]string{
	"relay":                     {"internal/runes"},
	"book":                      {"internal/jsonl", "internal/safefile"},
	"relay/filerelay":           {"relay", "internal/safefile", "internal/jsonl", "internal/wait"},
	"relay/redisrelay":          {"relay", "internal/redislink", "internal/safefile", "internal/wait"},
	"relay/relaytest":           {"relay"},
	"dedup":                     {"internal/jsonl"},
	"transcript":                {"relay", "internal/runes", "internal/safefile", "internal/jsonl"},
	"mention":                   {"feishu/content", "internal/runes"},
	"policy":                    {"internal/runes"},
	"deliver":                   {"relay", "internal/wait"},
	"core":                      {"relay", "deliver", "feishu", "feishu/content", "group", "loop", "policy", "transcript", "internal/runes", "internal/wait"},
	"loop":                      {"relay", "book", "group", "deliver"},
	"group":                     {"relay", "policy", "mention", "internal/runes"},
	"policy/judge":              {"policy", "internal/runes", "internal/wait"},
	"mailbox":                   {"relay", "internal/spelling", "internal/runes"},
	"mailbox/filebox":           {"mailbox", "internal/jsonl", "internal/safefile", "internal/wait", "relay"},
	"mailbox/redisbox":          {"mailbox", "internal/redislink", "internal/wait", "relay"},
	"mailbox/mailboxtest":       {"mailbox"},
	"mailbox/agent":             {"mailbox", "book", "internal/runes", "internal/wait"},
	"mcptools":                  {"mailbox", "mailbox/agent", "relay", "transcript", "internal/runes"},
	"httpapi/viewer":            {"relay", "internal/web", "internal/words"},
	"httpapi":                   {"httpapi/viewer", "policy", "relay", "group", "transcript", "internal/web", "internal/webapi", "internal/weborigin", "dedup", "internal/attempts", "internal/jsonl"},
	"mailapi":                   {"relay", "mailbox", "mailbox/agent", "internal/web", "internal/webapi", "internal/wait"},
	"internal/webapi":           {"relay", "mailbox", "internal/web"},
	"internal/web":              {"relay", "mailbox"},
	"feishu":                    {"book", "feishu/content", "relay", "mention", "internal/jsontree", "internal/runes"},
	"feishu/content":            {"relay", "internal/jsontree", "internal/runes"},
	"feishu/link":               {"dedup", "feishu", "relay", "internal/wait"},
	"feishu/webhook":            {"feishu", "feishu/link"},
	"feishu/entry":              {"feishu", "internal/attempts", "internal/safefile", "internal/wait"},
	"feishu/gateway":            {"dedup", "feishu/content", "feishu", "feishu/link", "feishu/peerchat", "feishu/webhook", "relay", "mention", "internal/weborigin", "internal/wait"},
	"feishu/peerchat":           {"feishu/content", "feishu", "relay", "internal/runes"},
	"feishu/send":               {"feishu/content", "internal/runes", "feishu", "mention", "relay", "internal/wait"},
	"internal/test/apitest":     {"internal/web"},
	"internal/test/browsertest": {},
	"internal/test/childtest":   {},
	"internal/test/endurance":   {},
	"internal/feishusim":        {"feishu", "relay"},
	"internal/runes":            {},
	"internal/safefile":         {},
	"internal/groups":           {"mention", "internal/spelling", "internal/wait"},
	"internal/redislink":        {},
	"internal/jsonl":            {"internal/safefile", "internal/wait"},
	"internal/jsontree":         {"relay"},
	"internal/loopback":         {},
	"internal/test/larktest":    {},
	"internal/test/logtest":     {},
	"internal/test/netfault":    {},
	"internal/test/npmtest":     {"internal/loopback", "internal/test/programtest"},
	"internal/test/programtest": {},
	"internal/test/redistest":   {"internal/loopback"},
	"internal/spelling":         {},
	"internal/sse":              {},
	"internal/subprocess":       {"internal/wait"},
	"internal/wait":             {},
	"internal/weborigin":        {},
	"internal/test/bench":       {},
	"internal/test/simtest":     {},
	"internal/test/talktest":    {},
	"internal/test/verify":      {},
	"internal/attempts":         {},
	"internal/demo":             {"relay", "transcript", "internal/feishusim", "internal/loopback", "internal/runes", "internal/sse", "internal/subprocess", "internal/wait", "internal/words"},
	"internal/words":            {},
	"internal/selftest":         {"feishu", "feishu/entry", "group", "internal/groups", "internal/redislink", "internal/safefile", "internal/words", "mailbox", "mailbox/filebox", "mailbox/redisbox", "policy", "policy/judge", "relay", "relay/redisrelay", "sidecar"},
	"sidecar":                   {"*"},
	"cmd/feishu-relay":          {"*"},
}

// isTestOnly reports whether only tests, benchmarks and measurements may import a package.
func isTestOnly(pkg string) bool {
	return strings.HasPrefix(pkg, "internal/test/") || pkg == "relay/relaytest" || pkg == "mailbox/mailboxtest"
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	t.Parallel()
	const module = "feishu-relay/"
	seen := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		_, err = os.Stat(filepath.Join(path, "go.mod")) // a module of its own
		hidden := d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), "."))
		if path != ".." && (err == nil || hidden) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
		allowed, listed := mayImport[pkg]
		if !listed {
			t.Errorf("%s is not in the import map", pkg)
			return nil
		}
		seen[pkg] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if name == "text/template" || name == "html/template" {
				t.Errorf("%s: %s calls methods by name, so the linker keeps all of Feishu's SDK: 23 MB", path, name)
			}
			ours, ok := strings.CutPrefix(name, module)
			if ok && isTestOnly(ours) && !isTestOnly(pkg) {
				t.Errorf("%s: %s is for tests: the program must not have it", path, ours)
			}
			if ok && !slices.Contains(allowed, "*") && !slices.Contains(allowed, ours) {
				t.Errorf("%s: %s must not import %s", path, pkg, ours)
			}
		}
		return nil
	})
	must(t, err)
	for pkg := range mayImport {
		if !seen[pkg] {
			t.Errorf("%s is in the import map and not in the tree", pkg)
		}
	}
}

package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailapi"
)

// root is the repository's folder, as seen from here.
const root = "../.."

// page is a file of Markdown for people.
type page struct{ name, text string }

func read(t *testing.T, name string) page {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return page{name, string(data)}
}

// pages are all of them.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			rel, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, read(t, rel))
		}
	}
	return all
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	codeSpan = regexp.MustCompile("`[^`\n]+`")
)

// code is what stands in blocks and in spans of code.
func (p page) code() []string {
	var out []string
	for _, m := range fence.FindAllStringSubmatch(p.text, -1) {
		out = append(out, m[2])
	}
	return append(out, codeSpan.FindAllString(fence.ReplaceAllString(p.text, ""), -1)...)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^(#+) (.*)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// headings are the levels of the headings, and the anchors that the usual
// renderers give them.
func (p page) headings() (levels []int, anchors []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(p.text, ""), -1) {
		levels = append(levels, len(m[1]))
		anchors = append(anchors, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[2]), ""), " ", "-"))
	}
	return levels, anchors
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(p.text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := p
			if file != "" {
				name := filepath.Join(filepath.Dir(p.name), file)
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s: there is no %s", p.name, name)
					continue
				}
				if anchor != "" {
					target = read(t, name)
				}
			}
			if _, anchors := target.headings(); anchor != "" && !slices.Contains(anchors, anchor) {
				t.Errorf("%s: %s has no heading %q", p.name, target.name, anchor)
			}
		}
	}
}

// others are variables and words like them that are not ours.
const others = "AGENT_BUSY AGENT_OFFLINE FEISHU_ALLOWED_USERS FEISHU_ALLOW_ALL_USERS FEISHU_ALLOW_BOTS " +
	"FEISHU_CONNECTION_MODE FEISHU_DOMAIN FEISHU_REQUIRE_MENTION HTTPS_PROXY HTTP_PROXY INVALID_MESSAGE LC_ALL " +
	"LC_MESSAGES MESSAGE_ID MISSING_TOOLS NODE_EXTRA_CA_CERTS NODE_USE_ENV_PROXY NO_COLOR NO_PROXY O_APPEND " +
	"RATE_LIMITED REQUESTS_CA_BUNDLE SSL_CERT_FILE TASK_ID TASK_NOT_FOUND"

var inBraces = regexp.MustCompile(`\{[^}]+\}`)

// What the docs tell to run, to call, to set or to read is there, and they name every command and route.
func TestDocsNameWhatIsThere(t *testing.T) {
	clearEnvironment(t, nil)
	routes := apitest.Routes(t, httpapi.New(httpapi.Options{Mail: mailapi.New(mailapi.Options{})}))
	makefile, metrics, variables := read(t, "Makefile").text, read(t, "docs/metrics.md").text, variables()
	checks := []struct {
		what, pattern string
		there         func(found string) bool
	}{
		{"command or flag", "(?m)(?:^ *|[`/(]|=[^ ]* )feishu-relay((?: +[^\\s`|;&#>]+)+)", func(found string) bool {
			words := strings.Fields(found)
			if !regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) {
				words = slices.Insert(words, 0, "run")
			}
			_, help, unknown := program(t, words[0], "--help")
			if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
				_, more, _ := program(t, words[0], words[1], "--help")
				help += more
			}
			return unknown == "" && !slices.ContainsFunc(words, func(word string) bool {
				return strings.HasPrefix(word, "--") && word != "--help" &&
					!regexp.MustCompile(word[1:]+`[\s\]=]`).MatchString(help)
			})
		}},
		{"target of make", "(?m)(?:^|[` ])make ([a-z-]+)\\b", func(found string) bool {
			return strings.Contains(makefile, "\n"+found+":")
		}},
		{"route", "\\b((?:GET|POST|DELETE) /[^\\s`?,]*)", func(found string) bool { return slices.Contains(routes, found) }},
		{"route", "http://127\\.0\\.0\\.1:8[78][089]7(/[^\\s'\"?>)`]*)", func(found string) bool {
			return slices.ContainsFunc(routes, func(route string) bool {
				_, path, _ := strings.Cut(route, " ")
				return regexp.MustCompile("^" + inBraces.ReplaceAllString(path, "[^/]+") + "$").MatchString(found)
			})
		}},
		{"variable", `\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b`, func(found string) bool {
			return slices.Contains(strings.Fields(others), found) ||
				slices.ContainsFunc(variables, func(s setting) bool { return s.name == found })
		}},
		{"metric", `\b(feishu_relay_[a-z_]+)`, func(found string) bool {
			return found == "feishu_relay_native" || strings.Contains(metrics, "\n| `"+found+"` |")
		}},
		{"file", "^`((?:deploy|docs|feishu|internal|mailbox|scripts|sidecar)/[\\w./-]+)`$", func(found string) bool {
			_, err := os.Stat(filepath.Join(root, found))
			return err == nil
		}},
	}
	for _, p := range pages(t) {
		for _, text := range p.code() {
			for _, c := range checks {
				for _, m := range regexp.MustCompile(c.pattern).FindAllStringSubmatch(text, -1) {
					if !c.there(m[1]) {
						t.Errorf("%s: there is no %s %s", p.name, c.what, m[1])
					}
				}
			}
		}
	}
	for _, name := range []string{"README.md", "README.zh.md"} {
		for _, c := range newCLI(t.Context(), io.Discard, io.Discard).parser.Commands() {
			if !strings.Contains(read(t, name).text, "`"+c.Name+"`") {
				t.Errorf("%s: the command %s is not named", name, c.Name)
			}
		}
	}
	for _, r := range routes {
		if r != "GET /viewer/{file}" && !strings.Contains(read(t, "docs/api.md").text, "`"+r+"`") {
			t.Errorf("docs/api.md does not name %s", r)
		}
	}
}

// findingName is the name of a finding in the source of check and of its tests.
var findingName = regexp.MustCompile(`(?:test\("\w+", |found\([\w.]+, |notice\{)"([^"]+)"`)

func TestTroubleshootingExplainsWhatCheckFinds(t *testing.T) {
	names := map[string]bool{"relay folder": true, "transcript folder": true, "mailbox folder": true, "configuration": true}
	for _, pattern := range []string{"*.go", "../../internal/selftest/*.go"} {
		sources, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			code, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(source, "_test.go") {
				continue
			}
			for _, m := range findingName.FindAllSubmatch(code, -1) {
				names[string(m[1])] = true
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("only %d names were found", len(names))
	}
	delete(names, "bots") // of up
	for _, page := range []string{"docs/troubleshooting.md", "docs/troubleshooting.zh.md"} {
		text := read(t, page).text
		for name := range names {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s does not explain %q", page, name)
			}
		}
	}
}

// Whoever reads the other language reads as much, and pastes the same.
func TestBothLanguagesSayTheSame(t *testing.T) {
	for name := range strings.FieldsSeq("README docs/quickstart docs/frameworks docs/steering docs/troubleshooting") {
		en, zh := read(t, name+".md"), read(t, name+".zh.md")
		enLevels, _ := en.headings()
		zhLevels, _ := zh.headings()
		if diff := cmp.Diff(enLevels, zhLevels); diff != "" {
			t.Errorf("%s and %s have other sections (-en +zh):\n%s", en.name, zh.name, diff)
		}
		if diff := cmp.Diff(en.toPaste(), zh.toPaste()); diff != "" {
			t.Errorf("%s and %s have other code (-en +zh):\n%s", en.name, zh.name, diff)
		}
	}
}

var remark = regexp.MustCompile("(?m) +# .*$")

// toPaste are the blocks of code in a named language, without the remarks behind it: a picture has none.
func (p page) toPaste() []string {
	var out []string
	for _, m := range fence.FindAllStringSubmatch(p.text, -1) {
		if m[1] != "" {
			out = append(out, remark.ReplaceAllString(m[2], ""))
		}
	}
	return out
}

func TestArchitectureListsThePackages(t *testing.T) {
	text := read(t, "docs/architecture.md").text
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "dist" || d.Name() == "scripts" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err == nil && !strings.Contains(text, "`"+filepath.ToSlash(pkg)+"`") {
			t.Errorf("docs/architecture.md does not list %s", pkg)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

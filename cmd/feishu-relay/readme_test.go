package main

import (
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

// verb is behind the program's name, where that begins a command line.
var verb = regexp.MustCompile("(?m)(?:^ *|[`/(]|=[^ ]* )feishu-relay +([a-z]+)\\b")

// What is told to run is there, and the READMEs name every command.
func TestDocsNameTheCommands(t *testing.T) {
	var known []string
	for _, c := range commands() {
		known = append(known, c.name)
	}
	for _, p := range pages(t) {
		for _, text := range p.code() {
			for _, m := range verb.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s: there is no command %q", p.name, m[1])
				}
			}
		}
	}
	for _, name := range []string{"README.md", "README.zh.md"} {
		text := strings.Join(read(t, name).code(), "\n")
		for _, c := range known {
			if !regexp.MustCompile("[` \\[]" + c + "[` \\]]").MatchString(text) {
				t.Errorf("%s: the command %s is not named", name, c)
			}
		}
	}
}

var target = regexp.MustCompile("(?m)(?:^|[` ])make ([a-z]+)\\b")

func TestDocsNameTargetsOfMake(t *testing.T) {
	makefile := read(t, "Makefile").text
	for _, p := range pages(t) {
		for _, text := range p.code() {
			for _, m := range target.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s: there is no target %q in the Makefile", p.name, m[1])
				}
			}
		}
	}
}

var (
	namedRoute = regexp.MustCompile("\\b(GET|POST|DELETE) (/[^\\s`?,]*)")
	calledURL  = regexp.MustCompile("http://127\\.0\\.0\\.1:8[78][089]7(/[^\\s'\"?>)`]*)")
	inBraces   = regexp.MustCompile(`\{[^}]+\}`)
)

// The routes that the docs name or call are there, and between them docs/api.md
// and docs/mailbox.md name all.
func TestDocsNameTheRoutes(t *testing.T) {
	var known []string
	var paths []*regexp.Regexp
	for _, r := range apitest.Routes(t, httpapi.New(httpapi.Options{Mail: mailapi.New(mailapi.Options{})})) {
		known = append(known, r)
		_, path, _ := strings.Cut(r, " ")
		paths = append(paths, regexp.MustCompile("^"+inBraces.ReplaceAllString(path, "[^/]+")+"$"))
	}
	for _, p := range pages(t) {
		if p.name == "docs/performance.md" || strings.HasPrefix(p.name, "deploy") {
			continue // Feishu's routes, and what an ingress names
		}
		text := strings.Join(p.code(), "\n")
		for _, m := range namedRoute.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, m[1]+" "+m[2]) {
				t.Errorf("%s: there is no route %s %s", p.name, m[1], m[2])
			}
		}
		for _, m := range calledURL.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(paths, func(path *regexp.Regexp) bool { return path.MatchString(m[1]) }) {
				t.Errorf("%s: there is no route %s", p.name, m[1])
			}
		}
	}
	all := read(t, "docs/api.md").text + read(t, "docs/mailbox.md").text
	for _, r := range known {
		if r != "GET /viewer/{file}" && !strings.Contains(all, "`"+r+"`") {
			t.Errorf("neither docs/api.md nor docs/mailbox.md names %s", r)
		}
	}
}

// findingName is the name of a finding in the source of check.
var findingName = regexp.MustCompile(`nameAll\("([^"]+)"`)

func TestTroubleshootingExplainsWhatCheckFinds(t *testing.T) {
	sources, err := filepath.Glob("check*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range probes(&config{}) {
		names[c.name] = true
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range findingName.FindAllSubmatch(code, -1) {
			names[string(m[1])] = true
		}
	}
	delete(names, "everything else") // what is not tried after a mistake in the configuration
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

package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
)

// Where a script runs: which backend carries the messages, and whether the
// sidecars share one folder of transcripts (bots on one host) or have folders of
// their own (containers).
const (
	fileShared  = "file/shared"
	fileOwn     = "file/own"
	redisShared = "redis/shared"
	redisOwn    = "redis/own"
)

var (
	everyVariant    = []string{fileShared, fileOwn, redisShared, redisOwn}
	defaultVariants = []string{fileShared, redisOwn}
)

// storyLimit is how long one line of a script waits for what it awaits. It is no
// measurement: only a script that fails waits so long.
const storyLimit = 5 * time.Minute

// TestScripts tells each story of testdata/script with real sidecars in this
// process, driven through their local API alone. A script is a txtar archive:
// its comment is a sentence on what it proves, and then commands, one a line
// (see storyCommands); its files are what the commands name.
//
// That something did not reach a bot is never shown by waiting a while: a script
// waits for the verdict on it, and every story ends with fences (story.fence)
// behind all that was sent. Then everything a bot was given must have been
// expected by a line of the script, once.
//
// Each answer of a sidecar has to be as docs/openapi.yaml says.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	redis := redistest.Start(t)
	for i, path := range paths {
		archive, err := txtar.ParseFile(path)
		must(t, err)
		script, err := parseScript(archive)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for k, variant := range script.variants {
			name := strings.TrimSuffix(filepath.Base(path), ".txtar") + "/" + variant
			t.Run(name, func(t *testing.T) {
				if k != i%len(script.variants) { // each script once, by turns on files and on Redis
					verify.Only(t)
				}
				t.Parallel()
				s := newStory(t, script, variant, redis.URL())
				s.tell(path)
			})
		}
	}
}

// script is a parsed archive.
type script struct {
	variants []string
	channel  string // on Redis; "": one of its own
	lines    []scriptLine
	files    map[string]string
}

type scriptLine struct {
	number int
	words  []string
}

func parseScript(archive *txtar.Archive) (*script, error) {
	s := &script{variants: defaultVariants, files: map[string]string{}}
	for _, f := range archive.Files {
		s.files[f.Name] = string(f.Data)
	}
	number := 0
	for line := range strings.Lines(string(archive.Comment)) {
		number++
		line = strings.TrimSpace(line)
		if number == 1 && !isSentence(line) {
			return nil, errors.New("line 1: want a comment with a sentence on what the script proves")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		words, err := splitWords(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if words[0] == "on" {
			s.variants = words[1:]
			if slices.ContainsFunc(s.variants, func(v string) bool { return !slices.Contains(everyVariant, v) }) {
				return nil, fmt.Errorf("line %d: want some of %v", number, everyVariant)
			}
			continue
		}
		s.lines = append(s.lines, scriptLine{number, words})
	}
	return s, nil
}

func isSentence(comment string) bool {
	return strings.HasPrefix(comment, "# ") && strings.HasSuffix(comment, ".")
}

// splitWords splits at spaces. Single quotes keep spaces in a word and may
// begin within it; there are no escapes.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quoted := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			inWord, quoted = true, !quoted
		case r == ' ' && !quoted:
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// tell runs the script and then proves what holds at the end of every story.
func (s *story) tell(path string) {
	for _, line := range s.script.lines {
		if err := s.do(line.words); err != nil {
			s.t.Fatalf("%s:%d: %s: %v", path, line.number, strings.Join(line.words[:min(3, len(line.words))], " "), err)
		}
	}
	if err := s.end(); err != nil {
		s.t.Fatalf("%s: at the end: %v", path, err)
	}
}

// do runs one command within storyLimit.
func (s *story) do(words []string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), storyLimit)
	defer cancel()
	return s.doWithin(ctx, words)
}

func (s *story) doWithin(ctx context.Context, words []string) error {
	if words[0] == "until" {
		return s.until(ctx, words[1:])
	}
	c, ok := storyCommands()[words[0]]
	if !ok {
		return errors.New("no such command")
	}
	args := words[1:]
	if len(args) < c.args {
		return fmt.Errorf("want at least %d arguments: %s", c.args, c.usage)
	}
	if !strings.HasPrefix(c.usage, "AGENT") {
		return c.run(s, ctx, nil, args)
	}
	a, err := s.actor(args[0])
	if err != nil {
		return err
	}
	return c.run(s, ctx, a, args[1:])
}

// until repeats a command that looks at something no event tells of, until it
// succeeds.
func (s *story) until(ctx context.Context, words []string) error {
	for pause := 10 * time.Millisecond; ; pause = min(pause*3/2, 100*time.Millisecond) {
		err := s.doWithin(ctx, words)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// value gives an argument its meaning: file:<name> is a file of the script,
// signed:<secret>:<name> one each of whose lines is signed, big:<n> a text of n
// bytes, %now-5m% a time in Unix milliseconds.
func (s *story) value(arg string) (string, error) {
	if arg, ok := strings.CutPrefix(arg, "signed:"); ok {
		secret, name, _ := strings.Cut(arg, ":")
		text, err := s.value("file:" + name)
		var signed []string
		for line := range strings.Lines(text) {
			line, signErr := relay.Sign([]byte(strings.TrimSpace(line)), secret)
			signed, err = append(signed, string(line)), errors.Join(err, signErr)
		}
		return strings.Join(signed, "\n"), err
	}
	if name, ok := strings.CutPrefix(arg, "file:"); ok {
		text, ok := s.script.files[name]
		if !ok {
			return "", fmt.Errorf("the script has no file %s", name)
		}
		return s.times(strings.TrimSuffix(text, "\n")), nil
	}
	if size, ok := strings.CutPrefix(arg, "big:"); ok {
		var n int
		if _, err := fmt.Sscan(size, &n); err != nil {
			return "", fmt.Errorf("%s: %w", arg, err)
		}
		return strings.Repeat("大", n/len("大")), nil
	}
	return s.times(arg), nil
}

var timeMark = regexp.MustCompile(`%now([+-][0-9a-z]+)?%`)

func (s *story) times(text string) string {
	return timeMark.ReplaceAllStringFunc(text, func(mark string) string {
		return fmt.Sprint(momentOf(strings.Trim(mark, "%")).UnixMilli())
	})
}

// momentOf reads "now", "now-5m", "now+1h"; the scripts are ours, so that a
// mistake in one may panic.
func momentOf(text string) time.Time {
	offset := strings.TrimPrefix(text, "now")
	if offset == "" {
		return time.Now()
	}
	d, err := time.ParseDuration(offset)
	if err != nil {
		panic(err)
	}
	return time.Now().Add(d)
}

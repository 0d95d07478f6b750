package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"feishu-relay/internal/words"
)

// typist is a person at a terminal at which init asks.
type typist struct {
	cmd  *exec.Cmd
	tty  *os.File
	seen strings.Builder
}

func startInit(t *testing.T, args ...string) *typist {
	t.Helper()
	p := &typist{cmd: exec.Command("feishu-relay", append([]string{"init", "--lang", "en"}, args...)...)}
	var err error
	if p.tty, err = pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 50, Cols: 400}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		_ = p.tty.Close()
	})
	return p
}

// sees waits for words on the screen, behind those that it waited for before.
func (p *typist) sees(t *testing.T, words string) {
	t.Helper()
	var since strings.Builder
	for one := make([]byte, 1); !strings.Contains(since.String(), words); {
		if _, err := p.tty.Read(one); err != nil {
			t.Fatalf("waiting for %q: %v after\n%s", words, err, p.seen.String())
		}
		since.Write(one)
		p.seen.Write(one)
	}
}

func (p *typist) types(t *testing.T, text string) {
	t.Helper()
	if _, err := p.tty.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// asks waits for each question and types its answer.
func (p *typist) asks(t *testing.T, questionsAndAnswers ...string) {
	t.Helper()
	for i := 0; i+1 < len(questionsAndAnswers); i += 2 {
		p.sees(t, questionsAndAnswers[i])
		p.sees(t, ": ")
		p.types(t, questionsAndAnswers[i+1]+"\n")
	}
}

// A person answers wrongly, is shown why, answers again, and gets a file that works. The
// secret is not on the screen.
func TestInitAtATerminal(t *testing.T) {
	in := newTenant(t)
	in.AddGroup("Research", in.app.ID)
	base := os.Getenv("FEISHU_BASE_URL")
	clearEnvironment(t, nil)
	dir := t.TempDir()
	out := filepath.Join(dir, "agent_a.env")
	p := startInit(t, "--out", out)
	answers := []string{"Framework", "99", "want one of", "", "an answer is needed", "connector", "Name of this bot", "",
		"Env files of other bots", "", "Feishu's address", base, "App ID", in.app.ID, "App Secret", "wr0ng",
		"Redis", "", "Folder", filepath.Join(dir, "data"), "Write the file anyway", "n"}
	p.asks(t, answers...)
	p.sees(t, "nothing was written")
	err := p.cmd.Wait()
	if seen := p.seen.String(); err == nil || !strings.Contains(seen, "refuses "+in.app.ID) || strings.Contains(seen, "wr0ng") {
		t.Fatalf("%v, %s", err, seen)
	}
	p = startInit(t, "--out", out)
	answers[slices.Index(answers, "wr0ng")] = in.app.Secret
	p.asks(t, answers[:len(answers)-2]...)
	p.sees(t, "feishu-relay check --env-file "+out)
	p.sees(t, "The other bots of the group need the same DATA_DIR")
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	screen := escape.ReplaceAllString(p.seen.String(), "")
	for _, want := range []string{"✓ Feishu bot: " + in.app.ID, "✓ relay folder", "since nanobot shares it"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen has no %q:\n%s", want, screen)
		}
	}
	if strings.Contains(screen, in.app.Secret) {
		t.Errorf("the screen has the secret: %s", screen)
	}
	set, err := readEnvFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if set["FEISHU_APP_SECRET"] != in.app.Secret || set["CONNECTOR"] != "true" || set["AGENT_NAME"] != "agent_a" {
		t.Errorf("the file has %v", set)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v (%v), want 0600", info.Mode(), err)
	}
	if found, err := exec.Command("feishu-relay", "check", "--env-file", out).CombinedOutput(); err != nil {
		t.Errorf("check of the file: %v\n%s", err, found)
	}
}

// In Chinese the frameworks, the questions and the mistakes are in Chinese.
func TestInitInChinese(t *testing.T) {
	clearEnvironment(t, nil)
	dir := t.TempDir()
	p := startInit(t, "--lang", "zh", "--agent", "agent_a", "--data-dir", dir, "--out", filepath.Join(dir, "agent_a.env"))
	p.sees(t, "自己的代码，自己连接飞书，或不用飞书")
	p.asks(t, "框架", "openclaww")
	p.sees(t, "是不是 openclaw？")
	p.asks(t, "框架", "own", "本机其他机器人的 env 文件", "")
	p.sees(t, "已写入")
	p.sees(t, "2. 自己的代码，自己连接飞书，或不用飞书——代码调用：")
}

// A file that is there is overwritten only after a yes.
func TestInitAsksBeforeItOverwrites(t *testing.T) {
	clearEnvironment(t, nil)
	dir := t.TempDir()
	out := filepath.Join(dir, "a.env")
	for answer, want := range map[string]string{"": "nothing was written", "y": "Wrote "} {
		write(t, out, "# mine\n")
		p := startInit(t, "--framework", "own", "--agent", "agent_a", "--data-dir", dir, "--out", out)
		p.asks(t, "Overwrite it?", answer)
		if answer != "" {
			p.asks(t, "Env files of other bots", "")
		}
		p.sees(t, want)
		p.sees(t, "\n")
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if kept := string(text) == "# mine\n"; kept != (answer == "") {
			t.Errorf("answer %q: the file is %q", answer, text)
		}
	}
}

// Ctrl-C at the question for the secret ends the program, and the terminal shows again what
// is typed.
func TestInitInterrupted(t *testing.T) {
	clearEnvironment(t, nil)
	p := startInit(t, "--framework", "connector", "--agent", "agent_a", "--base-url", "http://127.0.0.1:1", "--app-id",
		"cli_0123456789abcdef", "--out", filepath.Join(t.TempDir(), "a.env"))
	p.asks(t, "Env files of other bots", "")
	p.sees(t, "App Secret (not shown): ")
	echo := func() bool {
		state, err := unix.IoctlGetTermios(int(p.tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return state.Lflag&unix.ECHO != 0
	}
	p.types(t, "\x03")
	if err := p.cmd.Wait(); err == nil {
		t.Error("it ended with success")
	}
	if !echo() {
		t.Error("the terminal shows nothing of what is typed")
	}
}

// The lines that init prints are those of docs/frameworks.md, and its table has the same
// settings; the headings that it names are there, in both languages.
func TestFrameworksAreThoseOfTheDocs(t *testing.T) {
	docs, chinese := read(t, "docs/frameworks.md"), read(t, "docs/frameworks.zh.md")
	_, anchors := docs.headings()
	_, chineseAnchors := chinese.headings()
	for _, f := range frameworks() {
		if !slices.Contains(anchors, f.anchor(words.Words{})) {
			t.Errorf("%s: docs/frameworks.md has no heading %q", f.Key, f.anchor(words.Words{}))
		}
		if !slices.Contains(chineseAnchors, f.anchor(words.In("zh"))) {
			t.Errorf("%s: docs/frameworks.zh.md has no heading %q", f.Key, f.anchor(words.In("zh")))
		}
		if f.Join != byGateway {
			continue
		}
		for line := range strings.SplitSeq(f.Settings, "\n") {
			if line = strings.TrimRight(strings.TrimSpace(line), ","); len(line) > 8 && !strings.Contains(docs.text, line) {
				t.Errorf("%s: docs/frameworks.md has no line %q", f.Key, line)
			}
		}
	}
	rows := 0
	for line := range strings.Lines(docs.text) {
		cells := strings.Split(line, " | ")
		if len(cells) < 6 || !strings.HasPrefix(line, "| [") || strings.Contains(line, "Channel module") {
			continue
		}
		rows++
		named := strings.ToLower(cells[0])
		for _, f := range frameworks() {
			word, _, _ := strings.Cut(strings.TrimPrefix(f.Key, "sdk-"), " ")
			if f.Join != byGateway || !strings.Contains(named, "["+word+"]") &&
				!(strings.HasPrefix(f.Key, "sdk-") && strings.Contains(named, "sdk") && strings.Contains(named, word)) {
				continue
			}
			set := f.variables()
			if cells[3] != "`"+set["INJECT_SENDER_TYPE"]+"`" || cells[4] != "`"+set["INJECT_MENTION"]+"`" {
				t.Errorf("%s: init sets %v, and docs/frameworks.md has %s and %s", f.Key, set, cells[3], cells[4])
			}
		}
	}
	if rows < 9 {
		t.Errorf("%d rows of frameworks in docs/frameworks.md", rows)
	}
}

//go:build unix

package sidecar_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/verify"
)

// The environment of the bot that TestTaskSurvivesTheKillOfItsBot starts.
const (
	mailBotEnv       = "MAIL_BOT_BASE" // of its SDK
	mailBotAppEnv    = "MAIL_BOT_APP"
	mailBotSecretEnv = "MAIL_BOT_SECRET"
	mailBotKillEnv   = "MAIL_BOT_KILL" // a file: while it is missing, the bot makes it and is killed in the handler of a task
)

// TestMailBot is that bot.
func TestMailBot(t *testing.T) {
	base := os.Getenv(mailBotEnv)
	if base == "" {
		t.Skip("another test starts it")
	}
	n := &tenant{t: t}
	b := n.bot(feishusim.App{ID: os.Getenv(mailBotAppEnv), Secret: os.Getenv(mailBotSecretEnv)}, base, func(b *sdkBot, h heard) {
		if strings.Contains(h.Text, "write a sort function") {
			n.reply(b, h, "", "func sort(xs []int)")
		}
	})
	kill := os.Getenv(mailBotKillEnv)
	if _, err := os.Stat(kill); err != nil {
		dies := func(h heard) {
			must(t, os.WriteFile(kill, []byte(h.ID), 0o600))
			die()
		}
		b.thinks.Store(&dies)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A bot that is killed with SIGKILL between being given a task and its answer is given the same letter when it is back,
// and the task ends once.
func TestTaskSurvivesTheKillOfItsBot(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	p := newPairByMail(t, nil, nil)
	kill := filepath.Join(t.TempDir(), "killed")
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMailBot$")
		cmd.Env = append(withoutProxy(), mailBotEnv+"=http://"+p.coder.Gateway().String(), mailBotAppEnv+"="+p.app.ID,
			mailBotSecretEnv+"="+p.app.Secret, mailBotKillEnv+"="+kill, "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = stdin.Close() // the bot ends with it
			_ = cmd.Wait()
		})
		return cmd
	}
	p.gives("write a sort function")
	first := start()
	err := first.Wait()
	if status, ok := first.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the bot ended with %v", err)
	}
	start()
	p.asker.hears("task_update", "func sort")
	p.comesTo("completed")
	p.writes("question", "write a sort function again", 0) // what its answer follows has come before
	p.asker.hears("answer", "func sort")
	p.asker.mu.Lock()
	defer p.asker.mu.Unlock()
	results := 0
	for _, in := range p.asker.got {
		if in.Metadata["mailbox_type"] == "task_update" && strings.Contains(in.Content, "func sort") {
			results++
		}
	}
	if results != 1 {
		t.Errorf("the result came %d times", results)
	}
}

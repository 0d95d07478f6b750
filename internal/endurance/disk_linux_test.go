package endurance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	"golang.org/x/sys/unix"
)

const faultsEnv = "FAULTS" // not empty: the long form of the fault tests

// errorsOfDisk are the system calls that fail with each error. A file that is only read is not
// opened with ENOSPC, and a call on an open file has no EMFILE.
var errorsOfDisk = map[string]string{
	"ENOSPC": "write,pwrite64,fsync,fdatasync,ftruncate,renameat,renameat2,linkat,mkdirat",
	"EIO": "read,pread64,write,pwrite64,fsync,fdatasync,ftruncate,renameat,renameat2,linkat,mkdirat,unlinkat," +
		"getdents64,openat",
	"EMFILE": "openat",
}

// diskFiles are the files of a sidecar, by the name of the case. Each is a path below DATA_DIR, and
// stands for all that is in it. %s is the agent.
var diskFiles = map[string]struct {
	agent string // whose sidecar fails
	paths []string
	quiet bool // these files may not be used during the test
}{
	"queue":         {agent: "agent_g", paths: []string{"relay/outbound.jsonl", "relay/inbound.jsonl"}},
	"outbox":        {agent: "agent_g", paths: []string{"relay/outbox/%s"}},
	"positions":     {agent: "agent_g", paths: []string{"relay/offsets"}},
	"handled ids":   {agent: "agent_g", paths: []string{"relay/processed"}},
	"deliveries":    {agent: "agent_b", paths: []string{"relay/deliveries/%s"}, quiet: true},
	"chats":         {agent: "agent_g", paths: []string{"relay/chats"}, quiet: true},
	"drafts":        {agent: "agent_g", paths: []string{"relay/gateway/%s"}},
	"spool":         {agent: "agent_g", paths: []string{"relay/native/%s"}},
	"outcomes":      {agent: "agent_b", paths: []string{"relay/outcomes.jsonl"}},
	"settings":      {agent: "agent_b", paths: []string{"relay/steer"}},
	"claims":        {agent: "agent_g", paths: []string{"relay/claims"}, quiet: true},
	"registry":      {agent: "agent_b", paths: []string{"mailboxes/_registry.json"}, quiet: true},
	"mail":          {agent: "agent_b", paths: []string{"mailboxes/%s/inbox", "mailboxes/%s/processed"}},
	"peer's mail":   {agent: "agent_b", paths: []string{"mailboxes/agent_a/inbox"}},
	"sent mail":     {agent: "agent_b", paths: []string{"mailboxes/%s/unacked"}},
	"tasks":         {agent: "agent_b", paths: []string{"mailboxes/%s/tasks"}},
	"mail ledger":   {agent: "agent_b", paths: []string{"relay/processed"}},
	"transcripts":   {agent: "agent_g", paths: []string{"transcripts"}},
	"whole bot":     {agent: "agent_b", paths: []string{"."}},
	"whole gateway": {agent: "agent_g", paths: []string{"."}},
}

// shortForm is what a run of all tests does of the table.
var shortForm = []struct{ files, errno string }{
	{"outbox", "ENOSPC"}, {"transcripts", "EIO"}, {"whole gateway", "EMFILE"},
}

// A file or all files of a sidecar fail while its bot works. The bot's own messages go through, the
// log says what fails, and when the disk is well again everything that was accepted arrives, once.
func TestDiskFaults(t *testing.T) {
	t.Parallel()
	injectable(t)
	backends, long := []string{"file"}, os.Getenv(faultsEnv) != ""
	if long {
		backends = append(backends, "redis")
	}
	program := presentProgram(t)
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			n := newTeam(t, teamSetup{redis: backend == "redis", webhooks: []string{"agent_a", "agent_b"},
				gateways: []string{"agent_g"}, env: map[string]string{"RELAY_SECRET": secret}})
			for _, b := range n.bots {
				b.as(program)
			}
			n.start(limited(t), n.bots...)
			n.talk(limited(t), t)                         // all know the group
			n.round(limited(t), t, n.bot("agent_g"), nil) // all files are there
			if long {
				n.allFaults(t)
			} else {
				for _, c := range shortForm {
					t.Run(c.files+" "+c.errno, func(t *testing.T) { n.diskFault(t, c.files, c.errno) })
				}
			}
			n.verify(limited(t), t)
		})
	}
}

func (n *team) allFaults(t *testing.T) {
	for _, files := range slices.Sorted(maps.Keys(diskFiles)) {
		for _, errno := range slices.Sorted(maps.Keys(errorsOfDisk)) {
			t.Run(files+" "+errno, func(t *testing.T) { n.diskFault(t, files, errno) })
		}
		if hits, ran := n.hits[files]; ran && hits == 0 && !diskFiles[files].quiet {
			t.Errorf("%s: no call failed, so nothing was tested", files)
		}
	}
	t.Run("no descriptors", n.noDescriptors)
}

// injectable skips the test where errors cannot be injected into a process.
func injectable(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatal("the program strace is needed; `make tools` installs it")
	}
	if out, err := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("FAULTS OF THE DISK ARE NOT TESTED HERE: strace may not trace a process (%v: %s); allow ptrace, "+
			"in a container with --cap-add SYS_PTRACE", err, bytes.TrimSpace(out))
	}
}

// diskFault runs a round of the team while the files of a case fail.
func (n *team) diskFault(t *testing.T, files, errno string) {
	c := diskFiles[files]
	victim := n.bot(c.agent)
	var paths []string
	for _, p := range c.paths {
		if strings.Contains(p, "%s") {
			p = fmt.Sprintf(p, c.agent)
		}
		paths = append(paths, below(t, filepath.Join(n.dir, p))...)
	}
	if len(paths) == 0 {
		if !c.quiet && n.redis == nil {
			t.Fatalf("%v: no such file", c.paths)
		}
		t.Skip("this sidecar has no such file here")
	}
	before := victim.reported(limited(t), t)
	in := inject(t, victim.pid(), errorsOfDisk[errno], errno, paths)
	n.round(limited(t), t, victim, func(done <-chan struct{}) {
		// Long enough for repeats; it ends also where all goes on without these files.
		for began := time.Now(); !closed(done) && in.hits() < enoughHits; time.Sleep(tick) {
			if in.hits() > 0 && time.Since(began) > longFault {
				break
			}
		}
		in.end()
	})
	// A failure that goes on is reported once, so the next ones of the same files need not be.
	first := n.hits[files] == 0 && in.hits() > 0
	n.hits[files] += in.hits()
	if first && !c.quiet {
		eventually(limited(t), t, "the log or the status says what failed", func() bool {
			return victim.reported(limited(t), t) != before
		})
	}
	t.Logf("%d calls failed; before %+v, after %+v", in.hits(), before, victim.reported(limited(t), t))
}

const (
	enoughHits = 5
	longFault  = 2 * time.Second // how long a fault lasts that no more calls meet
	tick       = 20 * time.Millisecond
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// below is a path with all that is in it; nothing where it is missing.
func below(t *testing.T, path string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, path)
		}
		return nil // files come and go
	})
	must(t, err)
	return paths
}

// reports are what a sidecar has reported since its start: warnings and errors in its log, the sum
// of last_errors, and the errors of its queues now.
type reports struct {
	lines, errors int
	queues        string
}

func (s *side) reported(ctx context.Context, t *testing.T) (r reports) {
	t.Helper()
	data, err := os.ReadFile(s.log)
	must(t, err)
	r.lines = bytes.Count(data, []byte("level=WARN")) + bytes.Count(data, []byte("level=ERROR"))
	var st status
	s.do(ctx, http.MethodGet, "/v1/status", nil, &st)
	for _, e := range st.Errors {
		r.errors += e.Count
	}
	for _, name := range slices.Sorted(maps.Keys(st.Queues)) {
		r.queues += st.Queues[name].Error + st.Queues[name].Outbox.Error
	}
	return r
}

// round lets everybody do what they do, and waits until all is delivered. The sidecar of victim is
// out of order until heal returns, whose argument is closed when all was done. heal may be nil.
func (n *team) round(ctx context.Context, t *testing.T, victim *bot, heal func(done <-chan struct{})) {
	t.Helper()
	a, b, g := n.bot("agent_a"), n.bot("agent_b"), n.bot("agent_g")
	number := n.count.Add(1)
	if victim.sdk != nil {
		n.passes(ctx, t, victim, fmt.Sprintf("own words %d", number))
	}
	var working sync.WaitGroup
	do := func(what string, f func() error) {
		working.Go(func() {
			if err := f(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for _, from := range n.bots {
		do("message", func() error {
			_, err := from.say(ctx, fmt.Sprintf("words %d of %s", number, from.name))
			return err
		})
	}
	do("person", func() error {
		_, err := n.sim.Say(n.chat, n.user.ID, fmt.Sprintf("a person's words %d", number))
		return err
	})
	for _, pair := range [][2]*bot{{a, b}, {b, a}} {
		do("mail", func() error {
			_, err := pair[0].mail(ctx, pair[1], fmt.Sprintf("mail %d", number))
			return err
		})
		do("task", func() error { return n.task(ctx, pair[0], pair[1]) })
	}
	do("settings", func() error {
		return b.insistOn(ctx, "PATCH", "/v1/groups/"+n.chat, map[string]any{"judge": number%2 == 0})
	})
	id, card := g.card(ctx, t, "half a card")
	g.write(ctx, t, card, fmt.Sprintf("the whole card %d", number), 2)
	g.finish(ctx, t, card, 3)
	n.book.accepted(id, message{from: g.name, text: fmt.Sprintf("whole card %d", number)})
	do("deliveries", func() error {
		return n.book.await(ctx, func() bool { return len(n.book.due) == 0 })
	})
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	if heal != nil {
		heal(done)
	}
	<-done
	n.book.complete(ctx, t)
}

// task gives a task and sees it through to its end.
func (n *team) task(ctx context.Context, from, to *bot) error {
	id := n.id("t", from.name)
	given := map[string]any{"to": to.name, "task_id": id, "text": "do " + id}
	if err := from.insist(ctx, "/v1/mailbox/tasks", given); err != nil {
		return err
	}
	if err := n.book.await(ctx, func() bool { return n.book.times(to.name, "do "+id) > 0 }); err != nil {
		return fmt.Errorf("%s was not given %s: %w", to.name, id, err)
	}
	done := map[string]any{"state": "completed", "text": "end of " + id}
	if err := to.insist(ctx, "/v1/mailbox/tasks/"+id, done); err != nil {
		return err
	}
	if err := n.book.await(ctx, func() bool { return n.book.times(from.name, "end of "+id) > 0 }); err != nil {
		return fmt.Errorf("%s was not given the end of %s: %w", from.name, id, err)
	}
	return nil
}

// passes lets a bot behind the gateway send a message, which has to succeed at once.
func (n *team) passes(ctx context.Context, t *testing.T, b *bot, text string) {
	t.Helper()
	body := larkim.NewCreateMessageReqBodyBuilder().ReceiveId(n.chat).MsgType("text").Content(quoted("text", text)).Build()
	resp, err := b.sdk.client.Im.Message.Create(ctx,
		larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").Body(body).Build())
	if err != nil || !resp.Success() {
		t.Errorf("the bot's own message did not pass: %v %+v", err, resp)
		return
	}
	n.book.accepted(*resp.Data.MessageId, message{from: b.name, text: text})
}

// injection is a strace that lets system calls of a process fail.
type injection struct {
	t   *testing.T
	cmd *exec.Cmd
	log string
	end func() // detaches
}

// inject lets calls of a process on these paths fail with errno, until end.
func inject(t *testing.T, pid int, calls, errno string, paths []string) *injection {
	t.Helper()
	in := &injection{t: t, log: filepath.Join(t.TempDir(), "strace")}
	args := []string{"-f", "-p", fmt.Sprint(pid), "-o", in.log,
		"-e", "trace=" + calls, "-e", "inject=" + calls + ":error=" + errno}
	for _, p := range paths {
		args = append(args, "-P", p)
	}
	in.cmd = exec.Command("strace", args...)
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := in.cmd.StderrPipe()
	must(t, err)
	must(t, in.cmd.Start())
	lines := bufio.NewScanner(stderr)
	attached, said := false, ""
	for !attached && lines.Scan() {
		said += lines.Text() + "\n"
		attached = strings.Contains(lines.Text(), "attached")
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
		}
	}()
	in.end = sync.OnceFunc(func() {
		_ = in.cmd.Process.Signal(os.Interrupt)
		<-drained
		_ = in.cmd.Wait() // it ends by the signal
	})
	t.Cleanup(in.end)
	if !attached {
		t.Fatalf("strace did not attach: %s", said)
	}
	return in
}

// hits is how many calls have failed.
func (in *injection) hits() int {
	data, err := os.ReadFile(in.log)
	if err != nil {
		return 0
	}
	return bytes.Count(data, []byte("(INJECTED)"))
}

// noDescriptors runs a round while the sidecar of a bot can open no file and take no connection.
func (n *team) noDescriptors(t *testing.T) {
	b := n.bot("agent_b")
	var before unix.Rlimit
	must(t, unix.Prlimit(b.pid(), unix.RLIMIT_NOFILE, nil, &before))
	must(t, unix.Prlimit(b.pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 10, Max: before.Max}, nil))
	n.round(limited(t), t, b, func(<-chan struct{}) {
		ctx := limited(t)
		id, err := n.bot("agent_a").say(ctx, "agent_b cannot open a file")
		must(t, err)
		n.book.has(ctx, t, "agent_g", id) // the others go on
		must(t, unix.Prlimit(b.pid(), unix.RLIMIT_NOFILE, &before, nil))
	})
}

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

	"golang.org/x/sys/unix"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/internal/wait"
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
// stands for all that is in it. %s is the agent. The CA of the gateway is read by caFaults.
var diskFiles = map[string]struct {
	agent string // whose sidecar fails
	paths []string
	// use makes the sidecar use these files, where a round does not, until it is healed. It is called again and again.
	use   func(n *team, ctx context.Context, number int64) error
	end   func(n *team, ctx context.Context) error // undoes what use changed; nil: nothing
	files bool                                     // these are there only without Redis
}{
	"queue":       {agent: "agent_g", paths: []string{"relay/outbound.jsonl", "relay/inbound.jsonl"}, files: true},
	"book":        {agent: "agent_g", paths: []string{"relay/agents/%s"}},
	"deliveries":  {agent: "agent_b", paths: []string{"relay/agents/%s"}, use: (*team).hesitate, end: (*team).hurry},
	"positions":   {agent: "agent_g", paths: []string{"relay/offsets"}},
	"directory":   {agent: "agent_g", paths: []string{"relay/feishu/%s"}, use: (*team).newChat},
	"answered":    {agent: "agent_g", paths: []string{"relay/gateway/%s"}},
	"claims":      {agent: "agent_g", paths: []string{"relay/claims"}, use: (*team).askOne, files: true},
	"side lane":   {agent: "agent_b", paths: []string{"relay/side"}, files: true},
	"registry":    {agent: "agent_b", paths: []string{"mailboxes/_registry.json"}, files: true},
	"mail":        {agent: "agent_b", paths: []string{"mailboxes/%s/inbox", "mailboxes/%s/processed"}, files: true},
	"malformed":   {agent: "agent_b", paths: []string{"mailboxes/%s/malformed"}, use: (*team).badMail, files: true},
	"peer's mail": {agent: "agent_b", paths: []string{"mailboxes/agent_a/inbox"}, files: true},
	"sent mail":   {agent: "agent_b", paths: []string{"mailboxes/%s/state"}},
	"dead letters": {agent: "agent_b", paths: []string{"mailboxes/%s/state"}, use: (*team).deadMail,
		end: (*team).comeBack},
	"transcripts":   {agent: "agent_g", paths: []string{"transcripts"}},
	"groups file":   {agent: "agent_b", paths: []string{"groups.json"}, use: (*team).editGroups},
	"whole bot":     {agent: "agent_b", paths: []string{"."}},
	"whole gateway": {agent: "agent_g", paths: []string{"."}},
}

// hesitate lets the bot of agent_b answer late.
func (n *team) hesitate(context.Context, int64) error {
	n.bot("agent_b").late.Store(int64(2 * time.Second)) // a delivery is stored after one
	return nil
}

func (n *team) hurry(context.Context) error {
	n.bot("agent_b").late.Store(0)
	return nil
}

// askOne lets a person ask in a group of their own where one bot answers.
func (n *team) askOne(ctx context.Context, number int64) error {
	g := n.bot("agent_g")
	if n.asks == "" {
		group := n.sim.AddGroup("one answers", n.user.ID, g.sdk.app.ID).ID
		if _, err := n.sim.Say(group, n.user.ID, "hello"); err != nil {
			return err
		}
		err := wait.Until(ctx, tick, func(ctx context.Context) (known bool, err error) {
			status, _, err := g.call(ctx, http.MethodPatch, "/v1/groups/"+group, map[string]any{"answer": "one"}, nil)
			return status == http.StatusOK, err
		})
		if err != nil {
			return err
		}
		n.asks = group
	}
	_, err := n.sim.Say(n.asks, n.user.ID, fmt.Sprint("question ", number))
	return err
}

// newChat lets a person speak in another group.
func (n *team) newChat(_ context.Context, number int64) error {
	group := n.sim.AddGroup(fmt.Sprint("group ", number), n.user.ID, n.bot("agent_g").sdk.app.ID)
	_, err := n.sim.Say(group.ID, n.user.ID, "hello")
	return err
}

// badMail puts what is no mail into the inbox of agent_b.
func (n *team) badMail(_ context.Context, number int64) error {
	inbox := filepath.Join(n.dir, "mailboxes", "agent_b", "inbox")
	name := fmt.Sprintf("%d_agent_a_%d.msg.json", time.Now().UnixMilli(), number)
	return os.WriteFile(filepath.Join(inbox, name), []byte("{"), 0o600)
}

// deadMail lets agent_b send mail that is late before agent_a, whose bot is away, takes it.
func (n *team) deadMail(ctx context.Context, number int64) error {
	n.bot("agent_a").away.Store(true)
	return n.bot("agent_b").insist(ctx, "/v1/mailbox/messages", map[string]any{"id": fmt.Sprint("late_", number), "to": "agent_a",
		"type": "question", "content": "late", "metadata": map[string]any{"ttl": 1, "requiresAck": true}})
}

func (n *team) comeBack(context.Context) error {
	n.bot("agent_a").away.Store(false)
	return nil
}

// editGroups writes the groups file.
func (n *team) editGroups(_ context.Context, number int64) error {
	text := fmt.Appendf(nil, `{"groups":{"oc_other":{"name":"group %d"}}}`, number)
	return os.WriteFile(filepath.Join(n.dir, "groups.json"), text, 0o600)
}

// shortForm is what a run of all tests does of the table.
var shortForm = []struct{ files, errno string }{
	{"book", "ENOSPC"}, {"transcripts", "EIO"}, {"whole gateway", "EMFILE"},
}

// A file or all files of a sidecar fail while its bot works. The bot's own messages go through, the
// log says what fails, and when the disk is well again everything that was accepted arrives, once.
func TestDiskFaults(t *testing.T) {
	verify.Only(t)
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
		if hits, ran := n.hits[files]; ran && hits == 0 {
			t.Errorf("%s: no call failed, so nothing was tested", files)
		}
	}
	t.Logf("injected errors: %v", n.hits)
	t.Run("no descriptors", n.noDescriptors)
	if n.redis == nil {
		t.Run("CA", n.caFaults)
	}
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
	if c.files && n.redis != nil {
		t.Skip("Redis is in place of these files")
	}
	victim := n.bot(c.agent)
	if c.use != nil {
		must(t, c.use(n, limited(t), n.count.Add(1)))
	}
	var paths []string
	for _, p := range c.paths {
		if strings.Contains(p, "%s") {
			p = fmt.Sprintf(p, c.agent)
		}
		var found []string
		eventually(limited(t), t, p+" is there", func() bool {
			found = below(t, filepath.Join(n.dir, p))
			return len(found) > 0
		})
		paths = append(paths, found...)
	}
	before := victim.reported(limited(t), t)
	in := inject(t, victim.pid(), errorsOfDisk[errno], errno, paths)
	n.round(limited(t), t, victim, func(done <-chan struct{}) {
		// Long enough for repeats; it ends also where all goes on without these files.
		// What a round does not use is used until a call fails, or for as long as a fault lasts.
		began, used := time.Now(), time.Time{}
		for lasts := c.use != nil; (lasts || !closed(done)) && in.hits() < enoughHits; time.Sleep(tick) {
			if lasted := time.Since(began); lasted > longFault && (in.hits() > 0 || closed(done)) || lasts && lasted > 4*longFault {
				break
			}
			if c.use != nil && time.Since(used) > longFault/4 {
				used = time.Now()
				if err := c.use(n, limited(t), n.count.Add(1)); err != nil {
					t.Error(err)
				}
			}
		}
		in.end()
		if c.end != nil {
			must(t, c.end(n, limited(t)))
		}
	})
	// A failure that goes on is reported once, so the next ones of the same files need not be.
	first := n.hits[files] == 0 && in.hits() > 0
	n.hits[files] += in.hits()
	if first {
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
	card, err := larktest.Card(ctx, g.sdk.client, "Thinking…")
	must(t, err)
	id, err := larktest.Send(ctx, g.sdk.client, n.chat, "interactive", larktest.Shown(card), "")
	must(t, err)
	must(t, larktest.Grow(ctx, g.sdk.client, card, "half a card", 1))
	must(t, larktest.Grow(ctx, g.sdk.client, card, fmt.Sprintf("the whole card %d", number), 2))
	must(t, larktest.End(ctx, g.sdk.client, card, 3))
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
	id, err := larktest.Send(ctx, b.sdk.client, n.chat, "text", larktest.Text(text), "")
	if err != nil {
		t.Errorf("the bot's own message did not pass: %v", err)
		return
	}
	n.book.accepted(id, message{from: b.name, text: text})
}

// caFaults starts a sidecar whose disk fails at the gateway's CA. It says so and ends, and changes neither the certificate,
// which bots trust, nor the key; without the fault it starts again.
func (n *team) caFaults(t *testing.T) {
	home := t.TempDir()
	addr, err := loopback.Addr()
	must(t, err)
	s := newSide(t, "agent_ca", t.TempDir(), map[string]string{"DATA_DIR": home, "GATEWAY_ADDR": addr, "GATEWAY_TLS": "auto",
		"FEISHU_BASE_URL": n.bot("agent_g").env["FEISHU_BASE_URL"], "MAILBOX": "off"})
	s.as(presentProgram(t))
	files := []string{filepath.Join(home, "ca.pem"), filepath.Join(home, "private", "ca-key.pem")}
	read := func() (all []byte) {
		for _, file := range files {
			data, err := os.ReadFile(file)
			must(t, err)
			all = append(all, data...)
		}
		return all
	}
	must(t, s.start())
	s.ready(limited(t))
	s.stop()
	was := read()
	for _, file := range files {
		for _, errno := range []string{"EIO", "EMFILE"} { // it only reads them
			log := filepath.Join(t.TempDir(), "strace")
			calls := errorsOfDisk[errno]
			cmd := exec.CommandContext(limited(t), "strace", "-f", "-qq", "-o", log, "-e", "trace="+calls,
				"-e", "inject="+calls+":error="+errno, "-P", file, "-P", filepath.Base(file), s.program, "run")
			for name, value := range s.env {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			hits := (&injection{log: log}).hits()
			n.hits["CA"] += hits
			if err == nil || hits == 0 || !bytes.Contains(out, []byte("GATEWAY_TLS")) {
				t.Errorf("%s, %s: %d calls failed, it ended with %v and says %s", filepath.Base(file), errno, hits, err, out)
			}
			if !bytes.Equal(read(), was) {
				t.Errorf("%s, %s: the CA is another one", filepath.Base(file), errno)
			}
		}
	}
	must(t, s.start())
	s.ready(limited(t))
	s.stop()
	t.Logf("%d calls failed", n.hits["CA"])
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

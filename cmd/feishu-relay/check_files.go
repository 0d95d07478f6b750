package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"feishu-relay/internal/groups"
	"feishu-relay/internal/safefile"
)

// scratch begins the names of the files that a probe makes and removes.
const scratch = ".feishu-relay-check-"

func checkRelayDir(_ context.Context, s *subject) []finding {
	return checkFolder("RELAY_DIR", s.RelayDir)
}

func checkTranscriptDir(_ context.Context, s *subject) []finding {
	return checkFolder("TRANSCRIPT_DIR", s.TranscriptDir)
}

func checkMailboxDir(_ context.Context, s *subject) []finding {
	return checkFolder("MAILBOX_DIR", s.Mailbox.Dir)
}

// checkFolder writes, locks and removes a file in the folder. A missing folder is not
// made, since the sidecar's user may be another one: the folder that it would be made
// in is tried.
func checkFolder(variable, dir string) []finding {
	elsewhere := say("set %s (or DATA_DIR) to a folder that this user can write",
		"把 %s（或 DATA_DIR）设成这个用户能写的目录", variable)
	at, err := existing(dir)
	if err != nil {
		return failure(denied(err, elsewhere), "%s", "", plainly(err))
	}
	switch err := tryFiles(at); {
	case errors.Is(err, errNoLock):
		return failure(say("put it on a local disk; sidecars on several hosts meet over Redis: set REDIS_URL",
			"放到本地磁盘上；几台主机上的边车请用 Redis：设 REDIS_URL"),
			"%s: %v", "", at, err)
	case err != nil:
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // without the name of the file that was tried
		}
		return failure(denied(err, say("%s, or let this user write there", "%s，或让这个用户能写那里", elsewhere)),
			"%s: %v", "", at, err)
	}
	out := well("%s can be written, locks work", "%s 可写，文件锁有效", dir)
	if at != dir {
		out = well("%s does not exist yet, and can be made", "%s 还不存在，可以创建", dir)
	} else if mode := permissions(dir); mode&0o007 != 0 {
		out = warning(alike("chmod o-rwx "+dir),
			"every user of this host can look into %s (mode %04o): it holds conversations",
			"这台主机的所有用户都能读 %s（权限 %04o），里面有对话内容", dir, mode)
	}
	if kind := safefile.NetworkFS(at); kind != "" {
		out = append(out, warning(say("use a local disk, or Redis: set REDIS_URL", "用本地磁盘，或 Redis：设 REDIS_URL"),
			"%s is on a network file system (%s), where locks, appends and change events of several "+
				"hosts are not reliable",
			"%s 在网络文件系统（%s）上，多台主机的文件锁、追加写入和变更通知都不可靠", at, kind)...)
	}
	return out
}

// permissions are those of a file; 0 where that is missing, or there are others.
func permissions(path string) fs.FileMode {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return 0
	}
	return info.Mode().Perm()
}

// existing returns dir, or the nearest folder above it that exists.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", say("%s is a file, not a folder", "%s 是文件，不是目录", dir)
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir:
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

var errNoLock error = say("locks do not keep a second holder out", "文件锁不起作用")

// tryFiles makes a file in dir, appends to it, locks it twice, which must not
// succeed, and removes it.
func tryFiles(dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	name := scratch + rand.Text()
	first, err := safefile.Open(root, name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.Close(), root.Remove(name)) }()
	second, err := safefile.Open(root, name, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	if _, err := safefile.Append(first, []byte("check\n")); err != nil {
		return err
	}
	locked, err := safefile.TryLock(first)
	if err != nil {
		return err
	}
	again, err := safefile.TryLock(second)
	if err == nil && (!locked || again) {
		err = errNoLock
	}
	return err
}

// checkQueueFiles opens the queues as a writer does, as far as they exist; that they
// can be made is seen by the probe of the folder.
func checkQueueFiles(_ context.Context, s *subject) []finding {
	found := well("nothing has been sent in %s yet", "%s 里还没有发过消息", s.RelayDir)
	for _, queue := range []string{"outbound.jsonl", "inbound.jsonl"} {
		f, err := os.OpenFile(filepath.Join(s.RelayDir, queue), os.O_RDWR|os.O_APPEND, 0)
		if err == nil {
			found = well("%s can be appended to", "%s 可以追加写入", s.RelayDir)
			_ = f.Close() // nothing was written
		} else if !errors.Is(err, fs.ErrNotExist) {
			return failure(denied(err, say("run all sidecars that share RELAY_DIR as one user, "+
				"or make the folder writable by their group",
				"让共用 RELAY_DIR 的所有边车以同一个用户运行，或让它们的组能写这个目录")), "%v", "", err)
		}
	}
	return found
}

// checkAgent reports whether a sidecar of this agent runs. That is as it should be,
// unless somebody wonders why a second one does not start.
func checkAgent(_ context.Context, s *subject) []finding {
	path := filepath.Join(s.RelayDir, "offsets", safefile.Name(string(s.Agent))+".lock")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return well("%s has not run in %s yet", "%s 还没有在 %s 里运行过", s.Agent, s.RelayDir)
	}
	if err != nil {
		return failure(denied(err, say("run all sidecars that share RELAY_DIR as one user or in one group",
			"让共用 RELAY_DIR 的所有边车以同一个用户或同一个组运行")), "%v", "", err)
	}
	defer f.Close() // which frees the lock
	free, err := safefile.TryLock(f)
	switch {
	case err != nil:
		return failure(say("put RELAY_DIR on a file system with locks", "把 RELAY_DIR 放到支持文件锁的文件系统上"),
			"%v", "", err)
	case free:
		return well("no sidecar of %s is running in %s", "没有 %s 的边车在 %s 里运行", s.Agent, s.RelayDir)
	}
	return well("a sidecar of %s is running in %s; a second one would refuse to start",
		"%s 的边车正在 %s 里运行；第二个会拒绝启动", s.Agent, s.RelayDir)
}

// checkGroups reads the groups file and looks for this agent in it.
func checkGroups(_ context.Context, s *subject) []finding {
	path, agent := s.GroupsFile, string(s.Agent)
	everywhere := s.MembershipCheck == "auto" && !s.KnowsFeishu() // without a list of groups
	list := say("list the groups with their members under \"groups\" in %s, or set MEMBERSHIP_CHECK=off if that is meant",
		"在 %s 的 \"groups\" 下列出群和成员；如果有意如此，设 MEMBERSHIP_CHECK=off", path)
	data, err := readAtMost(path, groups.MaxSize)
	switch {
	case errors.Is(err, fs.ErrNotExist) && everywhere:
		return warning(list,
			"there is no %s: the bot hears every chat on the relay", "没有 %s：机器人会收到中继上所有的会话", path)
	case errors.Is(err, fs.ErrNotExist):
		return well("there is no %s (it is optional)", "没有 %s（可以没有）", path)
	case err != nil:
		return failure(denied(err, say("let this user read it, or set GROUPS_FILE to another",
			"让这个用户能读它，或把 GROUPS_FILE 设成别的文件")), "%v", "", err)
	}
	var out []finding
	file, err := groups.Parse(data)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			out = append(out, failure(say("correct it in %s", "在 %s 里改正", path), "%s", "", line)...)
		}
		return out
	}
	in := 0
	for chat := range file.Groups {
		if member, _ := file.Member(chat, agent); member {
			in++
		}
	}
	out = well("%s: %d agents, %d groups, %s is in %d of them",
		"%s：%d 个智能体，%d 个群，%s 在其中 %d 个里", path, len(file.Agents), len(file.Groups), agent, in)
	for _, key := range file.Unread {
		out = append(out, warning(say("correct the key in %s", "在 %s 里改正这个键", path), "%s", "", key)...)
	}
	if !listed(file, s.config) {
		out = append(out, warning(say("add %q with its name in Feishu to %s", "把 %q 连同它在飞书里的名字加到 %s", agent, path),
			"%s is not among the agents: the others cannot address it by its name",
			"%s 不在智能体列表里：其他机器人不能用名字叫它", agent)...)
	}
	if !file.HasGroups && everywhere {
		out = append(out, warning(list,
			"it lists no groups: the bot hears every chat on the relay", "里面没有列出群：机器人会收到中继上所有的会话")...)
	}
	if file.HasGroups && in == 0 && s.MembershipCheck != "off" && !s.KnowsFeishu() {
		out = append(out, warning(say("add %q to the members of its groups", "把 %q 加到它所在群的成员里", agent),
			"%s is in none of the groups: it hears only those in which it has been seen",
			"%s 不在任何群的成员里：只收得到它出现过的群", agent)...)
	}
	return out
}

func readAtMost(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)+1)) // one more, so that too long is seen
}

// readGroups returns nil for a file that is missing or broken, which the probe of the
// groups file reports.
func readGroups(path string) *groups.File {
	data, err := readAtMost(path, groups.MaxSize)
	if err != nil {
		return nil
	}
	file, err := groups.Parse(data)
	if err != nil {
		return nil
	}
	return file
}

// listed reports whether the file has this agent: by AGENT_NAME, by the bot's name, or
// by one of its ids.
func listed(file *groups.File, c *config) bool {
	for _, a := range file.Agents {
		if a.ID == string(c.Agent) || called(a, c.BotName) ||
			c.BotOpenID != "" && a.FeishuOpenID == string(c.BotOpenID) || c.AppID != "" && a.AppID == c.AppID {
			return true
		}
	}
	return false
}

func called(a groups.Agent, name string) bool {
	return name != "" && (a.Name == name || slices.Contains(a.Aliases, name))
}

// denied is the fix where err may say that this user may not: most often the check
// runs as another one than the sidecar, and nothing is wrong.
func denied(err error, mend text) text {
	if errors.Is(err, fs.ErrPermission) {
		return say("run this check as the sidecar's user; if it is: %s", "请以边车的用户运行检查；如果已经是：%s", mend)
	}
	return mend
}

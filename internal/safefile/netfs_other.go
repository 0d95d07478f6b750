//go:build !linux

package safefile

// NetworkFS names the network file system that dir is on; it is known on Linux
// only.
func NetworkFS(string) string { return "" }

//go:build !linux

package safefile

// NetworkFS names the network file system that dir lies on; only Linux tells.
func NetworkFS(string) string { return "" }

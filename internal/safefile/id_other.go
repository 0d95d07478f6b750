//go:build !unix

package safefile

// FolderID is "" on this system: paths are compared instead.
func FolderID(string) string { return "" }

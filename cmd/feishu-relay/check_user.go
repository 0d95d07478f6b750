package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
)

// usualDataDir is the default of DATA_DIR.
const usualDataDir = "~/.nanobot"

// checkDataFolder names the user and the home: with the default DATA_DIR, sidecars of
// different users share nothing.
func checkDataFolder(_ context.Context, s *subject) []finding {
	who := fmt.Sprintf("this is user %s, home %s", userName(), homeDir())
	if usual, err := fullPath(usualDataDir); err != nil || s.DataDir != usual {
		return well("%s; DATA_DIR is %s", who, s.DataDir)
	}
	const shares = "%s; DATA_DIR is %s, the default, which nanobot shares"
	if s.Backend != "redis" {
		return well(shares+"; a sidecar of another user meets this one only with the same DATA_DIR", who, s.DataDir)
	}
	return well(shares, who, s.DataDir)
}

// userName is that of this process, or its number where the system has no name.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("number %d", os.Getuid())
}

func homeDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "unknown"
	}
	return home
}

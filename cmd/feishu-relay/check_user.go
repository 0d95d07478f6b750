package main

import (
	"context"
	"os"
	"os/user"
)

// usualDataDir is the default of DATA_DIR.
const usualDataDir = "~/.nanobot"

// checkDataFolder names the user and the home: with the default DATA_DIR, sidecars of
// different users share nothing.
func checkDataFolder(_ context.Context, s *subject) []finding {
	who := say("this is user %s, home %s", "当前用户 %s，主目录 %s", userName(), homeDir())
	if usual, err := fullPath(usualDataDir); err != nil || s.DataDir != usual {
		return well("%s; DATA_DIR is %s", "%s；DATA_DIR 是 %s", who, s.DataDir)
	}
	if s.Backend != "redis" {
		return well("%s; DATA_DIR is %s, the default, which nanobot shares; "+
			"a sidecar of another user meets this one only with the same DATA_DIR",
			"%s；DATA_DIR 是 %s（默认值，与 nanobot 共用）；其他用户的边车要用同一个 DATA_DIR 才能连到一起", who, s.DataDir)
	}
	return well("%s; DATA_DIR is %s, the default, which nanobot shares",
		"%s；DATA_DIR 是 %s（默认值，与 nanobot 共用）", who, s.DataDir)
}

// userName is that of this process, or its number where the system has no name.
func userName() text {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return alike(u.Username)
	}
	return say("number %d", "编号 %d", os.Getuid())
}

func homeDir() text {
	home, err := os.UserHomeDir()
	if err != nil {
		return unknown
	}
	return alike(home)
}

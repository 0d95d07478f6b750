//go:build !linux

package safefile

import "os"

// TryTurn, TurnTaken and EndTurn do nothing on this system: which waiting writer
// gets a lock is chance.
func TryTurn(*os.File) bool { return false }

func TurnTaken(*os.File) bool { return false }

func EndTurn(*os.File) {}

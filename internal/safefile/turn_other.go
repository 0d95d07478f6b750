//go:build !linux

package safefile

import "os"

// TryTurn, TurnTaken and EndTurn do nothing on this system: who waits for a lock
// gets it by chance.
func TryTurn(*os.File) bool { return false }

func TurnTaken(*os.File) bool { return false }

func EndTurn(*os.File) {}

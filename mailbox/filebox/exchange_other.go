//go:build !linux

package filebox

import (
	"errors"
	"os"
)

// exchange would let two files of a folder change names in one step.
func exchange(*os.Root, string, string) error { return errors.ErrUnsupported }

package filebox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// exchange lets two files of a folder change names in one step. It fails with
// [errors.ErrUnsupported] where the file system cannot, and with
// [fs.ErrNotExist] where one of them is missing.
func exchange(root *os.Root, a, b string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	err = unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL): // how file systems without it answer
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}

// Package safefile holds the file operations that all files of this program are
// written with: private folders, whole-file replacement, locked appends that
// never damage another writer's line, and file names that are never a path.
//
// # Rights
//
// A new folder has mode 0700 and a new file 0600. In an existing folder that
// its group may write to (containers that share a volume) these are 0770 and
// 0660.
//
// # Appending
//
// A process killed in the middle of a write leaves a torn line, and the next
// append would glue its own line onto it. [Append] therefore checks the last
// byte of the file first and starts a new line if it is not a newline. The
// caller must hold the lock ([TryLock]).
package safefile

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// OpenDir opens the folder at path, making it and its parents if they are
// missing. All files in it are accessed through the returned root.
func OpenDir(path string) (*os.Root, error) {
	if err := makeDir(path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", path, err)
	}
	return root, nil
}

func makeDir(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is a file, not a folder", path)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("stat folder %s: %w", path, err)
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o700)
	if info, err := os.Stat(parent); err == nil && info.Mode()&0o020 != 0 && info.Mode()&fs.ModeSticky == 0 {
		mode = 0o770
	}
	if err := os.Mkdir(path, mode); errors.Is(err, fs.ErrExist) {
		return nil // another process has just made it and sets its mode
	} else if err != nil {
		return fmt.Errorf("make folder %s: %w", path, err)
	}
	if mode == 0o700 {
		return nil
	}
	// The umask has removed the group's rights. Keep a set-group-id bit: it
	// gives new files inside to the shared group.
	made, err := os.Stat(path)
	if err == nil {
		err = os.Chmod(path, mode|made.Mode()&fs.ModeSetgid)
	}
	if err != nil {
		return fmt.Errorf("share folder %s with its group: %w", path, err)
	}
	return nil
}

// OpenSub opens the folder name below root, making it if it is missing. It refuses any
// symbolic link, so that files are written below root only.
func OpenSub(root *os.Root, name string) (*os.Root, error) {
	sub, err := openSub(root, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return sub, err
	}
	if err := makeDir(filepath.Join(root.Name(), name)); err != nil {
		return nil, err
	}
	return openSub(root, name)
}

func openSub(root *os.Root, name string) (*os.Root, error) {
	path := filepath.Join(root.Name(), name)
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("stat folder %s: %w", path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("%s is a symbolic link; make it a folder", path)
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", path, err)
	}
	return sub, nil
}

// ErrNotRegular is returned for a folder, a FIFO or a device where a file is wanted.
var ErrNotRegular = errors.New("not a regular file")

// Open opens name below root with the given flags. A file that this call creates
// gets its mode from its folder. It never waits: if name is not a regular file,
// it returns [ErrNotRegular] or the error of opening it.
func Open(root *os.Root, name string, flag int) (*os.File, error) {
	flag |= nonblock // opening a FIFO would wait for its other end
	if flag&os.O_EXCL == 0 {
		f, err := root.OpenFile(name, flag&^os.O_CREATE, 0)
		if err == nil {
			return regular(f)
		}
		if flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	mode := fileMode(root)
	f, err := root.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	if mode != 0o600 {
		_ = f.Chmod(mode) // fails for another process's file, whose owner sets its mode
	}
	return regular(f)
}

// regular returns f, or closes it if it is not a regular file.
func regular(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// maxWhole is the most bytes that ReadFile reads; files written here are far
// smaller.
const maxWhole = 64 << 20

// ReadFile reads all of name below root. It opens the file like [Open].
func ReadFile(root *os.Root, name string) ([]byte, error) {
	f, err := Open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxWhole+1))
	if err == nil && len(data) > maxWhole {
		err = fmt.Errorf("%s has more than %d bytes", name, maxWhole)
	}
	return data, err
}

func fileMode(root *os.Root) fs.FileMode {
	if info, err := root.Stat("."); err == nil && info.Mode()&0o020 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return 0o660
	}
	return 0o600
}

// Replace makes data the whole content of name below root: it writes and syncs
// a temporary file, renames it, and syncs the folder. A reader sees the old
// content or the new, never a part.
func Replace(root *os.Root, name string, data []byte) error {
	return replace(root, name, data, true)
}

// ReplaceFast is [Replace] without the syncs, for state that may fall back to
// an older value after a power cut (a position, a cache): a killed process
// leaves the old content or the new.
func ReplaceFast(root *os.Root, name string, data []byte) error {
	return replace(root, name, data, false)
}

func replace(root *os.Root, name string, data []byte, sync bool) (err error) {
	temp := name + "." + rand.Text()[:8] + ".tmp"
	f, err := Open(root, temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temp)
		}
	}()
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err = root.Rename(temp, name); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Append writes data, whole lines that end in a newline, at the end of f, which
// was opened with O_APPEND and O_RDWR and is locked by the caller. It first ends
// a torn line that a killed writer left ([EndLine]), and after a partial write ends
// that. It returns the offset of data.
func Append(f *os.File, data []byte) (at int64, err error) {
	if _, err = EndLine(f); err != nil {
		return 0, err
	}
	n, err := f.Write(data)
	if err != nil {
		if n > 0 && data[n-1] != '\n' {
			_, _ = f.Write([]byte{'\n'}) // may fail too
		}
		return 0, fmt.Errorf("append to %s (%d of %d bytes written): %w", f.Name(), n, len(data), err)
	}
	end, err := f.Seek(0, io.SeekCurrent) // the end of our write: O_APPEND moved the offset there
	if err != nil {
		return 0, fmt.Errorf("append to %s: %w", f.Name(), err)
	}
	return end - int64(len(data)), nil
}

// EndLine writes a newline if the last line of f has none, and returns the size of f.
func EndLine(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size()
	if size == 0 {
		return 0, nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], size-1); err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read the end of %s: %w", f.Name(), err)
	}
	if last[0] == '\n' {
		return size, nil
	}
	if _, err := f.Write([]byte{'\n'}); err != nil {
		return 0, fmt.Errorf("end a torn line of %s: %w", f.Name(), err)
	}
	return size + 1, nil
}

const maxName = 120

// Name turns an identifier from outside (a chat id, an agent's name) into a
// file name: letters, digits, '-', '_' and single dots are kept, every other
// byte becomes %XX, and a long name is cut and ends in a hash. Different
// identifiers give different names, and none gives a path.
func Name(id string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-',
			c == '.' && i > 0 && id[i-1] != '.':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	if b.Len() > maxName {
		sum := sha256.Sum256([]byte(id))
		return b.String()[:maxName-35] + "%~" + hex.EncodeToString(sum[:16])
	}
	if b.Len() == 0 {
		return "%"
	}
	return b.String()
}

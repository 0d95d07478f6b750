package filerelay

import (
	"os"

	"golang.org/x/sys/windows"
)

// idOf identifies the open file f on this host: volume and file index.
func idOf(f *os.File) (fileID, error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return fileID{}, &os.PathError{Op: "identify", Path: f.Name(), Err: err}
	}
	return fileID{
		Dev: uint64(info.VolumeSerialNumber),
		Ino: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
	}, nil
}

// linked reports whether the open file f still has a name.
func linked(f *os.File) bool {
	var info windows.ByHandleFileInformation
	err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info)
	return err == nil && info.NumberOfLinks > 0
}

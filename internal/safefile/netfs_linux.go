package safefile

import "syscall"

// File system numbers of statfs(2) whose locks, appends or change events do
// not work between hosts.
var networkFS = map[int64]string{
	0x6969:     "nfs",
	0x517b:     "smb",
	0xff534d42: "cifs",
	0xfe534d42: "smb2",
	0x01021997: "9p",
	0x00c36400: "ceph",
	0x65735546: "fuse",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x01161970: "gfs2",
	0x5346414f: "afs",
}

// NetworkFS names the network file system that dir is on, or "" for a local
// one. Appends, locks and inotify are only reliable on local ones.
func NetworkFS(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return ""
	}
	return networkFS[int64(uint32(st.Type))]
}

package book

// Step is a change of the folder: see step.
type Step func(op, name string, data []byte, do func(data []byte) error) error

// ForTest lets snapshots begin with garbage bytes of garbage, and passes each change of the folder to s.
func (o Options) ForTest(garbage int64, s Step) Options {
	o.garbage, o.step = garbage, step(s)
	return o
}

// WaitForSnapshot waits until no snapshot is written.
func (b *Book) WaitForSnapshot() { b.running.Wait() }

// Stats describes a book.
type Stats struct {
	Records   int
	Live      int64  // bytes of the lines of these records
	Disk      int64  // bytes of all files; what is not live is garbage
	Skipped   int    // malformed lines at Open
	Dropped   uint64 // records that a bound of number or bytes has removed since Open
	Snapshots int    // since Open
}

// Stats returns the present numbers.
func (b *Book) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Live: b.index.live, Disk: b.size(), Skipped: b.skipped, Snapshots: b.snapshots}
	for _, k := range b.index.kinds {
		s.Records += k.places.Len()
		s.Dropped += k.dropped
	}
	return s
}

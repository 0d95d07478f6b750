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

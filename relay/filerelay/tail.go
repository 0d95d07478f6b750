package filerelay

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"feishu-relay/relay"
)

// chunkSize is how much is read at once. It grows to hold one line of
// relay.MaxLine, and shrinks again behind it.
const chunkSize = 256 << 10

// errReplaced says that what was read is no longer what stands before the
// place: the file was cut, or cut and filled again.
var errReplaced = errors.New("the file was replaced in place")

// tail takes whole lines from a growing file.
type tail struct {
	file   io.ReaderAt
	offset int64 // of the first byte not consumed
	// guard holds the last bytes before offset as they were read; each read
	// begins with them, so that the check and the data come from one system call.
	guard    []byte
	buf      []byte
	skipping bool // offset lies inside a line that is too long
}

// line is one line of the file without its newline.
type line struct {
	text  []byte // valid until the next read; nil: too long, passed over
	start int64
	end   int64 // behind the newline
	sum   sum
}

// newTail begins at offset, where want must be the sum of what stands before. It
// returns errReplaced when it is not.
func newTail(file io.ReaderAt, offset int64, want sum) (*tail, error) {
	guard := make([]byte, min(offset, guardSize))
	n, err := file.ReadAt(guard, offset-int64(len(guard)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < len(guard) || sumOf(guard) != want {
		return nil, errReplaced
	}
	return &tail{file: file, offset: offset, guard: guard}, nil
}

// read reads one chunk and calls each for its lines in order, blank ones included.
// consumed is the number of bytes it is done with; 0 means that no further
// whole line is there now. An error of each ends the reading and is returned.
func (t *tail) read(each func(line) error) (consumed int, err error) {
	data, n, err := t.fill(chunkSize)
	if err == nil && len(data) == chunkSize && bytes.IndexByte(data, '\n') < 0 && !t.skipping {
		data, n, err = t.fill(relay.MaxLine)
	}
	if err != nil {
		return 0, err
	}
	last := bytes.LastIndexByte(data, '\n')
	if last < 0 {
		if !t.skipping && len(data) < relay.MaxLine {
			return 0, nil // a line that is being written, or torn
		}
		t.skipping = true
		t.consume(n)
		return len(data), nil
	}
	guard := len(t.guard)
	for at := 0; at <= last; {
		length := bytes.IndexByte(data[at:], '\n')
		end := at + length + 1
		l := line{
			text:  data[at : end-1 : end-1],
			start: t.offset + int64(at),
			end:   t.offset + int64(end),
			sum:   sumOf(t.buf[:guard+end]),
		}
		if t.skipping || length >= relay.MaxLine {
			l.text, t.skipping = nil, false
		}
		if err := each(l); err != nil {
			return 0, err
		}
		at = end
	}
	t.consume(guard + last + 1)
	return last + 1, nil
}

// rest returns what stands behind the last newline, at most relay.MaxLine bytes.
func (t *tail) rest() ([]byte, error) {
	data, _, err := t.fill(relay.MaxLine)
	return data, err
}

// fill reads up to size bytes behind offset into buf, after the guard; n is
// how much of buf is filled.
func (t *tail) fill(size int) (data []byte, n int, err error) {
	guard := len(t.guard)
	if want := guard + size; len(t.buf) < want || (size == chunkSize && len(t.buf) > guardSize+chunkSize) {
		t.buf = make([]byte, guardSize+size)
	}
	n, err = t.file.ReadAt(t.buf[:guard+size], t.offset-int64(guard))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read: %w", err)
	}
	if n < guard || !bytes.Equal(t.buf[:guard], t.guard) {
		return nil, 0, errReplaced
	}
	return t.buf[guard:n], n, nil
}

// consume moves offset to the place that stands at upTo in buf.
func (t *tail) consume(upTo int) {
	t.offset += int64(upTo - len(t.guard))
	t.guard = append(t.guard[:0], t.buf[max(0, upTo-guardSize):upTo]...)
}

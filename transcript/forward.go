package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// guardSize is how many bytes before the place of reading are remembered, to
// notice a file whose content was exchanged beneath it.
const guardSize = 32

// errReplaced says that the bytes before the place of reading have changed.
var errReplaced = errors.New("the file was replaced")

// forward is a place in a growing file: everything before it has been read. It
// holds no buffer between calls, since there is one for each open chat.
type forward struct {
	offset int64
	guard  []byte // the bytes before offset, at most guardSize
	long   bool   // offset stands inside a line that is too long
	at     int64  // offset of the line that was handed out last
}

// partial reports whether a line without an end stands before size.
func (p *forward) partial(size int64) bool { return p.offset < size || p.long }

// moveTo takes everything before offset as read; before is what stands there.
func (p *forward) moveTo(offset int64, before []byte) {
	p.offset, p.long = offset, false
	p.remember(before)
}

func (p *forward) remember(before []byte) {
	before = before[max(0, len(before)-guardSize):]
	p.guard = append(p.guard[:0], before...)
}

// read hands every finished line before size to take, until that returns
// false; a line is valid during the call only. skip is told of each line that
// is too long. Memory is bounded by MaxLine and a block.
func (p *forward) read(f io.ReaderAt, size int64, take func(line []byte) bool, skip func()) error {
	block := blocks.Get().(*[blockSize]byte)
	defer blocks.Put(block)
	buf := block[:]
	for p.offset < size {
		from := p.offset - int64(len(p.guard))
		n := int(min(size-from, int64(len(buf))))
		if _, err := f.ReadAt(buf[:n], from); err != nil {
			if errors.Is(err, io.EOF) {
				return errReplaced // it was longer a moment ago
			}
			return fmt.Errorf("read transcript: %w", err)
		}
		fresh, same := bytes.CutPrefix(buf[:n], p.guard)
		if !same {
			return errReplaced
		}
		used, more := p.lines(fresh, take, skip)
		if used == 0 {
			switch {
			case from+int64(n) == size:
				return nil // unfinished
			case len(fresh) > MaxLine:
				p.long, used = true, len(fresh)
			default:
				buf = make([]byte, min(2*len(buf), MaxLine+blockSize))
				continue
			}
		}
		p.offset += int64(used)
		p.remember(buf[:n-len(fresh)+used])
		if !more {
			return nil
		}
	}
	return nil
}

// lines hands out the finished lines of data and returns how much they are.
func (p *forward) lines(data []byte, take func(line []byte) bool, skip func()) (used int, more bool) {
	if p.long && bytes.IndexByte(data, '\n') < 0 {
		return len(data), true
	}
	for {
		i := bytes.IndexByte(data[used:], '\n')
		if i < 0 {
			return used, true
		}
		line := data[used : used+i]
		p.at = p.offset + int64(used)
		used += i + 1
		switch {
		case p.long || len(line) >= MaxLine:
			p.long = false
			skip()
		case !take(line):
			return used, false
		}
	}
}

package filerelay

import (
	"context"
	"encoding/json"
	"slices"

	"feishu-relay/internal/jsonl"
)

// leave moves the current file to the left ones. Its last line is handed over
// if it is whole and lacks only the newline; else the rest of the line is
// waited for.
func (r *reader) leave(ctx context.Context) error {
	if r.tail == nil {
		return nil
	}
	if rest, err := r.src.rest(r.tail); err == nil && len(rest) > 0 && !r.tail.Inside() && json.Valid(rest) {
		r.tail.Skip(rest)
		at := place{r.src, r.tail.Offset(), r.tail.Sum()}
		if err := r.handOver(ctx, rest, at, at.offset-int64(len(rest))); err != nil {
			return err
		}
	}
	r.left = append(r.left, leftFile{src: r.src, tail: r.tail})
	if len(r.left) > maxLeft {
		r.forget(r.left[0])
		r.left = slices.Delete(r.left, 0, 1)
	}
	return nil
}

// late hands over what others wrote to a file after it had been left. The
// position cannot express such a line: a crash before it is settled may lose
// it, if the position in the current file was stored meanwhile.
func (r *reader) late(ctx context.Context) error {
	for i := range r.left {
		l := &r.left[i]
		for n := int64(1); n > 0; {
			var err error
			n, _, err = r.read(l.src, l.tail, func(got jsonl.Line) error {
				text := r.usable(got)
				if text == nil {
					return nil
				}
				if !l.said {
					l.said = true
					r.q.log.Warn("a program writes to a rotated file; it should open the queue file for each line")
				}
				r.q.stats.late.Add(1)
				return r.handOver(ctx, text, r.position(), noPlace)
			})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil { // cut or unreadable: nothing more comes from it
				n = 0
			}
		}
	}
	r.left = slices.DeleteFunc(r.left, func(l leftFile) bool {
		gone := !linked(l.src.file)
		if gone {
			r.forget(l)
		}
		return gone
	})
	return nil
}

// position is the place up to which the current file was read.
func (r *reader) position() place {
	if r.tail == nil {
		return place{r.src, 0, noSum}
	}
	return place{r.src, r.tail.Offset(), r.tail.Sum()}
}

// forget closes a left file for good; a torn line at its end is counted.
func (r *reader) forget(l leftFile) {
	if rest, err := l.src.rest(l.tail); err == nil && len(rest) > 0 {
		r.q.stats.skipped.Add(1)
		r.q.log.Warn("skipped a torn line at the end of a rotated file", "offset", l.tail.Offset(), "bytes", len(rest))
	}
	l.src.close()
}

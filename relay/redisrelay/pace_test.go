package redisrelay

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestGathererWaitsOnlyForAStream(t *testing.T) {
	tests := []struct {
		name    string
		entries int
		since   time.Duration
		want    bool
	}{
		{"nothing", 0, 0, false},
		{"one alone, its sender may wait for an answer", 1, time.Microsecond, false},
		{"two close together", 2, 300 * time.Microsecond, true},
		{"two apart", 2, 500 * time.Microsecond, false},
		{"ten in the time of a wait", 10, 1200 * time.Microsecond, true},
		{"four in the time of a wait", 4, 1200 * time.Microsecond, false},
		{"a full read: there is more", readCount, time.Microsecond, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			g := gatherer{last: start}
			if got := g.due(tt.entries, readCount, start.Add(tt.since)); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSpacedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far, near := net.Pipe()
		defer far.Close()
		defer near.Close()
		c := spaced{near}
		go func() {
			for range 3 {
				_, _ = far.Write([]byte("abcd"))
			}
		}()
		read := func(size int) time.Duration {
			start := time.Now()
			if _, err := c.Read(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		for i, tt := range []struct {
			size int
			want time.Duration
		}{{8, spacing}, {4, 0}, {8, spacing}} { // the second fills its buffer
			if got := read(tt.size); got != tt.want {
				t.Errorf("read %d took %s, want %s", i, got, tt.want)
			}
		}
	})
}

func TestForeignQueueDropsTheOldest(t *testing.T) {
	f := newForeign()
	dropped := 0
	for i := range maxForeign + 3 {
		dropped += f.push([]byte{byte(i), byte(i >> 8)})
	}
	if dropped != 3 {
		t.Errorf("dropped %d, want 3", dropped)
	}
	if line, ok := f.pop(t.Context()); !ok || line[0] != 3 {
		t.Errorf("the oldest left is %v, want the fourth", line)
	}
	big := make([]byte, maxForeignBytes/2)
	f = newForeign()
	f.push([]byte("old"))
	f.push(big)
	if got := f.push(big); got != 1 {
		t.Errorf("dropped %d by size, want 1", got)
	}
}

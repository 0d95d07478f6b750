package redisrelay

import (
	"encoding/json"
	"testing"

	"feishu-relay/internal/redislink"
	"feishu-relay/relay"
)

func id(ms uint64) redislink.EntryID { return redislink.EntryID{MS: ms} }

func TestSightReplaces(t *testing.T) {
	at := place{id(50), 5}
	tests := []struct {
		name string
		at   place
		s    sight
		want bool
	}{
		{"at the beginning nothing was read", place{}, sight{}, false},
		{"stream is gone", at, sight{}, true},
		{"stream ends before the cursor", at, sight{exists: true, added: 9, length: 9, first: id(1), last: id(49)}, true},
		{"cursor's entry is there", at, sight{exists: true, added: 9, length: 9, first: id(1), last: id(90), holds: true}, false},
		{"cursor's entry is there and fewer were added than read", at, sight{exists: true, added: 4, length: 4, first: id(1), last: id(90), holds: true}, true},
		{"entry missing in the middle", at, sight{exists: true, added: 90, length: 9, first: id(1), last: id(90)}, true},
		{"trimmed", at, sight{exists: true, added: 90, length: 9, first: id(60), last: id(90)}, false},
		{"trimmed to nothing", at, sight{exists: true, added: 90, length: 0, last: id(90)}, false},
		{"just trimmed", at, sight{exists: true, added: 10, length: 5, first: id(60), last: id(90)}, false},
		{"fewer left the stream than were read", at, sight{exists: true, added: 10, length: 6, first: id(60), last: id(90)}, true},
		{"new stream, younger entries, none trimmed", at, sight{exists: true, added: 7, length: 7, first: id(60), last: id(90)}, true},
		{"server does not count, entry there", at, sight{exists: true, added: unknown, length: 7, first: id(1), last: id(90), holds: true}, false},
		{"server does not count, another entry has the cursor's id", at,
			sight{exists: true, added: unknown, length: 7, first: id(50), last: id(90)}, true},
		{"server does not count, all behind the cursor", at, sight{exists: true, added: unknown, length: 7, first: id(60), last: id(90)}, false},
		{"cursor not numbered, all behind it", place{id(50), unknown}, sight{exists: true, added: 7, length: 7, first: id(60), last: id(90)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.replaces(tt.at); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSightAdjustAndLag(t *testing.T) {
	tests := []struct {
		name       string
		at         place
		s          sight
		wantN      int64
		wantMissed int64
		wantLag    int64
	}{
		{"no stream", place{}, sight{}, 0, 0, 0},
		{"behind by four", place{id(50), 5}, sight{exists: true, added: 9, length: 9, last: id(90)}, 5, 0, 4},
		{"caught up", place{id(90), 9}, sight{exists: true, added: 9, length: 2, last: id(90)}, 9, 0, 0},
		{"trimmed what was read", place{id(50), 5}, sight{exists: true, added: 9, length: 4, last: id(90)}, 5, 0, 4},
		{"trimmed two unread", place{id(50), 5}, sight{exists: true, added: 9, length: 2, last: id(90)}, 7, 2, 2},
		{"caught up, two were skipped", place{id(90), 7}, sight{exists: true, added: 9, length: 9, last: id(90)}, 9, 2, 0},
		{"beginning anew on a trimmed stream", place{}, sight{exists: true, added: 9, length: 6, last: id(90)}, 3, 3, 6},
		{"not numbered, caught up", place{id(90), unknown}, sight{exists: true, added: 9, length: 6, last: id(90)}, 9, 0, 0},
		{"not numbered, behind", place{id(50), unknown}, sight{exists: true, added: 9, length: 6, last: id(90)}, unknown, 0, 6},
		{"server does not count", place{id(50), 5}, sight{exists: true, added: unknown, length: 6, last: id(90)}, unknown, 0, 6},
		{"first start before a stream came anew", place{N: 7}, sight{exists: true, added: 4, length: 4, last: id(90)}, 0, 0, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, missed := tt.s.adjust(tt.at)
			if at.N != tt.wantN || missed != tt.wantMissed {
				t.Errorf("got number %d, missed %d, want %d, %d", at.N, missed, tt.wantN, tt.wantMissed)
			}
			if at.ID != tt.at.ID {
				t.Errorf("the place moved to %v", at.ID)
			}
			if got := tt.s.lag(at); got != tt.wantLag {
				t.Errorf("got lag %d, want %d", got, tt.wantLag)
			}
		})
	}
}

func TestReceiptText(t *testing.T) {
	for _, text := range []relay.Receipt{"1-2/3/", "1795211093522-0/0/0123456789abcdef", "5-0//x"} {
		r, err := parseReceipt(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.text(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	for _, text := range []relay.Receipt{"x", "17", "-/1", "1-/1", "1-2/3", "inode:5/7"} {
		if _, err := parseReceipt(text); err == nil {
			t.Errorf("%q was taken for a receipt", text)
		}
	}
	r := receipt{"1-0", 5, "x"}
	if got, want := r.next("2-0", "", 3), (receipt{"2-0", 8, ""}); got != want {
		t.Errorf("uncounted: got %v, want %v", got, want)
	}
	if got, want := r.next("2-0", "90", 3), (receipt{"2-0", 90, ""}); got != want {
		t.Errorf("counted: got %v, want %v", got, want)
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add([]byte(`{"id":"1795211093522-3","n":17,"history":"5-0"}`))
	f.Add([]byte(`{"id":"0-0","n":-1}`))
	f.Add([]byte(`{"id":"18446744073709551615-18446744073709551615","n":9223372036854775807}`))
	f.Add([]byte(`{"id":5}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCursor(data)
		if err != nil {
			if c != (cursor{}) {
				t.Errorf("an error and the cursor %v", c)
			}
			return
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseCursor(again)
		if err != nil || back != c {
			t.Errorf("got %v, %v after %s, want %v", back, err, again, c)
		}
	})
}

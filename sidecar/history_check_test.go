//go:build unix

package sidecar_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// record is what happened to the bots of a cluster. All that is in it was seen from
// outside of the sidecars; check compares it with the promises.
type record struct {
	Bots       []string
	Messages   map[relay.MessageID]*sentMessage
	Deliveries []delivered // in the order in which the bots received them

	// Killed are the lives of each bot's sidecar that ended with SIGKILL, and
	// Resumes the bots whose sidecar knows what they received last: they read
	// the stream with Last-Event-ID.
	Killed  map[string][]int
	Resumes map[string]bool

	Transcripts []transcriptFolder
	Torn        int // lines that another fault than a kill may have torn in a folder
}

// sentMessage is a message that a bot gave to its sidecar.
type sentMessage struct {
	conversation
	Sum              uint64 // of the content
	Person           bool   // heard from a person: it is in the transcripts only
	Called, Accepted int64  // moments of the first call and of the 202; Accepted is 0 without one
	// Stopped are the bots that must not receive it, with the stop reason.
	Stopped map[string]relay.Reason
}

type conversation struct{ Sender, Chat string }

// delivered is a message that a bot received and answered.
type delivered struct {
	Bot string
	ID  relay.MessageID
	conversation
	Sum  uint64
	Life int   // of the bot's sidecar: 1 is the first
	At   int64 // moment
}

type transcriptFolder struct {
	Path      string
	Entries   []transcriptEntry
	Fragments int // lines that are not entries
}

type transcriptEntry struct {
	ID relay.MessageID
	conversation
	Sum uint64
}

// fault names a promise that was not kept.
type fault string

const (
	faultLost       fault = "lost"       // an accepted message did not come, or is missing in a transcript
	faultOrder      fault = "order"      // messages came in another order than they were sent, or before
	faultRepeat     fault = "repeat"     // a message came again although no process died
	faultInvented   fault = "invented"   // nobody sent it, or not to this bot
	faultAltered    fault = "altered"    // sender, chat or content is another one
	faultDoubleLine fault = "doubleLine" // a message is in a transcript more than once
)

type violation struct {
	fault fault
	text  string
}

func (v violation) String() string { return fmt.Sprintf("%s: %s", v.fault, v.text) }

type violations []violation

func (v *violations) add(f fault, format string, args ...any) {
	*v = append(*v, violation{f, fmt.Sprintf(format, args...)})
}

// check compares the record with the promises:
//
//   - every accepted message reaches every other bot, unless a stop reason says why not;
//   - the messages of a sender in a chat reach a bot in the order of the sends;
//   - a message comes again only where the sidecar was killed between the delivery
//     and its note: from the next life, one message of a chat, and never to a bot
//     whose sidecar knows what it received last;
//   - every accepted message is in each transcript once, in its chat and unchanged;
//   - nothing comes that was not sent.
func (r *record) check() violations {
	return slices.Concat(r.lost(), r.checkDeliveries(), r.checkRepeats(), r.checkOrder(), r.checkTranscripts())
}

// receivers are the bots that must receive a message.
func (r *record) receivers(id relay.MessageID) []string {
	m := r.Messages[id]
	return slices.DeleteFunc(slices.Clone(r.Bots), func(bot string) bool {
		return bot == m.Sender || m.Stopped[bot] != "" || m.Person
	})
}

// kills is how many lives of all sidecars ended with SIGKILL.
func (r *record) kills() (n int) {
	for _, lives := range r.Killed {
		n += len(lives)
	}
	return n
}

// given is a message as a bot received it.
type given struct {
	bot string
	id  relay.MessageID
}

// lives are the lives of the sidecar that delivered each message, in their order.
func (r *record) lives() map[given][]int {
	out := map[given][]int{}
	for _, d := range r.Deliveries {
		out[given{d.Bot, d.ID}] = append(out[given{d.Bot, d.ID}], d.Life)
	}
	for _, lives := range out {
		slices.Sort(lives)
	}
	return out
}

// repeats is how many deliveries to each bot were not the first of their message.
func (r *record) repeats() map[string]int {
	out := map[string]int{}
	for g, lives := range r.lives() {
		out[g.bot] += len(lives) - 1
	}
	return out
}

// lost finds the accepted messages that a bot did not receive.
func (r *record) lost() (found violations) {
	lives := r.lives()
	for _, id := range slices.Sorted(maps.Keys(r.Messages)) {
		for _, bot := range r.receivers(id) {
			if r.Messages[id].Accepted > 0 && len(lives[given{bot, id}]) == 0 {
				found.add(faultLost, "%s did not receive %s", bot, id)
			}
		}
	}
	return found
}

// checkDeliveries compares each delivery with what was sent.
func (r *record) checkDeliveries() (found violations) {
	for _, d := range r.Deliveries {
		switch m := r.Messages[d.ID]; {
		case m == nil || m.Person:
			found.add(faultInvented, "%s received %s, which no bot sent", d.Bot, d.ID)
		case m.Sender == d.Bot:
			found.add(faultInvented, "%s received its own %s", d.Bot, d.ID)
		case m.Stopped[d.Bot] != "":
			found.add(faultInvented, "%s received %s, which had to stop: %s", d.Bot, d.ID, m.Stopped[d.Bot])
		case m.conversation != d.conversation || m.Sum != d.Sum:
			found.add(faultAltered, "%s received %s of %+v as of %+v, same content: %t",
				d.Bot, d.ID, m.conversation, d.conversation, m.Sum == d.Sum)
		}
	}
	return found
}

// checkRepeats finds the deliveries of a message after its first one that no kill explains.
func (r *record) checkRepeats() (found violations) {
	type ended struct {
		bot  string
		life int
		chat string
	}
	unnoted := map[ended]relay.MessageID{} // the message that a life delivered and did not note
	for g, lives := range r.lives() {
		for i, life := range lives[:len(lives)-1] {
			text := fmt.Sprintf("%s received %s from life %d of its sidecar and again from life %d",
				g.bot, g.id, life, lives[i+1])
			if lives[i+1] == life || !slices.Contains(r.Killed[g.bot], life) {
				found.add(faultRepeat, "%s, and it was not killed between", text)
			}
			if r.Resumes[g.bot] {
				found.add(faultRepeat, "%s, which knew that the bot had it", text)
			}
			if m := r.Messages[g.id]; m != nil {
				at := ended{g.bot, life, m.Chat}
				if other, ok := unnoted[at]; ok {
					found.add(faultRepeat, "%s, as it did %s of the same chat", text, other)
				}
				unnoted[at] = g.id
			}
		}
	}
	return found
}

// checkTranscripts compares the transcripts with what was sent.
func (r *record) checkTranscripts() (found violations) {
	for _, folder := range r.Transcripts {
		times := map[relay.MessageID]int{}
		for _, e := range folder.Entries {
			times[e.ID]++
			switch m := r.Messages[e.ID]; {
			case m == nil:
				found.add(faultInvented, "%s has %s, which nobody sent", folder.Path, e.ID)
			case m.conversation != e.conversation || m.Sum != e.Sum:
				found.add(faultAltered, "%s has %s of %+v as of %+v, same content: %t",
					folder.Path, e.ID, m.conversation, e.conversation, m.Sum == e.Sum)
			case times[e.ID] == 2:
				found.add(faultDoubleLine, "%s has %s more than once", folder.Path, e.ID)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(r.Messages)) {
			if r.Messages[id].Accepted > 0 && times[id] == 0 {
				found.add(faultLost, "%s is not in %s", id, folder.Path)
			}
		}
		if n := r.kills() + r.Torn; folder.Fragments > n {
			found.add(faultAltered, "%s has %d fragments, at most %d are explained", folder.Path, folder.Fragments, n)
		}
	}
	return found
}

// checkOrder finds the deliveries that no order of the sends explains. A send takes effect somewhere between its first
// call and its 202, also when several callers send at once or a killed sidecar was called again, and a delivery comes
// behind that. As each message is unique, the deliveries to a bot say in which order the sends of a conversation took
// effect: each as early as it can.
func (r *record) checkOrder() (found violations) {
	type queue struct {
		receiver string
		conversation
	}
	effective, seen := map[queue]int64{}, map[given]bool{}
	for _, d := range r.Deliveries {
		m := r.Messages[d.ID]
		if m == nil || seen[given{d.Bot, d.ID}] {
			continue
		}
		seen[given{d.Bot, d.ID}] = true
		q := queue{d.Bot, m.conversation}
		effective[q] = max(effective[q], m.Called)
		if effective[q] > min(d.At, cmp.Or(m.Accepted, math.MaxInt64)) {
			found.add(faultOrder, "%s received %s of %+v in another order than it was sent", d.Bot, d.ID, m.conversation)
		}
	}
	return found
}

// readTranscripts adds the transcripts of folders to the record.
func (r *record) readTranscripts(t *testing.T, folders ...string) {
	t.Helper()
	r.Transcripts = nil
	for _, folder := range folders {
		read := transcriptFolder{Path: folder}
		files, err := filepath.Glob(filepath.Join(folder, "*.jsonl*"))
		must(t, err)
		for _, file := range files {
			name := strings.TrimPrefix(filepath.Base(file), "feishu_")
			chat, _, _ := strings.Cut(name, ".jsonl")
			for line := range linesOf(t, file) {
				var e transcript.Entry
				if json.Unmarshal(line, &e) != nil {
					read.Fragments++
					continue
				}
				read.Entries = append(read.Entries, transcriptEntry{ID: relay.MessageID(e.MessageID),
					conversation: conversation{e.Sender, chat}, Sum: sumOf(e.Content)})
			}
		}
		r.Transcripts = append(r.Transcripts, read)
	}
}

// plantedFault alters a record so that it breaks one promise.
type plantedFault struct {
	name  string
	fault fault
	plant func(p planting) bool // false: it cannot alter the record there
}

// planting is a record that is to be altered, at elements that were chosen at random.
type planting struct {
	*record
	lives  map[given][]int // before
	d      *delivered
	folder *transcriptFolder
	entry  int
}

// again adds a delivery with another life and moment.
func (r *record) again(d delivered, life int) bool {
	d.Life, d.At = life, r.Deliveries[len(r.Deliveries)-1].At+1
	r.Deliveries = append(r.Deliveries, d)
	return true
}

// other finds another delivery to the same bot in the same chat, or nil.
func (p planting) other(suits func(*delivered) bool) *delivered {
	for i := range p.Deliveries {
		if o := &p.Deliveries[i]; o.Bot == p.d.Bot && o.ID != p.d.ID && o.Chat == p.d.Chat && suits(o) {
			return o
		}
	}
	return nil
}

// once reports whether a bot was given a message no more than once.
func (p planting) once(d *delivered) bool { return len(p.lives[given{d.Bot, d.ID}]) == 1 }

var plantedFaults = []plantedFault{
	{"a message that a bot did not receive", faultLost, func(p planting) bool {
		lost := *p.d
		p.Deliveries = slices.DeleteFunc(p.Deliveries, func(d delivered) bool { return d.Bot == lost.Bot && d.ID == lost.ID })
		return true
	}},
	{"a message that is missing in a transcript", faultLost, func(p planting) bool {
		p.folder.Entries = slices.Delete(p.folder.Entries, p.entry, p.entry+1)
		return true
	}},
	{"a swapped pair", faultOrder, func(p planting) bool {
		next := p.other(func(next *delivered) bool { // it was sent when d had been accepted
			return next.conversation == p.d.conversation && p.once(next) &&
				p.Messages[next.ID].Called > p.Messages[p.d.ID].Accepted
		})
		if next == nil || !p.once(p.d) {
			return false
		}
		p.d.ID, p.d.Sum, next.ID, next.Sum = next.ID, next.Sum, p.d.ID, p.d.Sum
		return true
	}},
	{"a delivery before the send", faultOrder, func(p planting) bool {
		if !p.once(p.d) {
			return false
		}
		p.d.At = p.Messages[p.d.ID].Called - 1
		return true
	}},
	{"a doubled transcript line", faultDoubleLine, func(p planting) bool {
		p.folder.Entries = append(p.folder.Entries, p.folder.Entries[p.entry])
		return true
	}},
	{"a delivery of a message that nobody sent", faultInvented, func(p planting) bool {
		invented := *p.d
		invented.ID = "om_invented"
		return p.again(invented, p.d.Life)
	}},
	{"a line of a message that nobody sent", faultInvented, func(p planting) bool {
		p.folder.Entries[p.entry].ID = "om_invented"
		return true
	}},
	{"a delivery to the sender", faultInvented, func(p planting) bool {
		own := *p.d
		own.Bot = p.d.Sender
		return p.again(own, p.d.Life)
	}},
	{"a delivery that a stop reason forbids", faultInvented, func(p planting) bool {
		p.Messages[p.d.ID].Stopped = map[string]relay.Reason{p.d.Bot: relay.MaxDepth}
		return true
	}},
	{"another content", faultAltered, func(p planting) bool {
		p.d.Sum++
		return true
	}},
	{"another chat in a transcript", faultAltered, func(p planting) bool {
		p.folder.Entries[p.entry].Chat += "x"
		return true
	}},
	{"a repeat of the same life", faultRepeat, func(p planting) bool { return p.again(*p.d, p.d.Life) }},
	{"a repeat after an orderly end", faultRepeat, func(p planting) bool {
		return !slices.Contains(p.Killed[p.d.Bot], p.d.Life) && p.again(*p.d, p.d.Life+1)
	}},
	{"two repeats of one chat after one kill", faultRepeat, func(p planting) bool {
		other := p.other(func(o *delivered) bool { return o.Life == p.d.Life && p.once(o) })
		if other == nil || p.Resumes[p.d.Bot] || !slices.Contains(p.Killed[p.d.Bot], p.d.Life) || !p.once(p.d) {
			return false
		}
		second := *other
		return p.again(*p.d, p.d.Life+1) && p.again(second, p.d.Life+1)
	}},
	{"a repeat to a bot that resumes its stream", faultRepeat, func(p planting) bool {
		return p.Resumes[p.d.Bot] && slices.Contains(p.Killed[p.d.Bot], p.d.Life) && p.again(*p.d, p.d.Life+1)
	}},
}

// plant proves that the checker finds faults in copies of r, in which it found none.
// It returns the faults for which r has no place.
func (r *record) plant(t *testing.T) (left []string) {
	t.Helper()
	lives := r.lives()
	for _, p := range plantedFaults {
		altered, planted := r.copied(t), false
		for _, i := range rand.Perm(len(altered.Deliveries)) {
			folder := &altered.Transcripts[rand.IntN(len(altered.Transcripts))]
			at := planting{altered, lives, &altered.Deliveries[i], folder, rand.IntN(len(folder.Entries))}
			if planted = p.plant(at); planted {
				break
			}
		}
		if !planted {
			left = append(left, p.name)
			continue
		}
		found := altered.check()
		if !slices.ContainsFunc(found, func(v violation) bool { return v.fault == p.fault }) {
			t.Errorf("the checker does not find %s: it found %v", p.name, found)
		}
	}
	return left
}

// copied is a copy of r that may be altered.
func (r *record) copied(t *testing.T) *record {
	t.Helper()
	data, err := json.Marshal(r)
	must(t, err)
	out := new(record)
	must(t, json.Unmarshal(data, out))
	return out
}

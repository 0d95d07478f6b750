package link

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
)

// maxSlow is how many calls of the tap may take longer than feishu.AckHold. With as many, events are not asked about.
const maxSlow = 8

// Events is the one path of Feishu's events, by whatever connection they come: the tap commits an event and decides,
// then the bot gets it, then Feishu its acknowledgement. Logger and Counter are required.
type Events struct {
	// Tap sees the events before the bot; nil: they pass.
	Tap feishu.EventTap
	// Passed is called with an event that goes to the bot without Tap's decision. If Tap stores it later, it must not
	// deliver it to the bot. nil: nothing.
	Passed func(event []byte)
	// Undecided is the verdict where Tap panics or takes longer than [feishu.AckHold]; nil: the event passes.
	Undecided feishu.EventTap
	// Answered are the events that the bot has answered, which do not go to it again; nil: repeats are asked about. Each
	// has one key: a message's is its id, since Feishu may repeat it in another event.
	Answered *dedup.Window
	// Own reports whether an app is the sidecar's own. Tap does not see the events of others, and nothing is injected
	// among them. Own does not call the connection. nil: all are.
	Own func(appID string) bool
	// Logger logs what happens to a connection, never contents.
	Logger *slog.Logger
	// Counter counts for metrics; each package lists its values.
	Counter func(feishu.Counted)

	slow atomic.Int32 // calls of Tap that take longer than feishu.AckHold
}

// Taken is an event of which it is decided what happens to it.
type Taken struct {
	Verdict feishu.Verdict
	Instead []byte // what the bot gets instead of an event that passes; nil: the event

	events    *Events
	key       string // claimed in Answered until Settle; "": it is not
	once      sync.Once
	undecided []byte // the event, if Tap has not decided
}

// Take decides on an event, after [feishu.AckHold] at the latest. A repeat is kept if the bot has answered the event,
// and refused while it works on it. The caller calls [Taken.Settle], and [Taken.Got] where the bot gets the event.
func (e *Events) Take(event []byte) *Taken {
	t := &Taken{events: e}
	key, app := identify(event)
	if e.Answered != nil && key != "" {
		switch e.Answered.Claim(key) {
		case dedup.Done:
			e.Counter("repeated")
			t.Verdict = feishu.Keep
			return t
		case dedup.Pending:
			e.Counter("in_progress")
			t.Verdict = feishu.Refuse
			return t
		}
		t.key = key
	}
	if e.Tap != nil && e.owns(app) && !e.ask(t, event) {
		t.undecided = event
		if e.Undecided != nil {
			t.Verdict = e.caught(e.Undecided, event).verdict
		}
		return t
	}
	e.Counter(verdicts[t.Verdict])
	return t
}

// verdicts are those of the tap as they are counted.
var verdicts = map[feishu.Verdict]feishu.Counted{feishu.Pass: "passed", feishu.Keep: "kept", feishu.Refuse: "refused"}

func (e *Events) owns(app string) bool { return e.Own == nil || e.Own(app) }

// ask asks the tap, and reports whether it decided in time.
func (e *Events) ask(t *Taken, event []byte) bool {
	if e.slow.Load() >= maxSlow {
		e.Counter("untapped")
		return false
	}
	decided := make(chan decision, 1)
	go func() { decided <- e.caught(e.Tap, event) }()
	late := time.NewTimer(feishu.AckHold)
	defer late.Stop()
	select {
	case d := <-decided:
		t.Verdict, t.Instead = d.verdict, d.instead
		return d.made
	case <-late.C:
	}
	e.slow.Add(1)
	go func() { <-decided; e.slow.Add(-1) }()
	e.Counter("tap_slow")
	e.Logger.Warn("no decision on an event in time", "limit", feishu.AckHold)
	return false
}

type decision struct {
	verdict feishu.Verdict
	instead []byte
	made    bool // else it panicked
}

func (e *Events) caught(tap feishu.EventTap, event []byte) (d decision) {
	defer func() {
		if p := recover(); p != nil {
			e.Counter("panic")
			e.Logger.Error("a panic was caught; events continue", "kind", fmt.Sprintf("%T", p)) // shows no text
		}
	}()
	v, instead := tap(event)
	return decision{v, instead, true}
}

// Got reports that the bot has got the event.
func (t *Taken) Got() {
	if t.undecided != nil && t.events.Passed != nil {
		t.events.Passed(t.undecided)
	}
	t.undecided = nil
}

// Settle records whether the bot has answered the event with 200, or it is kept from it: on disk when it returns. Only
// the first call counts; with false a repeat goes to the bot.
func (t *Taken) Settle(handled bool) {
	t.once.Do(func() {
		if t.key == "" {
			return
		}
		if err := t.events.Answered.Settle(t.key, handled); err != nil {
			t.events.Logger.Warn("an answered event may be delivered to the bot again after a restart", "err", err)
		}
	})
}

// identify returns the key of an event in Answered, "" for one without an id, such as the callback of an old card, and
// its app.
func identify(event []byte) (key, app string) {
	var e struct {
		UUID   string `json:"uuid"` // of the 1.0 schema
		Header struct {
			ID   string `json:"event_id"`
			Type string `json:"event_type"`
			App  string `json:"app_id"`
		} `json:"header"`
		Event struct {
			App     string `json:"app_id"` // of the 1.0 schema
			Message struct {
				ID string `json:"message_id"`
			} `json:"message"`
		} `json:"event"`
	}
	_ = json.Unmarshal(event, &e) // what does not fit has no id
	app = cmp.Or(e.Header.App, e.Event.App)
	id := cmp.Or(e.Header.ID, e.UUID)
	if e.Header.Type == feishu.MessageReceived {
		id = cmp.Or(e.Event.Message.ID, id)
	}
	if id == "" {
		return "", app
	}
	return Key(app, id), app
}

// Key is the key in Answered of a message, or of another event.
func Key[T ~string](app string, id T) string {
	sum := sha256.Sum256([]byte(app + "\n" + string(id)))
	return hex.EncodeToString(sum[:16])
}

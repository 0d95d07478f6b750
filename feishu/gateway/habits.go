package gateway

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
)

// habitWindow is how soon after a send an edit shows that the bot streams by
// editing.
const habitWindow = 10 * time.Second

const habitsFile = "habits.json"

// habits are what was learned about how this bot writes, kept across restarts: the
// first answer that is streamed by edits cannot be told from a finished one.
type habits struct {
	root *os.Root
	log  *slog.Logger

	disk  sync.Mutex // held while writing, and locked before mu
	mu    sync.Mutex
	known struct {
		Texts bool `json:"edits_texts"`
		Cards bool `json:"edits_cards"`
	}
}

func loadHabits(root *os.Root, log *slog.Logger) *habits {
	h := &habits{root: root, log: log}
	if root == nil {
		return h
	}
	data, err := safefile.ReadFile(root, habitsFile)
	if err == nil {
		err = json.Unmarshal(data, &h.known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("what was learned about the bot cannot be read; it is learned again", "file", habitsFile, "err", err)
	}
	return h
}

func (h *habits) current() (texts, cards bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known.Texts, h.known.Cards
}

// edits notes an edit at now of a message that was sent at sent.
func (h *habits) edits(card bool, sent, now time.Time) {
	if now.Sub(sent) > habitWindow {
		return
	}
	if !h.learn(card) {
		return
	}
	h.disk.Lock()
	defer h.disk.Unlock()
	h.log.Info("this bot streams by editing; its messages wait until they are final", "cards", card)
	if h.root == nil {
		return
	}
	h.mu.Lock()
	data, err := json.Marshal(h.known)
	h.mu.Unlock()
	if err == nil {
		err = safefile.ReplaceFast(h.root, habitsFile, data)
	}
	if err != nil {
		h.log.Warn("what was learned about the bot cannot be stored", "file", habitsFile, "err", err)
	}
}

// learn notes that the bot edits its texts or cards, and reports whether that is new.
func (h *habits) learn(card bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := &h.known.Texts
	if card {
		known = &h.known.Cards
	}
	anew := !*known
	*known = true
	return anew
}

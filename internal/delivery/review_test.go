package delivery_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/delivery"
	"feishu-relay/relay"
)

// without withdraws a message, whether it was written or not.
func without(id relay.MessageID, unless bool) delivery.Review {
	return func(m *delivery.Message, given bool) string {
		if m.ID == id && !(given && unless) {
			return "recalled"
		}
		return ""
	}
}

// onDiskIs reports whether a file of the folder has a text.
func onDiskIs(t *testing.T, root *os.Root, text string) (is bool) {
	t.Helper()
	err := fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root.FS(), path)
		is = is || strings.Contains(string(data), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// A message that was written and not answered ends with the bot's answer while the bot is
// present, and is not written again where it is not. Its text goes from the disk; a restart
// knows of it.
func TestWithdrawnAfterItWasWritten(t *testing.T) {
	for name, c := range map[string]struct {
		restart bool
		then    func(*room, *bot)
		want    delivery.State
	}{
		"answered":   {false, func(r *room, b *bot) { b.answer("om_1", nil) }, delivery.Delivered},
		"away":       {false, func(r *room, b *bot) { b.set(false) }, delivery.Withdrawn},
		"failed":     {false, func(r *room, b *bot) { b.answer("om_1", delivery.ErrEnded) }, delivery.Withdrawn},
		"restarted":  {true, func(r *room, b *bot) {}, delivery.Withdrawn},
		"only stops": {false, func(r *room, b *bot) { b.answer("om_2", nil); b.answer("om_1", nil) }, delivery.Delivered},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, root *os.Root) {
				b := newBot("gateway", true, false)
				r := open(t, root, b)
				r.deliver("om_1", "oc_x")
				time.Sleep(2 * time.Second)
				if !onDiskIs(t, root, "text of om_1") {
					t.Error("it is not on disk")
				}
				r.Review("feishu", "oc_x", without("om_1", name == "only stops"))
				time.Sleep(time.Second)
				if got := onDiskIs(t, root, "text of om_1"); got != (name == "only stops") {
					t.Errorf("its text is on disk: %v", got)
				}
				if c.restart {
					r.stop()
					r = open(t, root, b)
				}
				c.then(r, b)
				time.Sleep(time.Minute)
				r.want("om_1", c.want)
				wrote(t, b, "om_1")
				if onDiskIs(t, root, "om_1") {
					t.Error("its file stays")
				}
			})
		})
	}
}

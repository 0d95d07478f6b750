package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// printer writes entries: for people with one or more lines each, for programs
// one line of JSON each. Everything that came from a message is neutralised.
type printer struct {
	w     io.Writer
	paint *paint
	json  bool
	led   bool   // each line begins with its chat
	day   string // of the entry printed last
}

func isNotice(e httpapi.ShownEntry) bool { return e.Role == transcript.RoleNotice }

// print writes e with one Write, so that nobody reads a half of it.
func (p *printer) print(c httpapi.Transcript, shown httpapi.ShownEntry) error {
	if p.json {
		line := struct {
			Channel string `json:"channel,omitempty"`
			ChatID  string `json:"chat_id,omitempty"`
			httpapi.ShownEntry
		}{ShownEntry: shown}
		if p.led {
			line.Channel, line.ChatID = c.Channel, c.ChatID
		}
		return writeLine(p.w, line)
	}
	e := shown.Entry
	if e.EditOf != "" || e.Edited {
		e.Content = "(edited) " + e.Content
	}
	var b strings.Builder
	at := "--:--:--"
	if e.TS != 0 {
		t := time.UnixMilli(e.TS)
		at = t.Format("15:04:05")
		if day := t.Format("Mon 2006-01-02"); day != p.day {
			p.day = day
			fmt.Fprintln(&b, p.paint.text(dim, "── "+day+" ──"))
		}
	}
	lead := ""
	if p.led {
		lead = p.paint.text(dim, chatID(c.Channel, relay.ChatID(c.ChatID))) + "  "
	}
	for i, line := range contentLines(e) {
		b.WriteString(lead)
		if i == 0 {
			fmt.Fprintf(&b, "%s  %s  %s", p.paint.text(dim, at), p.who(e), p.thread(e))
		} else {
			b.WriteString("          ") // under the name: no line of a text can pass for a message
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

// who names the sender: a person by a name alone, a bot always with something
// in parentheses, since colours may be missing.
func (p *printer) who(e transcript.Entry) string {
	sender, name := neutral(e.Sender), neutral(e.SenderName)
	if e.Role == transcript.RoleNotice {
		if e.Mark != nil && e.Kind == "command" {
			return p.paint.text(bold, cmp.Or(neutral(e.By), "?")+" (command)")
		}
		return p.paint.text(dim, "notice")
	}
	if e.Role == relay.RoleUser {
		return p.paint.text(bold, cmp.Or(name, cmp.Or(sender, "?")))
	}
	if name == "" || name == sender {
		name = cmp.Or(sender, "?") + " (bot)"
	} else {
		name += " (" + cmp.Or(sender, "bot") + ")"
	}
	return p.paint.text(p.paint.bot(e.Sender), name)
}

// thread marks a message of a topic with the end of the topic's id, by which
// topics that go on side by side are told apart.
func (p *printer) thread(e transcript.Entry) string {
	if e.ThreadID == "" || e.ThreadID == "*" { // or it is for all topics
		return ""
	}
	id := []rune(neutral(e.ThreadID))
	return p.paint.text(dim, "↳"+string(id[max(0, len(id)-6):])) + " "
}

// contentLines is the text of e, at least one line.
func contentLines(e transcript.Entry) []string {
	text := strings.TrimRight(strings.ReplaceAll(e.Content, "\r\n", "\n"), "\n")
	if e.Recalled {
		return []string{"[recalled]"}
	}
	if text == "" && e.Mark != nil {
		return []string{"[" + strings.TrimSpace(neutral(e.Act)+" "+settingsOf(e.Set)) + "]"}
	}
	if text == "" {
		return []string{"[" + cmp.Or(neutral(e.MsgType), "no text") + "]"}
	}
	lines := strings.Split(strings.ReplaceAll(text, "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = neutral(line)
	}
	return lines
}

// settingsOf are the values of settings; null takes one back.
func settingsOf(set json.RawMessage) string {
	var values map[string]any
	_ = json.Unmarshal(set, &values) // none as well
	words := map[string]string{"true": "on", "false": "off", "<nil>": "unset", "map[until:<nil>]": "on"}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		said := fmt.Sprint(values[key])
		if until, is := values[key].(map[string]any); is && until["until"] != nil {
			at, _ := until["until"].(float64)
			said = "until " + time.UnixMilli(int64(at)).Format(time.DateTime)
		}
		list = append(list, strings.Replace(key, ":", " ", 1)+": "+cmp.Or(words[said], said))
	}
	return neutral(strings.Join(list, ", "))
}

// writeLine writes v as one line of JSON, with one Write.
func writeLine(w io.Writer, v any) error {
	line, err := relay.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(neutralJSON(line), '\n'))
	return err
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// patience is how long a terminal's reader waits before being told for what.
const patience = 300 * time.Millisecond

// findings are told as they come: to people under headings, or all at once as
// JSON.
type findings struct {
	words
	w      io.Writer
	paint  *paint
	asJSON bool
	quiet  bool   // only what is not fine
	group  string // the last heading
	all    []shownFinding
}

// shownFinding is a finding in one language.
type shownFinding struct {
	Name   string `json:"name"`
	Status status `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend"`
}

func newFindings(w io.Writer, asJSON, chinese bool) *findings {
	return &findings{words: words{chinese}, w: w, paint: newPaint(w), asJSON: asJSON, all: []shownFinding{}}
}

// headings are those of the areas.
var headings = map[string]string{"Configuration": "配置", "Files": "文件", "Relay": "中继", "Mailbox": "邮箱", "Feishu": "飞书",
	"Bot": "机器人", "Judge": "裁判", "Sidecar": "边车"}

// await waits for what a check finds, and says so on a terminal.
func (f *findings) await(name string, result <-chan []finding) []finding {
	if f.asJSON || f.quiet || !f.paint.on {
		return <-result
	}
	slow := time.NewTimer(patience)
	defer slow.Stop()
	select {
	case found := <-result:
		return found
	case <-slow.C:
	}
	fmt.Fprint(f.w, f.paint.text(dim, "… "+name))
	defer fmt.Fprint(f.w, "\r\x1b[K") // the line is taken back
	return <-result
}

func (f *findings) add(group string, found ...finding) {
	for _, one := range found {
		if f.quiet && one.Status == statusOK {
			continue
		}
		if f.asJSON {
			f.keep(one)
			continue
		}
		if group != f.group {
			if f.group != "" {
				fmt.Fprintln(f.w)
			}
			fmt.Fprintln(f.w, f.paint.text(bold, f.say(group, headings[group])))
			f.group = group
		}
		f.show(one)
	}
}

// keep remembers what was found, in one language.
func (f *findings) keep(one finding) shownFinding {
	shown := shownFinding{one.Name, one.Status, one.Detail.in(f.chinese), one.Mend.in(f.chinese)}
	f.all = append(f.all, shown)
	return shown
}

func (f *findings) show(found finding) {
	one := f.keep(found)
	mark := map[status]string{statusOK: f.paint.text(green, "✓"), statusWarn: f.paint.text(yellow, "!"),
		statusFail: f.paint.text(red, "✗"), statusUnknown: f.paint.text(dim, "?")}[one.Status]
	fmt.Fprintf(f.w, "%s %s: %s\n", mark, neutral(one.Name), neutral(one.Detail))
	if one.Mend != "" {
		fmt.Fprintf(f.w, "    %s\n", neutral(one.Mend))
	}
}

// end ends what was shown, and decides the exit status.
func (f *findings) end() error {
	fails, warns, unseen := f.count(statusFail), f.count(statusWarn), ""
	if n := f.count(statusUnknown); n > 0 {
		unseen = f.say(", %d not seen: %s", "，%d 项看不到：%s", n, neutral(strings.Join(f.unknown(), ", ")))
	}
	switch {
	case f.asJSON:
		data, err := json.MarshalIndent(f.all, "", "  ")
		if err != nil {
			return err
		}
		if _, err := f.w.Write(append(neutralJSON(data), '\n')); err != nil {
			return err
		}
	case fails > 0:
		fmt.Fprintln(f.w, f.say("\n%d to fix, %d to know of%s", "\n要解决 %d 项，要留意 %d 项%s", fails, warns, unseen))
	case f.quiet:
	case warns > 0:
		fmt.Fprintln(f.w, f.say("\nworks; %d to know of%s", "\n可用；要留意 %d 项%s", warns, unseen))
	case unseen != "":
		fmt.Fprintln(f.w, f.say("\nnothing is wrong%s", "\n没有问题%s", unseen))
	default:
		fmt.Fprintln(f.w, f.say("\nno problems found", "\n没有发现问题"))
	}
	if fails > 0 {
		return errFailed
	}
	return nil
}

func (f *findings) count(s status) int {
	n := 0
	for _, one := range f.all {
		if one.Status == s {
			n++
		}
	}
	return n
}

// some names at most maxNamed of a list of strings or texts.
func some[T any](names []T) (list text) {
	for i, name := range names[:min(len(names), maxNamed)] {
		list = say(map[bool]string{true: "%s%s", false: "%s, %s"}[i == 0], "", list, name)
	}
	if more := len(names) - maxNamed; more > 0 {
		return say("%s and %d more", "%s 等，另有 %d 个", list, more)
	}
	return list
}

// age is a span of time as people say it.
func age(d time.Duration) text {
	switch d = max(d, 0); {
	case d < time.Minute:
		return amount(int(d/time.Second), "second", "seconds", "秒")
	case d < time.Hour:
		return amount(int(d/time.Minute), "minute", "minutes", "分钟")
	case d < 48*time.Hour:
		return amount(int(d/time.Hour), "hour", "hours", "小时")
	}
	return amount(int(d/(24*time.Hour)), "day", "days", "天")
}

// size is a number of bytes as people say it.
func size(bytes uint64) string {
	const unit = 1024
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for value >= unit && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	if value < 10 && value != float64(int(value)) {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

// unknown returns the names of what was not seen, each once.
func (f *findings) unknown() []string {
	var names []string
	for _, one := range f.all {
		if one.Status == statusUnknown && !slices.Contains(names, one.Name) {
			names = append(names, one.Name)
		}
	}
	return names
}

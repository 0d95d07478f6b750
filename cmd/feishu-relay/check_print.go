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
	w      io.Writer
	paint  *paint
	asJSON bool
	quiet  bool   // only what is not fine
	group  string // the last heading
	all    []finding
}

func newFindings(w io.Writer, asJSON bool) *findings {
	return &findings{w: w, paint: newPaint(w), asJSON: asJSON, all: []finding{}}
}

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
		f.all = append(f.all, one)
		if f.asJSON {
			continue
		}
		if group != f.group {
			if f.group != "" {
				fmt.Fprintln(f.w)
			}
			fmt.Fprintln(f.w, f.paint.text(bold, group))
			f.group = group
		}
		f.show(one)
	}
}

func (f *findings) show(one finding) {
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
		unseen = fmt.Sprintf(", %d not seen: %s", n, neutral(strings.Join(f.unknown(), ", ")))
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
		fmt.Fprintf(f.w, "\n%d to fix, %d to know of%s\n", fails, warns, unseen)
	case f.quiet:
	case warns > 0:
		fmt.Fprintf(f.w, "\nworks; %d to know of%s\n", warns, unseen)
	case unseen != "":
		fmt.Fprintf(f.w, "\nnothing is wrong%s\n", unseen)
	default:
		fmt.Fprint(f.w, "\nno problems found\n")
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

// some names at most maxNamed of a list.
func some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// age is a span of time as people say it.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return counted(int(d/time.Second), "second", "seconds")
	case d < time.Hour:
		return counted(int(d/time.Minute), "minute", "minutes")
	case d < 48*time.Hour:
		return counted(int(d/time.Hour), "hour", "hours")
	}
	return counted(int(d/(24*time.Hour)), "day", "days")
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

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// result is what a bar came to.
type result struct {
	ours, bare, ratio float64
	rounds            int // 0: it was not measured
}

// measure takes the median of each side and of the ratios of the rounds.
func measure(b bar, f figures) result {
	ours, bare := f.rounds(b.ours), f.rounds(b.bare)
	if b.bare.fixed != 0 {
		bare = slices.Repeat([]float64{b.bare.fixed}, len(ours))
	}
	n := min(len(ours), len(bare))
	if n == 0 {
		return result{}
	}
	ratios := make([]float64, n)
	for i := range n {
		ratios[i] = ours[i] / bare[i]
	}
	return result{median(ours[:n]), median(bare[:n]), median(ratios), n}
}

// median of one value or more, which stay in their order.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// verdict says whether a ratio reaches the aim.
func (b bar) verdict(ratio float64) string {
	switch {
	case b.aim == 0:
		return "–"
	case b.more && ratio >= b.aim, !b.more && ratio <= b.aim:
		return "ok"
	}
	return "short"
}

func (b bar) aimText() string {
	switch {
	case b.aim == 0:
		return "–"
	case b.more:
		return fmt.Sprintf("≥ %g", b.aim)
	}
	return fmt.Sprintf("≤ %g", b.aim)
}

// printTable writes one table, as the documentation shows it.
func printTable(w io.Writer, bars []bar, f figures, skipped map[string]string) {
	rows := [][]string{{"bar", "what", "ours", "baseline", "ratio", "aim", ""}}
	for _, b := range bars {
		row := []string{b.number, b.what, "–", "–", "–", b.aimText(), ""}
		switch r := measure(b, f); {
		case r.rounds > 0:
			row[2], row[3] = b.ours.text(r.ours), b.ours.text(r.bare)
			row[4], row[6] = fmt.Sprintf("%.2f", r.ratio), b.verdict(r.ratio)
		case skipped[b.ours.pkg] != "":
			row[6] = "skipped: " + skipped[b.ours.pkg]
		default:
			row[6] = "not measured"
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, row := range rows {
		for j, cell := range row {
			fmt.Fprint(w, "| ", cell, strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)), " ")
		}
		fmt.Fprintln(w, "|")
		if i > 0 {
			continue
		}
		for _, width := range widths {
			fmt.Fprint(w, "|", strings.Repeat("-", width+2))
		}
		fmt.Fprintln(w, "|")
	}
}

// text writes a value of fig with its unit, three digits of it or more.
func (fig figure) text(value float64) string {
	unit := fig.unit
	switch {
	case fig.rate != 0:
		unit = "/s"
	case unit == "ns/op":
		value, unit = value/1e3, "us"
	default:
		if i := strings.LastIndexByte(unit, '-'); i >= 0 {
			unit = unit[i+1:]
		}
	}
	if unit == "us" && value >= 1000 {
		value, unit = value/1e3, "ms"
	}
	unit = cmp.Or(map[string]string{"msg/s": "/s", "distinct/s": "/s", "us": "µs"}[unit], unit)
	digits := 0
	for v := value; v < 100 && digits < 2; v *= 10 {
		digits++
	}
	return thousands(fmt.Sprintf("%.*f", digits, value)) + " " + unit
}

// thousands puts commas into a number without a sign.
func thousands(number string) string {
	whole, fraction, _ := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		return whole + "." + fraction
	}
	return whole
}

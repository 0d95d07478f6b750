package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
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
func printTable(w io.Writer, bars []bar, f figures) {
	table := tabwriter.NewWriter(w, 0, 0, 0, ' ', 0)
	fmt.Fprintln(table, "| bar \t| what \t| ours \t| baseline \t| ratio \t| aim \t| \t|")
	fmt.Fprintln(table, strings.Repeat("|---\t", 7)+"|")
	for _, b := range bars {
		ours, bare, ratio, verdict := "–", "–", "–", "not measured"
		if r := measure(b, f); r.rounds > 0 {
			ours, bare, ratio, verdict = b.ours.text(r.ours), b.ours.text(r.bare), fmt.Sprintf("%.2f", r.ratio),
				b.verdict(r.ratio)
		}
		fmt.Fprintf(table, "| %s \t| %s \t| %s \t| %s \t| %s \t| %s \t| %s \t|\n", b.number, b.what, ours, bare, ratio,
			b.aimText(), verdict)
	}
	_ = table.Flush()
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

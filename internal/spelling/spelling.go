// Package spelling finds out which word a misspelt one was meant to be.
package spelling

import "unicode/utf8"

// Near reports whether word is meant with at most so many edits: letters to add,
// leave out, replace or swap with their neighbour.
func Near(word, meant string, edits int) bool {
	return len(word) <= utf8.UTFMax*(len(meant)+edits) && Distance(word, meant) <= edits
}

// Distance is the number of edits that make to of from (optimal string alignment).
func Distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for i := range len(a) + 1 {
		before, last, row = last, row, before
		for j := range row {
			if i == 0 || j == 0 {
				row[j] = i + j
				continue
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+1)
			if a[i-1] == b[j-1] {
				row[j] = min(row[j], last[j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

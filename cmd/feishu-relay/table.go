package main

import (
	"fmt"
	"strings"

	"feishu-relay/internal/runes"
)

// writeTable writes rows under a head, "A|B|C". Columns are as wide as their widest
// cell on a terminal. The cells are neutral already.
func writeTable(b *strings.Builder, head string, rows [][]string) {
	rows = append([][]string{strings.Split(head, "|")}, rows...)
	widest := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widest[i] = max(widest[i], runes.Columns(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widest[i]-runes.Columns(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// counted is a number of things, of which there are one or many.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Command scaleplot draws the plots of docs/scaling.md from the figures that `make scale` writes:
//
//	go run . FIGURES.jsonl FOLDER
//
// A line is what one fleet of sidecars measured at rising rates.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: scaleplot FIGURES.jsonl FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "scaleplot:", err)
		os.Exit(1)
	}
}

// fleet is what the figures of one line have in common.
type fleet struct {
	Bots    int
	Groups  int
	Cluster bool
	Users   bool
}

func (f fleet) String() string {
	s := fmt.Sprintf("%d bots, %d groups", f.Bots, f.Groups)
	if f.Cluster {
		s += ", Cluster"
	}
	if !f.Users {
		s += ", bots' messages only"
	}
	return s
}

// figures are the fields of a line of the file that are drawn.
type figures struct {
	fleet
	Sent     float64
	P99      float64 `json:"p99_ms"`
	CPU      float64
	RedisCPU float64 `json:"redis_cpu"`
}

func run(file, folder string) error {
	all, err := read(file)
	if err != nil {
		return err
	}
	for _, p := range []struct {
		name, y string
		of      func(figures) float64
		log     bool
	}{
		{"scaling-latency.svg", "p99 of a hop (ms)", func(f figures) float64 { return f.P99 }, true},
		{"scaling-sidecar.svg", "each sidecar (% of a core)", func(f figures) float64 { return f.CPU }, false},
		{"scaling-redis.svg", "busiest Redis (% of a core)", func(f figures) float64 { return f.RedisCPU }, false},
	} {
		if err := drawTo(filepath.Join(folder, p.name), all, p.y, p.of, p.log); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func read(name string) (all []figures, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for dec := json.NewDecoder(file); ; {
		var f figures
		if err := dec.Decode(&f); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, f)
	}
}

// room is how far the axis reaches above the highest point, for the legend; logRoom on a logarithmic axis.
const (
	room    = 1.8
	logRoom = 100
)

func drawTo(name string, all []figures, y string, of func(figures) float64, log bool) error {
	p := plot.New()
	p.BackgroundColor = color.White
	p.X.Label.Text, p.Y.Label.Text = "messages of bots a second, all groups together", y
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	lines := map[fleet]plotter.XYs{}
	var order []fleet
	most, highest := 0.0, 0.0
	for _, f := range all {
		if lines[f.fleet] == nil {
			order = append(order, f.fleet)
		}
		lines[f.fleet] = append(lines[f.fleet], plotter.XY{X: f.Sent, Y: of(f)})
		most, highest = max(most, f.Sent), max(highest, of(f))
	}
	if log {
		p.Y.Scale, p.Y.Tick.Marker, p.Y.Min = plot.LogScale{}, plot.LogTicks{Prec: -1}, 1
		p.X.Scale, p.X.Tick.Marker, p.X.Min = plot.LogScale{}, plot.LogTicks{Prec: -1}, 1
		limit, err := plotter.NewLine(plotter.XYs{{X: 1, Y: 100}, {X: most, Y: 100}})
		if err != nil {
			return err
		}
		limit.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(limit)
	}
	p.Y.Max = highest * room
	if log {
		p.Y.Max = highest * logRoom
	}
	for i, f := range order {
		line, points, err := plotter.NewLinePoints(lines[f])
		if err != nil {
			return err
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), draw.CircleGlyph{}
		line.Width = vg.Points(1.5)
		if f.Cluster {
			line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
		}
		p.Add(line, points)
		p.Legend.Add(f.String(), line, points)
	}
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, name)
}

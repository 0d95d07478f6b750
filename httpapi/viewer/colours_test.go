package viewer_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// colour is linear red, green and blue, each from 0 to 1.
type colour [3]float64

// sights are what eyes see of a colour: all cones, or one kind of them missing (Machado, Oliveira
// and Fernandes 2009, severity 1).
var sights = map[string][3]colour{
	"normal": {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protan": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deutan": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritan": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

func (c colour) times(d colour) float64 { return c[0]*d[0] + c[1]*d[1] + c[2]*d[2] }

func (c colour) luminance() float64 { return c.times(colour{.2126, .7152, .0722}) }

// contrast is WCAG's ratio of two colours.
func contrast(a, b colour) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + .05) / (min(x, y) + .05)
}

// seen is what is seen of c, as CIE L*a*b*.
func (c colour) seen(sight [3]colour) colour {
	for i, d := range [3]colour(sight) {
		sight[i][0] = min(1, max(0, d.times(c)))
	}
	rgb := colour{sight[0][0], sight[1][0], sight[2][0]}
	f := func(v float64) float64 {
		if v > .008856 {
			return math.Cbrt(v)
		}
		return 7.787*v + 16./116
	}
	x := f(rgb.times(colour{.4124, .3576, .1805}) / .95047)
	y := f(rgb.luminance())
	z := f(rgb.times(colour{.0193, .1192, .9505}) / 1.08883)
	return colour{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// difference is how far apart two colours are for an eye (CIE 1976).
func difference(a, b colour, sight [3]colour) float64 {
	x, y := a.seen(sight), b.seen(sight)
	return math.Hypot(math.Hypot(x[0]-y[0], x[1]-y[1]), x[2]-y[2])
}

// themeOf reads the colours of a theme from base.css: 0 is light, 1 dark. Those of names are
// called hue-0 and so on.
func themeOf(t *testing.T, css string, theme int) map[string]colour {
	found := map[string]colour{}
	variable := regexp.MustCompile(`(?:\.(hue-\d) \{ )?--([a-z-]+): light-dark\(#(\w+), #(\w+)\)`)
	for _, m := range variable.FindAllStringSubmatch(css, -1) {
		name, hex := m[2], m[3+theme]
		if m[1] != "" {
			name = m[1]
		}
		if len(hex) == 3 {
			hex = fmt.Sprintf("%c%[1]c%c%[2]c%c%[3]c", hex[0], hex[1], hex[2])
		}
		var c colour
		for i := range c {
			v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			if c[i] = float64(v) / 255; c[i] <= .04045 {
				c[i] /= 12.92
			} else {
				c[i] = math.Pow((c[i]+.055)/1.055, 2.4)
			}
		}
		found[name] = c
	}
	return found
}

// TestColours: all that is written in a colour can be read; red, amber and green are told apart
// by everybody, no name of a bot looks like one of them, and no two names look alike.
func TestColours(t *testing.T) {
	const (
		readable = 4.5 // WCAG AA
		apart    = 15  // of the states among each other
		away     = 12  // of a name from a state; 2 can just be seen side by side
		first    = 3   // bots of a team, whose names are told apart at a glance
		glance   = 30
		differ   = 20 // of any two names
		unlike   = 9  // the same, for the colour-blind
	)
	css := files(t)["base.css"]
	states := []string{"stop", "wait", "pass"}
	for theme, name := range []string{"light", "dark"} {
		colours := themeOf(t, css, theme)
		hues := slices.DeleteFunc(slices.Sorted(maps.Keys(colours)), func(name string) bool {
			return !strings.HasPrefix(name, "hue-")
		})
		if len(hues) != 8 {
			t.Fatalf("%d colours of names, want the 8 of names.js", len(hues))
		}
		for i, hue := range hues {
			for j, other := range hues[i+1:] {
				for sight, matrix := range sights {
					want := float64(unlike)
					switch {
					case sight == "normal" && i+1+j < first:
						want = glance
					case sight == "normal":
						want = differ
					}
					if got := difference(colours[hue], colours[other], matrix); got < want {
						t.Errorf("%s, %s: %s and %s differ by %.1f, want %.0f", name, sight, hue, other, got, want)
					}
				}
			}
		}
		reads := func(text string, grounds ...string) {
			for _, ground := range grounds {
				if got := contrast(colours[text], colours[ground]); got < readable {
					t.Errorf("%s: %s on %s has the contrast %.2f, want %.1f", name, text, ground, got, readable)
				}
			}
		}
		grounds := []string{"page", "card", "raised", "hover", "accent-soft"}
		for _, text := range slices.Concat(hues, states, []string{"text", "soft", "accent"}) {
			reads(text, grounds...)
		}
		for i, state := range states {
			reads(state, state+"-soft")
			for sight, matrix := range sights {
				for _, other := range states[i+1:] {
					if got := difference(colours[state], colours[other], matrix); got < apart {
						t.Errorf("%s, %s: %s and %s differ by %.0f, want %d", name, sight, state, other, got, apart)
					}
				}
				for _, hue := range hues {
					if got := difference(colours[state], colours[hue], matrix); got < away {
						t.Errorf("%s, %s: %s and %s differ by %.0f, want %d", name, sight, hue, state, got, away)
					}
				}
			}
			for _, hue := range hues {
				reads(hue, state+"-soft")
			}
		}
	}
}

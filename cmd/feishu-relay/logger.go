package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"
)

// logger writes to w as LOG_FORMAT says: for people on a terminal, else as JSON.
func (c *config) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.LogLevel}
	format := c.LogFormat
	if format == "auto" && isTerminal(w) {
		format = "console"
	}
	switch format {
	case "console":
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: c.LogLevel, TimeFormat: time.TimeOnly,
			NoColor: !newPaint(w).on, ReplaceAttr: forPeople}))
	case "text":
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// forPeople sets errors off and rounds spans of time.
func forPeople(_ []string, a slog.Attr) slog.Attr {
	const brightRed = 9
	switch v := a.Value.Any().(type) {
	case error:
		return tint.Attr(brightRed, a)
	case time.Duration:
		return slog.Duration(a.Key, v.Round(time.Millisecond))
	}
	return a
}

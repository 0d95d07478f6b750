package mcptools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxName bounds ids and the like, in bytes; a longer one is refused.
const maxName = 1024

// argumentError says which argument is wrong, and how to mend it.
type argumentError string

func (e argumentError) Error() string { return string(e) }

func badArgument(format string, args ...any) error {
	return argumentError(fmt.Sprintf(format, args...))
}

// taking makes a tool of a function whose arguments are the fields of In.
func taking[In any](t *mcp.Tool, call func(*service, context.Context, In) (answer, error)) tool {
	return tool{t, func(s *service, ctx context.Context, raw []byte) (answer, error) {
		var in In
		if err := readArguments(raw, &in); err != nil {
			return answer{}, err
		}
		return call(s, ctx, in)
	}}
}

// readArguments reads a JSON object into a struct, and refuses what the struct
// has no field for: a model that misspells an argument shall hear of it. An
// argument that is left out, or null, is zero: what is needed the caller checks.
func readArguments(raw []byte, in any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return badArgument("the arguments are no JSON object")
	}
	known := names(in)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			return badArgument("there is no argument %q: %s", cut(name, maxShown), takes(known))
		}
	}
	if err := json.Unmarshal(raw, in); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return badArgument("%s: want %s, got %s", e.Field, jsonType(e.Type), e.Value)
		}
		return badArgument("the arguments cannot be read")
	}
	return nil
}

// maxShown is the most of a wrong argument that an error repeats, in bytes.
const maxShown = 64

func takes(known []string) string {
	if len(known) == 0 {
		return "this tool takes none"
	}
	return "this tool takes " + strings.Join(known, ", ")
}

// names lists the arguments that the struct in points to takes.
func names(in any) []string {
	var list []string
	for field := range reflect.TypeOf(in).Elem().Fields() {
		list = append(list, field.Tag.Get("json"))
	}
	return list
}

func jsonType(t reflect.Type) string {
	if t.Kind() == reflect.String {
		return "a string"
	}
	return "a whole number"
}

// short checks names and values; a text has a bound of its own.
func short(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if len(pair[1]) > maxName {
			return badArgument("%s: has %d bytes, at most %d", pair[0], len(pair[1]), maxName)
		}
	}
	return nil
}

// limited is the number asked for, from 1 to most; 0 is usual.
func limited(limit, usual, most int) (int, error) {
	if limit == 0 {
		return usual, nil
	}
	if limit < 0 || limit > most {
		return 0, badArgument("limit: want a number from 1 to %d, got %d", most, limit)
	}
	return limit, nil
}

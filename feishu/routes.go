package feishu

import (
	"maps"
	"slices"
	"strings"
)

// Routes find what an API call is, by its method and its path below /open-apis/. Make them with [NewRoutes].
type Routes[T any] map[form][]route[T]

// form is the method and the number of segments of a call.
type form struct {
	method   string
	segments int
}

type route[T any] struct {
	what     T
	segments []string
}

// NewRoutes returns the routes of a map whose keys are such as "GET im/v1/messages/{message}": {…} is one segment, an
// id. Of two that fit a call the one that names the segment counts.
func NewRoutes[T any](calls map[string]T) Routes[T] {
	routes := Routes[T]{}
	for _, call := range slices.Sorted(maps.Keys(calls)) { // letters come before the brace
		method, path, _ := strings.Cut(call, " ")
		segments := strings.Split(path, "/")
		f := form{method, len(segments)}
		routes[f] = append(routes[f], route[T]{calls[call], segments})
	}
	return routes
}

// Match returns what a call is, and the ids in its path by their names in the route; false for one without a route.
func (r Routes[T]) Match(method, path string) (what T, ids map[string]string, ok bool) {
	if path, ok = Below(path); ok {
		segments := strings.Split(path, "/")
		for _, one := range r[form{method, len(segments)}] {
			if ids, ok := one.match(segments); ok {
				return one.what, ids, true
			}
		}
	}
	return what, nil, false
}

func (r *route[T]) match(segments []string) (ids map[string]string, ok bool) {
	for i, want := range r.segments {
		if name, isID := strings.CutPrefix(want, "{"); isID {
			if ids == nil {
				ids = map[string]string{}
			}
			ids[strings.TrimSuffix(name, "}")] = segments[i]
		} else if want != segments[i] {
			return nil, false
		}
	}
	return ids, true
}

// Below is the path of a call below /open-apis/; false where it is not below it. Doubled slashes are tolerated, the
// Node SDK makes them (docs/feishu.md 7.1), and so is one at the end: Feishu decides whether it takes the call.
func Below(path string) (below string, ok bool) {
	return strings.CutPrefix(strings.TrimSuffix(SingleSlashes(path), "/"), "/open-apis/")
}

package webapi

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// Place is the place of an item in a list: the newest come first, and of one time in the order of their keys.
type Place struct {
	At  int64 // 0 of all: the order of their keys
	Key string
}

// Paged are the parameters of a list.
type Paged struct {
	Limit  int    `query:"limit" range:"1..1000" default:"500"`
	Before string `query:"before"` // "earlier" of the page before
}

// Page returns the items of a list that are on a page, and with which Before the next one begins, "" behind the last.
func Page[T any](list []T, p Paged, of func(*T) Place) (page []T, earlier string, err error) {
	list = slices.SortedFunc(slices.Values(list), func(x, y T) int { return of(&x).compare(of(&y)) })
	if p.Before != "" {
		at, key, _ := strings.Cut(p.Before, ".")
		from := Place{Key: key}
		if from.At, err = strconv.ParseInt(at, 10, 64); err != nil {
			return nil, "", relay.Errorf(relay.CodeInvalidRequest, `before: want the "earlier" of a page that was read before`)
		}
		list = slices.DeleteFunc(list, func(x T) bool { return of(&x).compare(from) <= 0 })
	}
	if len(list) > p.Limit {
		list, earlier = list[:p.Limit], of(&list[p.Limit-1]).String()
	}
	return web.List(list), earlier, nil
}

// String is the Before of the page behind p.
func (p Place) String() string { return strconv.FormatInt(p.At, 10) + "." + p.Key }

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(o.At, p.At), cmp.Compare(p.Key, o.Key))
}

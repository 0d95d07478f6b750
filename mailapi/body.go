package mailapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"feishu-relay/internal/spelling"
	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

var errNoBody = mailbox.Invalid("", "the body is empty: send a JSON object")

// readMail reads a request's body into v; a value that does not fit is
// INVALID_MESSAGE. If v is a struct, a misspelt field is refused, since its
// value would be lost. Other unknown fields are ignored.
func readMail(r *http.Request, v any) error {
	given, err := readMailOrNone(r, v)
	if err == nil && !given {
		return errNoBody
	}
	return err
}

// readMailOrNone is readMail for an optional body; without one v is unchanged.
func readMailOrNone(r *http.Request, v any) (given bool, err error) {
	data, err := web.ReadBody(r)
	if e, ok := errors.AsType[*relay.Error](err); ok && e.Code == relay.CodeInvalidRequest {
		return false, mailbox.Invalid("", "%s", e.Message)
	}
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return false, err
	}
	var fields map[string]json.RawMessage
	if err = json.Unmarshal(data, &fields); err == nil {
		if err := slip(fields, reflect.TypeOf(v).Elem()); err != nil {
			return true, err
		}
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		field, reason := web.Unfit(err)
		return true, mailbox.Invalid(field, "%s", reason)
	}
	return true, nil
}

// slip returns an error for a field that is a misspelt one of form, if that is a
// struct. It ignores case, like encoding/json.
func slip(fields map[string]json.RawMessage, form reflect.Type) error {
	if form.Kind() != reflect.Struct {
		return nil
	}
	var known []string
	for field := range form.Fields() {
		known = append(known, field.Tag.Get("json"))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			continue
		}
		for _, meant := range known {
			if letters := min(len(meant)/4, 2); spelling.Near(strings.ToLower(name), meant, letters) {
				return mailbox.Invalid(name, "unknown field; did you mean %s?", meant)
			}
		}
	}
	return nil
}

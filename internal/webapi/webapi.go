// Package webapi is routes with typed requests and answers, and the pages of lists.
package webapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// API is what the routes of one package have in common.
type API struct {
	MaxBody int64        // the most bytes of a body; a larger one is refused with 413
	Invalid relay.Code   // of a request that cannot be read
	Other   *relay.Error // the answer to an error whose text is only logged
	Logger  *slog.Logger
}

// None is a request without parameters.
type None struct{}

// JSON is a guarded route that answers with status and what do returns. The request is read into a struct: a field with
// the tag path, query or header is a parameter of that name, a text or a number within its tag range, and the field
// Body is the body; with the tag body it is optional, or strict: it has no field that the struct has not. What has a
// method Check() error is checked, and what has the tag enum is one of its words, which a | separates.
func JSON[In, Out any](a *API, pattern string, status int, do func(context.Context, In) (Out, error)) web.Route {
	return web.Route{Pattern: pattern, In: reflect.TypeFor[In](), Out: reflect.TypeFor[Out](),
		Handle: func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, a.MaxBody)
			var in In
			if err := a.read(r, reflect.ValueOf(&in).Elem()); err != nil {
				web.WriteError(w, err)
				return
			}
			out, err := do(r.Context(), in)
			if err == nil {
				web.WriteJSON(w, status, out)
				return
			}
			e := a.Refusal(r.Context(), pattern, err)
			if e.Code == relay.Code(mailbox.InvalidMessage) && r.PathValue(e.Field) != "" {
				e.Status = http.StatusNotFound // the path is well-formed, and nothing is there
			}
			web.WriteError(w, e)
		}}
}

// read reads a request into a struct as [JSON] describes it.
func (a *API) read(r *http.Request, in reflect.Value) *relay.Error {
	for f, v := range in.Fields() {
		var err *relay.Error
		switch {
		case f.Anonymous:
			err = a.read(r, v)
		case f.Name == "Body":
			if err = a.readBody(r, v.Addr().Interface(), f.Tag.Get("body")); err == nil {
				err = a.check("", "", v)
			}
		default:
			err = a.readParameter(r, f, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *API) readParameter(r *http.Request, f reflect.StructField, v reflect.Value) *relay.Error {
	header := f.Tag.Get("header")
	name := cmp.Or(f.Tag.Get("path"), f.Tag.Get("query"), header)
	text := cmp.Or(r.PathValue(name), r.URL.Query().Get(name), f.Tag.Get("default"))
	if header != "" {
		text = r.Header.Get(header)
	}
	if v.Kind() == reflect.String {
		v.SetString(text)
		if err := relay.CheckID(text); err != nil && header == "" && name != "before" {
			return a.Wrong(name, err.Error())
		}
		return a.check(name, f.Tag, v)
	}
	var least, most int
	_, _ = fmt.Sscanf(f.Tag.Get("range"), "%d..%d", &least, &most) // a constant
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return a.Wrong(name, fmt.Sprintf("want a number from %d to %d", least, most))
	}
	v.SetInt(int64(n))
	return nil
}

// check checks a value of a request that has a field's tags, or the fields of a body.
func (a *API) check(name string, tag reflect.StructTag, v reflect.Value) *relay.Error {
	if words, ok := tag.Lookup("enum"); ok && !slices.Contains(strings.Split(words, "|"), v.String()) {
		return a.Wrong(name, "want one of "+strings.ReplaceAll(strings.TrimPrefix(words, "|"), "|", ", "))
	}
	if c, ok := v.Addr().Interface().(interface{ Check() error }); ok {
		err := c.Check()
		if e, ok := errors.AsType[*mailbox.Error](err); ok {
			return a.Wrong(name, e.Message)
		}
		if e, ok := errors.AsType[*relay.Error](err); ok || err == nil {
			return e
		}
		return a.Wrong(name, err.Error())
	}
	if v.Kind() == reflect.Struct {
		for f, v := range v.Fields() {
			if err := a.check(f.Tag.Get("json"), f.Tag, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Wrong refuses a request for a field, "" for none in particular.
func (a *API) Wrong(field, reason string) *relay.Error {
	e := &relay.Error{Code: a.Invalid, Message: reason, Field: field}
	if field != "" {
		e.Message = field + ": " + reason
	}
	return e
}

// Refusal is the answer to an error of the route's, whose text is logged if the caller does not get it.
func (a *API) Refusal(ctx context.Context, route string, err error) *relay.Error {
	if e, ok := errors.AsType[*relay.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		refusal := a.Wrong(e.Field, e.Message)
		refusal.Code, refusal.RetryAfter = relay.Code(e.Code), e.RetryAfter
		return refusal
	}
	if errors.Is(err, mailbox.ErrFull) {
		return &relay.Error{Code: web.CodeInboxFull, Message: fmt.Sprintf(
			"%d messages wait in the receiver's inbox; send again when it has taken some", mailbox.MaxInbox)}
	}
	if ctx.Err() == nil {
		a.Logger.Error("request failed", "route", route, "err", err)
	}
	return a.Other
}

// readBody reads the JSON of a request's body.
func (a *API) readBody(r *http.Request, into any, tag string) *relay.Error {
	data, err := io.ReadAll(r.Body)
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &relay.Error{Code: relay.CodeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", e.Limit)}
	}
	switch {
	case err != nil:
		return a.Wrong("", "the body could not be read to its end")
	case !utf8.Valid(data):
		return a.Wrong("", "the body is not UTF-8")
	case len(bytes.TrimSpace(data)) > 0:
		err = json.Unmarshal(data, into)
	case tag != "optional":
		return a.Wrong("", "the body is empty: send a JSON object")
	}
	if err == nil && tag == "strict" {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		err = dec.Decode(into)
	}
	if err == nil {
		return nil
	}
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return a.Wrong(strings.Trim(field, `"`), "unknown field")
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		path := strings.Split(e.Field, ".")
		inStruct := func(name string) bool { return strings.ToLower(name) != name } // the name of a Go type
		return a.Wrong(strings.Join(slices.DeleteFunc(path, inStruct), "."),
			fmt.Sprintf("want %s, got %s", jsonType(e.Type), e.Value))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return a.Wrong("", fmt.Sprintf("the body is not JSON: error at byte %d", e.Offset))
	}
	if errors.Is(err, relay.ErrTime) {
		return a.Wrong("ts", err.Error())
	}
	return a.Wrong("", "the body is not a JSON object of the expected form")
}

// jsonType is the JSON type of t, as a phrase.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number"
}

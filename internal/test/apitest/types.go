package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/web"
)

// Typed checks the types of requests and answers against docs/openapi.yaml: both have the same parameters and fields.
func Typed(t *testing.T, routes []web.Route) {
	t.Helper()
	doc, err := Contract()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		method, path, _ := strings.Cut(r.Pattern, " ")
		item := doc.Paths.Find(path)
		if r.In == nil || item == nil {
			continue
		}
		op := item.GetOperation(method)
		var documented, typed []string
		for _, p := range slices.Concat(item.Parameters, op.Parameters) {
			documented = append(documented, fmt.Sprintf("%s %s", p.Value.In, parameter(p.Value)))
		}
		for f := range fields(r.In) {
			for _, in := range []string{"path", "query", "header"} {
				if name := f.Tag.Get(in); name != "" && name != "Authorization" {
					typed = append(typed, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", in, name, f.Tag.Get("range"), f.Tag.Get("default"))))
				}
			}
			if f.Name == "Body" && op.RequestBody != nil {
				same(t, r.Pattern+" request", f.Type, op.RequestBody.Value.Content.Get("application/json").Schema)
			}
		}
		slices.Sort(documented)
		slices.Sort(typed)
		if diff := cmp.Diff(documented, typed); diff != "" {
			t.Errorf("%s: parameters (-documented +typed):\n%s", r.Pattern, diff)
		}
		for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted} {
			if answer := op.Responses.Status(status); answer != nil {
				same(t, r.Pattern+" answer", r.Out, answer.Value.Content.Get("application/json").Schema)
			}
		}
	}
}

func parameter(p *openapi3.Parameter) string {
	bounds, byDefault := "", ""
	if s := p.Schema.Value; s.Min != nil {
		bounds = fmt.Sprintf("%.0f..%.0f", *s.Min, *s.Max)
	}
	if p.Schema.Value.Default != nil {
		byDefault = fmt.Sprint(p.Schema.Value.Default)
	}
	return strings.TrimSpace(p.Name + " " + bounds + " " + byDefault)
}

// fields are those of a struct and of what it embeds.
func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return slices.Values(slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous }))
}

// same compares the fields of a type with the properties of a schema, all the way down.
func same(t *testing.T, where string, typ reflect.Type, schema *openapi3.SchemaRef) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice && schema.Value.Items != nil {
		if typ.Kind() == reflect.Slice {
			schema = schema.Value.Items
		}
		typ = typ.Elem()
	}
	custom := reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Marshaler]())
	properties := map[string]*openapi3.SchemaRef{}
	for _, s := range append(schema.Value.AllOf, schema) {
		maps.Copy(properties, s.Value.Properties)
	}
	if typ.Kind() != reflect.Struct || custom || len(properties) == 0 {
		return
	}
	typed := map[string]reflect.Type{}
	for f := range fields(typ) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			typed[name] = f.Type
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(typed))); diff != "" {
		t.Errorf("%s: fields (-documented +typed):\n%s", where, diff)
	}
	for name, field := range typed {
		if p := properties[name]; p != nil {
			same(t, where+"."+name, field, p)
		}
	}
}

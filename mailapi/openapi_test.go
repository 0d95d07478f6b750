package mailapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailbox"
)

func TestTheDocumentDescribesEveryRoute(t *testing.T) {
	doc, err := apitest.Contract()
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	names := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			documented = append(documented, method+" "+path)
			if operation.OperationID == "" || operation.Summary == "" || names[operation.OperationID] {
				t.Errorf("%s %s: want an operationId of its own and a summary", method, path)
			}
			names[operation.OperationID] = true
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(documented, slices.Sorted(slices.Values(routes(t)))); diff != "" {
		t.Errorf("routes (-documented +served):\n%s", diff)
	}
}

func TestTheDocumentNamesTheSameValues(t *testing.T) {
	doc, err := apitest.Contract()
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func(string) bool{
		"MessageType": func(s string) bool { return mailbox.Type(s).Known() },
		"Code": func(s string) bool {
			return strings.Contains(httpError(t, "POST", "/v1/mailbox/messages/x/nack", `{}`), s)
		},
		"TaskState": func(s string) bool {
			return strings.Contains(httpError(t, "GET", "/v1/mailbox/tasks?state=x", ""), s)
		},
		"TaskStep": func(s string) bool { return strings.Contains(httpError(t, "POST", "/v1/mailbox/tasks/x", `{}`), s) },
	} {
		values := doc.Components.Schemas[name].Value.Enum
		if len(values) < 5 {
			t.Errorf("%s: %v", name, values)
		}
		for _, v := range values {
			if !check(v.(string)) {
				t.Errorf("%s: the API knows no %q", name, v)
			}
		}
	}
}

func httpError(t *testing.T, method, path, body string) string {
	t.Helper()
	return apitest.WantError(t, call(t, withMailbox(newBox()), method, path, body), 400, "INVALID_MESSAGE")
}

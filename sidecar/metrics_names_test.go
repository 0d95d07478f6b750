//go:build unix

package sidecar_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"sigs.k8s.io/yaml"

	"feishu-relay/feishu"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/send"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/test/programtest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/sidecar"
)

// promtool runs Prometheus' own checker in deploy.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programtest.Find(t, "promtool"), args...)
	cmd.Dir, cmd.Stdin = filepath.Join("..", "deploy"), strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestMetricsFollowPrometheusConventions(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, text := range allMetrics(t) {
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		promtool(t, text, "check", "metrics")
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	promtool(t, "", "check", "rules", "alerts.yml")
	promtool(t, "", "test", "rules", "alerts_test.yml")
}

// described is a metric as /metrics or docs/metrics.md describes it.
type described struct {
	kind   string
	labels []string // in their order; agent, which all have, left out
}

var (
	typeLine  = regexp.MustCompile(`(?m)^# TYPE (feishu_relay_\S+) (\S+)$`)
	labelPair = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	docRow    = regexp.MustCompile("(?m)^\\| `(feishu_relay_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	coded     = regexp.MustCompile("`([a-z_]+)`")
	anyMetric = regexp.MustCompile(`\b(?:feishu_relay|process|go)_[a-z_]+\b`)
)

// families are the metrics of a sidecar of every kind, and all values of their labels.
func families(t *testing.T) (map[string]described, map[string]bool) {
	t.Helper()
	found, values := map[string]described{}, map[string]bool{}
	for _, text := range allMetrics(t) {
		for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
			found[m[1]] = described{kind: m[2]}
		}
		for line := range strings.Lines(text) {
			m := sampleLine.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil || !strings.HasPrefix(m[1], "feishu_relay_") {
				continue
			}
			name := family(m[1], found)
			labels := map[string]bool{}
			agent := false
			for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
				switch {
				case pair[1] == "agent":
					agent = true
				case pair[1] != "le":
					labels[pair[1]] = true
					values[pair[2]] = values[pair[2]] || name != "feishu_relay_build_info"
				}
			}
			if !agent {
				t.Errorf("a series without the label agent: %s", line)
			}
			d := found[name]
			if d.labels = slices.Sorted(maps.Keys(labels)); len(labels) == 0 {
				d.labels = nil
			}
			found[name] = d
		}
	}
	return found, values
}

// family is the metric that a series of a histogram belongs to.
func family(series string, known map[string]described) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(series, suffix); ok && known[base].kind == "histogram" {
			return base
		}
	}
	return series
}

// Every metric stands in docs/metrics.md with its type, its labels and their
// values, and nothing else does.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	must(t, err)
	told := map[string]described{}
	for _, row := range docRow.FindAllStringSubmatch(string(data), -1) {
		d := described{kind: row[2]}
		for label := range strings.SplitSeq(row[3], ";") {
			if name := coded.FindStringSubmatch(label); name != nil {
				d.labels = append(d.labels, name[1])
			}
		}
		slices.Sort(d.labels)
		told[row[1]] = d
	}
	real, values := families(t)
	for name, d := range real {
		if got, ok := told[name]; !ok || got.kind != d.kind || !slices.Equal(got.labels, d.labels) {
			t.Errorf("docs/metrics.md says of %s %q; it is %q", name, got, d)
		}
	}
	for name := range told {
		if _, ok := real[name]; !ok {
			t.Errorf("docs/metrics.md has %s, which no sidecar shows", name)
		}
	}
	words := map[string]bool{}
	for _, m := range coded.FindAllStringSubmatch(string(data), -1) {
		words[m[1]] = true
	}
	for value, named := range values {
		if named && !words[value] {
			t.Errorf("docs/metrics.md does not have the label's value `%s`", value)
		}
	}
}

// The dashboard and the alerts ask for nothing that is not there.
func TestDashboardAndAlertsNameRealMetrics(t *testing.T) {
	t.Parallel()
	all := strings.Join(allMetrics(t), "\n")
	real := map[string]bool{}
	for line := range strings.Lines(all) {
		if m := sampleLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			real[m[1]] = true
		}
	}
	exprs := append(dashboardQueries(t), alertQueries(t)...)
	used := map[string]bool{}
	for _, expr := range exprs {
		for _, name := range anyMetric.FindAllString(expr, -1) {
			used[name] = true
			if !real[name] {
				t.Errorf("%s is asked for in %s, and no sidecar shows it", name, expr)
			}
		}
	}
	if len(exprs) < 60 || len(used) < 40 {
		t.Errorf("found only %d queries with %d metrics: this test no longer sees them", len(exprs), len(used))
	}
}

// panel is as much of a Grafana panel as matters here.
type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct{ RefID, Expr string }
}

func dashboardQueries(t *testing.T) (exprs []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "deploy", "grafana.json"))
	must(t, err)
	var d struct {
		Title, UID    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	must(t, json.Unmarshal(data, &d))
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		exprs = append(exprs, v.Definition)
	}
	if want := []string{"datasource", "job", "agent", "instance"}; !slices.Equal(variables, want) || d.SchemaVersion < 39 || d.UID == "" {
		t.Errorf("the dashboard has the variables %q, want %q; schema %d, uid %q", variables, want, d.SchemaVersion, d.UID)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if g := p.GridPos; ids[p.ID] || p.Title == "" || g.W < 1 || g.X+g.W > 24 || p.Type != "row" && p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q is broken: %+v", p.Title, p)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			if strings.Count(q.Expr, `{job=~"$job",instance=~"$instance",agent=~"$agent"`) < len(anyMetric.FindAllString(q.Expr, -1)) {
				t.Errorf("panel %q does not keep to the variables: %s", p.Title, q.Expr)
			}
			exprs = append(exprs, q.Expr)
		}
	}
	return exprs
}

func alertQueries(t *testing.T) (exprs []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "deploy", "alerts.yml"))
	must(t, err)
	tests, err := os.ReadFile(filepath.Join("..", "deploy", "alerts_test.yml"))
	must(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	must(t, yaml.UnmarshalStrict(data, &file))
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			exprs = append(exprs, r.Expr)
			severity := r.Labels["severity"]
			if r.For == "" || severity != "critical" && severity != "warning" || r.Annotations["summary"] == "" ||
				!strings.Contains(r.Annotations["description"], "`feishu-relay check`") {
				t.Errorf("%s lacks its for, severity, summary, or what to do and `feishu-relay check`", r.Alert)
			}
			if !strings.Contains(string(tests), `alertname="`+r.Alert+`"`) {
				t.Errorf("%s is not in alerts_test.yml", r.Alert)
			}
		}
	}
	return exprs
}

// What the parts of the transport count is listed, so that each stands at 0 from the start: the words in their
// comments, which are those that they count.
func TestGatewayEventsAreListed(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile(`(?m)^//\t([a-z_]+) {2,}`)
	call := regexp.MustCompile(`(?:\.Counter|\bcount|\.lost|ending)[({]"([a-z_]+)"`)
	for part, listed := range map[string][]feishu.Counted{"entry": sidecar.EntryEvents, "gateway": gateway.Counted,
		"link": slices.Concat(link.Counted, link.CountedByConnector), "webhook": webhook.Counted, "send": send.Counted} {
		want := map[feishu.Counted]bool{}
		files, err := filepath.Glob(filepath.Join("..", "feishu", part, "*.go"))
		must(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			data, err := os.ReadFile(path)
			must(t, err)
			for _, re := range []*regexp.Regexp{word, call} {
				for _, m := range re.FindAllSubmatch(data, -1) {
					want[feishu.Counted(m[1])] = true
				}
			}
		}
		if part == "webhook" { // and what package link counts of events
			for _, event := range link.Counted[:12] {
				want[event] = true
			}
		}
		if got, want := slices.Compact(slices.Sorted(slices.Values(listed))), slices.Sorted(maps.Keys(want)); len(want) < 5 || !slices.Equal(got, want) {
			t.Errorf("%s lists %q; it counts %q", part, got, want)
		}
	}
}

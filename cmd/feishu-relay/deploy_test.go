package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What of compose.yaml and kubernetes.yaml the tests look at. Anchors and merges
// are resolved by then.
type (
	composeFile struct {
		Services map[string]struct {
			Image       string         `json:"image"`
			Environment map[string]any `json:"environment"`
			Ports       []string       `json:"ports"`
			Healthcheck struct {
				Test []string `json:"test"`
			} `json:"healthcheck"`
			Networks   any            `json:"networks"`
			DependsOn  map[string]any `json:"depends_on"`
			ExtraHosts []string       `json:"extra_hosts"`
			Profiles   []string       `json:"profiles"`
		} `json:"services"`
		Networks map[string]struct {
			IPAM struct {
				Config []struct {
					Subnet  netip.Prefix `json:"subnet"`
					IPRange netip.Prefix `json:"ip_range"`
				} `json:"config"`
			} `json:"ipam"`
		} `json:"networks"`
	}
	kubeObject struct {
		Kind     string            `json:"kind"`
		Metadata kubeName          `json:"metadata"`
		Data     map[string]string `json:"data"`
		Spec     struct {
			Template struct {
				Spec struct {
					InitContainers []kubeContainer `json:"initContainers"`
					Containers     []kubeContainer `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	kubeName      struct{ Name string }
	kubeContainer struct {
		Name    string `json:"name"`
		Image   string `json:"image"`
		EnvFrom []struct {
			ConfigMapRef kubeName `json:"configMapRef"`
		} `json:"envFrom"`
		Env []struct {
			Name  string `json:"name"`
			Value string `json:"value"` // "" where a Secret has it
		} `json:"env"`
		Ports []struct {
			Name          string `json:"name"`
			ContainerPort int    `json:"containerPort"`
		} `json:"ports"`
		StartupProbe   *kubeProbe `json:"startupProbe"`
		ReadinessProbe *kubeProbe `json:"readinessProbe"`
		LivenessProbe  *kubeProbe `json:"livenessProbe"`
	}
	kubeProbe struct {
		HTTPGet struct {
			Path string `json:"path"`
			Port string `json:"port"`
		} `json:"httpGet"`
	}
)

// notOurs are variables of a sidecar that somebody else reads,
// next to REDIS_URL.
var notOurs = []string{"REDIS_PASSWORD"}

func deployed(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// merge is a line that takes over another mapping; the reader counts a key of
// it that is set anew as standing twice.
var merge = regexp.MustCompile(`(?m)^ *<<: .*$`)

// readYAML reads one document; a key that stands twice is an error.
func readYAML(t *testing.T, text string, into any) {
	t.Helper()
	_, err := yaml.YAMLToJSONStrict([]byte(merge.ReplaceAllString(text, "")))
	if err == nil {
		err = yaml.Unmarshal([]byte(text), into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func compose(t *testing.T) (f composeFile) {
	t.Helper()
	readYAML(t, deployed(t, "compose.yaml"), &f)
	return f
}

func kubernetes(t *testing.T) (objects []kubeObject) {
	t.Helper()
	for text := range strings.SplitSeq(deployed(t, "kubernetes.yaml"), "\n---\n") {
		var o kubeObject
		if readYAML(t, text, &o); o.Kind != "" { // else the comment on top
			objects = append(objects, o)
		}
	}
	return objects
}

// secrets are what a person fills in; each is the same everywhere. So are the ids of the apps.
var secrets = map[string]string{"API_TOKEN": "0123456789abcdef", "ADMIN_TOKEN": "abcdef0123456789", "RELAY_SECRET": "fedcba9876543210", "REDIS_PASSWORD": "pass",
	"APP_A": "cli_0123456789abcdef", "APP_B": "cli_0123456789abcdea"}

var composeVariable = regexp.MustCompile(`\$\{(\w+)(?::[?-][^}]*)?\}`)

// composeEnv is a service's environment as Compose would make it.
func composeEnv(t *testing.T, env map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, value := range env {
		out[name] = composeVariable.ReplaceAllStringFunc(fmt.Sprint(value), func(v string) string {
			secret, ok := secrets[composeVariable.FindStringSubmatch(v)[1]]
			if !ok {
				t.Errorf("%s takes %s, which nobody is told to set", name, v)
			}
			return secret
		})
	}
	return out
}

// fileEnv are the lines of an environment file, with those after a # if examples.
func fileEnv(text string, examples bool) map[string]string {
	line := regexp.MustCompile(`(?m)^([A-Z][A-Z0-9_]*)=(.*)$`)
	if examples {
		line = regexp.MustCompile(`(?m)^#?([A-Z][A-Z0-9_]*)=(.*)$`)
	}
	out := map[string]string{}
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// sidecars is the environment of each sidecar in deploy/, by file and name.
func sidecars(t *testing.T) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for name, s := range compose(t).Services {
		if strings.HasPrefix(s.Image, "feishu-relay:") {
			env := fileEnv(deployed(t, "systemd/example.env"), false) // the env_file that the header copies
			maps.Copy(env, composeEnv(t, s.Environment))
			out["compose.yaml "+name] = env
		}
	}
	objects := kubernetes(t)
	for _, o := range objects {
		for _, c := range o.Spec.Template.Spec.InitContainers {
			if !strings.HasPrefix(c.Image, "feishu-relay:") {
				continue
			}
			env := map[string]string{}
			for _, from := range c.EnvFrom {
				for _, data := range objects {
					if data.Kind == "ConfigMap" && data.Metadata.Name == from.ConfigMapRef.Name {
						maps.Copy(env, data.Data)
					}
				}
			}
			for _, v := range c.Env {
				if v.Value == "" {
					v.Value = secrets[v.Name]
				}
				env[v.Name] = strings.ReplaceAll(v.Value, "$(REDIS_PASSWORD)", env["REDIS_PASSWORD"])
			}
			out["kubernetes.yaml "+o.Metadata.Name] = env
		}
	}
	unit := deployed(t, "systemd/feishu-relay@.service")
	example := deployed(t, "systemd/example.env")
	for name, examples := range map[string]bool{"as it is": false, "with its examples": true} {
		env := fileEnv(example, examples)
		for _, m := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllStringSubmatch(unit, -1) {
			for set := range strings.FieldsSeq(m[1]) {
				key, value, _ := strings.Cut(set, "=")
				env[key] = strings.ReplaceAll(value, "%i", "agent_a")
			}
		}
		if examples { // in place of the gateway, as the file says
			delete(env, "GATEWAY_ADDR")
			env["FEISHU_APP_SECRET"] = "secret"
		}
		out["example.env "+name] = env
	}
	if len(out) < 5 {
		t.Fatalf("only the sidecars %q were found", slices.Sorted(maps.Keys(out)))
	}
	return out
}

// Each sidecar in deploy/ starts with the settings that stand there, and knows them all.
func TestDeployedSettings(t *testing.T) {
	known := slices.Clone(notOurs)
	for _, v := range variables() {
		known = append(known, v.name)
	}
	for name, env := range sidecars(t) {
		t.Run(name, func(t *testing.T) {
			for variable := range env {
				if !slices.Contains(known, variable) {
					t.Errorf("there is no variable %s", variable)
				}
			}
			clearEnvironment(t, env)
			c, err := loadConfig()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(name, "example.env") && (c.Backend != "redis" || c.RelaySecret == "" || c.AdminToken == "") {
				t.Errorf("backend %s; want redis, a RELAY_SECRET and an ADMIN_TOKEN", c.Backend)
			}
		})
	}
}

// A sidecar without Redis stays in service: every probe asks /healthz, at a port
// that is there, and no container waits for Redis.
func TestDeployedProbes(t *testing.T) {
	for name, s := range compose(t).Services {
		if _, waits := s.DependsOn["redis"]; waits {
			t.Errorf("compose.yaml: %s waits for redis", name)
		}
		if strings.HasPrefix(s.Image, "feishu-relay:") && !slices.Equal(s.Healthcheck.Test, []string{"CMD", "/feishu-relay", "health"}) {
			t.Errorf("compose.yaml: the health check of %s is %q", name, s.Healthcheck.Test)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("compose.yaml: %s publishes %s beyond this host", name, port)
			}
		}
	}
	env := sidecars(t)["kubernetes.yaml bot-a"]
	for _, o := range kubernetes(t) {
		for _, c := range o.Spec.Template.Spec.InitContainers {
			if c.Name != "relay" {
				continue
			}
			if len(c.Ports) != 1 || !strings.HasSuffix(env["LISTEN_ADDR"], fmt.Sprintf(":%d", c.Ports[0].ContainerPort)) {
				t.Fatalf("the ports %v are not that of LISTEN_ADDR=%s", c.Ports, env["LISTEN_ADDR"])
			}
			for _, p := range []*kubeProbe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				if p == nil || p.HTTPGet.Path != "/healthz" || p.HTTPGet.Port != c.Ports[0].Name {
					t.Errorf("kubernetes.yaml: the probe %+v of %s does not ask /healthz at %s", p, o.Metadata.Name, c.Ports[0].Name)
				}
			}
		}
	}
}

// The bots of compose.yaml are pointed at where their sidecars are, and the port
// of an alias is the one that https:// means.
func TestDeployedBotsFindTheirSidecar(t *testing.T) {
	file, profiles := compose(t), map[string]int{}
	services := file.Services
	for name, s := range services {
		if len(s.Profiles) == 0 {
			continue
		}
		profiles[strings.Join(s.Profiles, ",")]++
		letter := strings.Split(name, "-")[1]
		relay := services["relay-"+letter]
		if addr := relay.Environment["GATEWAY_ADDR"]; addr != "0.0.0.0:443" {
			t.Errorf("the gateway of relay-%s is at %v", letter, addr)
		}
		pair, _ := relay.Networks.(map[string]any)["pair-"+letter].(map[string]any)
		if networks := fmt.Sprint(s.Networks); networks != "[pair-"+letter+"]" {
			t.Errorf("%s is in the networks %s", name, networks)
		}
		// A bot that starts first is not given the sidecar's address.
		ipam := file.Networks["pair-"+letter].IPAM.Config[0]
		if at, err := netip.ParseAddr(fmt.Sprint(pair["ipv4_address"])); err != nil || !ipam.Subnet.Contains(at) || !ipam.IPRange.IsValid() || ipam.IPRange.Contains(at) {
			t.Errorf("relay-%s at %s, bots in %s of %s (%v)", letter, at, ipam.IPRange, ipam.Subnet, err)
		}
		env := composeEnv(t, s.Environment)
		if strings.Contains(fmt.Sprint(env), secrets["ADMIN_TOKEN"]) {
			t.Errorf("%s has the token for people", name)
		}
		host, ip := "relay-"+letter, fmt.Sprint(pair["ipv4_address"])
		want := map[string]bool{
			"base-url": env["FEISHU_DOMAIN"] == "http://"+host+":443",
			"proxy": env["HTTPS_PROXY"] == "http://relay:"+secrets["API_TOKEN"]+"@"+host+":443" && env["https_proxy"] == env["HTTPS_PROXY"] &&
				strings.HasPrefix(env["NO_PROXY"], ip+","+host+",") && env["no_proxy"] == env["NO_PROXY"],
			"alias": slices.Equal(s.ExtraHosts, []string{"open.feishu.cn:" + ip, "open.larksuite.com:" + ip}),
		}
		if !want[s.Profiles[0]] {
			t.Errorf("%s does not reach %s (%s): %v %v", name, host, ip, env, s.ExtraHosts)
		}
	}
	if want := map[string]int{"base-url": 2, "proxy": 2, "alias": 2}; !maps.Equal(profiles, want) {
		t.Errorf("bots by profile: got %v, want %v", profiles, want)
	}
}

// Images have one version in all files, which is not "latest" where it is not ours.
func TestDeployedImages(t *testing.T) {
	redis := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bredis:[\w.-]+`).FindAllString(deployed(t, "compose.yaml")+deployed(t, "kubernetes.yaml"), -1) {
		if m != "redis:6379" {
			redis[m] = true
		}
	}
	if len(redis) != 1 || redis["redis:latest"] {
		t.Errorf("the Redis images %q", slices.Sorted(maps.Keys(redis)))
	}
	for name, env := range sidecars(t) {
		if dir := env["DATA_DIR"]; !strings.HasPrefix(name, "example.env") && dir != "/data" {
			t.Errorf("%s keeps its data in %s, which is not the image's volume", name, dir)
		}
	}
}

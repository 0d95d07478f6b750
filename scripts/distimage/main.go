// Command distimage packs programs into container images, without a container engine. Its arguments
// are the folder to write to, the version, the commit, the time of the commit (RFC 3339), and a
// program for each architecture as ARCH=FILE. It writes feishu-relay_VERSION_image_linux_ARCH.tar
// for `docker load`, and feishu-relay_VERSION_image_oci.tar, an OCI layout of all of them, for
// a registry. What the images hold is what the Dockerfile says; from the same programs come the same
// bytes.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user and the group of the program, as in the Dockerfile.
const nonroot = 65532

func main() {
	if len(os.Args) < 6 {
		fmt.Fprintln(os.Stderr, "usage: distimage FOLDER VERSION COMMIT TIME ARCH=PROGRAM...")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		fmt.Fprintln(os.Stderr, "distimage:", err)
		os.Exit(1)
	}
}

func pack(dir, version, commit, at string, programs []string) error {
	made, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return fmt.Errorf("the time of the commit: %w", err)
	}
	tag, err := name.NewTag("feishu-relay:" + version)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		arch, file, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=PROGRAM", p)
		}
		image, err := imageOf(file, arch, version, commit, made)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		out := filepath.Join(dir, fmt.Sprintf("feishu-relay_%s_image_linux_%s.tar", version, arch))
		if err := tarball.WriteToFile(out, tag, image); err != nil {
			return err
		}
		if err := loads(out, tag); err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return writeLayout(filepath.Join(dir, "feishu-relay_"+version+"_image_oci.tar"), index, version, made)
}

// imageOf is the image of one program.
func imageOf(program, arch, version, commit string, made time.Time) (v1.Image, error) {
	files, err := filesOf(program, made)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{OS: "linux", Architecture: arch, Created: v1.Time{Time: made},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", nonroot, nonroot),
			Env:        []string{"DATA_DIR=/data", "LISTEN_ADDR=127.0.0.1:8787"},
			Volumes:    map[string]struct{}{"/data": {}},
			Entrypoint: []string{"/feishu-relay"},
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/feishu-relay", "health"}, Interval: 30 * time.Second,
				Timeout: 5 * time.Second, StartPeriod: 30 * time.Second},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "feishu-relay",
				"org.opencontainers.image.description": "Lets several self-hosted AI bots work together in one Feishu group",
				"org.opencontainers.image.version":     version,
				"org.opencontainers.image.revision":    commit,
				"org.opencontainers.image.created":     made.Format(time.RFC3339),
			},
		}})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer,
		History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "make dist"}})
}

// filesOf is the tar of what an image holds: the program, the roots of trust, and the empty folder
// for data, which a volume mounted there takes its rights from.
func filesOf(program string, made time.Time) ([]byte, error) {
	code, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode int64
		user int
		data []byte
	}{
		{"data/", 0o700, nonroot, nil},
		{"etc/", 0o755, 0, nil},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, roots.Bytes()},
		{"feishu-relay", 0o755, 0, code},
	} {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.user, Gid: f.user, Size: int64(len(f.data)), ModTime: made}
		if h.Typeflag = tar.TypeReg; f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// loads reads an image back as `docker load` does.
func loads(file string, tag name.Tag) error {
	image, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		return err
	}
	return validate.Image(image)
}

// writeLayout writes the images as one OCI layout in a tar.
func writeLayout(file string, index v1.ImageIndex, version string, made time.Time) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return err
	}
	written, err := path.ImageIndex()
	if err != nil {
		return err
	}
	if err := validate.Index(written); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := addAll(tar.NewWriter(out), dir, made); err != nil {
		return err
	}
	return out.Close()
}

// addAll adds the files of a folder to a tar, in the order of their names, and ends it.
func addAll(w *tar.Writer, dir string, made time.Time) error {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, cmp.Compare)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(inside), Mode: 0o644, Size: int64(len(data)),
			ModTime: made, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

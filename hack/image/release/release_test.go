// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	imageDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	mainFile    = "package main\n\nfunc main() {}\n"
)

// makeSources writes a small project with all files that a release reads.
func makeSources(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, content := range map[string]string{
		"go.mod":                          "module example.com/tiny\n\ngo 1.26.0\n",
		"LICENSE":                         "as you like\n",
		"cmd/main.go":                     mainFile,
		"cmd/kubectl-nslifecycle/main.go": mainFile,
		"dist/install.yaml": "a: b\n        image: ghcr.io/nslifecycle/nslifecycle:latest\nc: d\n" +
			"        image: ghcr.io/nslifecycle/nslifecycle:latest\n",
		"dist/chart/Chart.yaml":             "apiVersion: v2\nname: nslifecycle\nversion: 0.1.0\n# Why.\nappVersion: latest\n",
		"dist/chart/values.yaml":            "version: not this one\n",
		"dist/chart/templates/NOTES.txt":    "{{ .Chart.Version }}\n",
		"dist/chart/templates/tests/a.yaml": "a: b\n",
	} {
		write(t, filepath.Join(root, file), []byte(content))
	}
	return root
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// makeImage returns an archive that contains only an index, since no other file is read.
func makeImage(t *testing.T) []byte {
	t.Helper()
	index := `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","size":2,"digest":"` +
		imageDigest + `"}]}`
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for name, content := range map[string]string{"index.json": index} {
		err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		if err == nil {
			_, err = io.WriteString(writer, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// release builds a release from a new copy of the sources.
func release(t *testing.T) string {
	t.Helper()
	output := t.TempDir()
	write(t, filepath.Join(output, "nslifecycle-image_v1.2.3.tar"), makeImage(t))
	if err := run(t.Context(), []string{
		"--root", makeSources(t), "--output", output, "--version", "v1.2.3", "--revision", "abc",
		"--created", "1700000000", "--platforms", "linux/amd64,windows/arm64",
	}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return output
}

// TestBuildIsReproducible in hack/image tests that the binaries do not depend on the directory.
func TestReleaseIsReproducible(t *testing.T) {
	first, second := read(t, filepath.Join(release(t), checksumsName)), read(t, filepath.Join(release(t), checksumsName))
	if first != second {
		t.Errorf("two releases of the same sources differ:\n%s\n%s", first, second)
	}
}

func TestRelease(t *testing.T) {
	output := release(t)

	var names []string
	for line := range strings.Lines(read(t, filepath.Join(output, checksumsName))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		names = append(names, name)
		if got, err := checksum(filepath.Join(output, name)); err != nil || got != sum {
			t.Errorf("the checksum of %s is %s, want %s, error %v", name, got, sum, err)
		}
	}
	if want := []string{
		"install.yaml",
		"krew-nslifecycle.yaml",
		"kubectl-nslifecycle_v1.2.3_linux_amd64.tar.gz",
		"kubectl-nslifecycle_v1.2.3_linux_amd64.tar.gz.cdx.json",
		"kubectl-nslifecycle_v1.2.3_windows_arm64.zip",
		"kubectl-nslifecycle_v1.2.3_windows_arm64.zip.cdx.json",
		"nslifecycle-1.2.3.tgz",
		"nslifecycle-image_v1.2.3.tar",
		"nslifecycle-manager_v1.2.3_linux_amd64.tar.gz",
		"nslifecycle-manager_v1.2.3_linux_amd64.tar.gz.cdx.json",
		"nslifecycle-manager_v1.2.3_windows_arm64.zip",
		"nslifecycle-manager_v1.2.3_windows_arm64.zip.cdx.json",
	}; !slices.Equal(names, want) {
		t.Errorf("the release is %q", names)
	}

	for archive, want := range map[string][]string{
		"kubectl-nslifecycle_v1.2.3_linux_amd64.tar.gz": {"LICENSE", "kubectl-nslifecycle"},
		"nslifecycle-manager_v1.2.3_linux_amd64.tar.gz": {"LICENSE", "manager"},
		"nslifecycle-1.2.3.tgz": {
			"nslifecycle/Chart.yaml", "nslifecycle/templates/NOTES.txt", "nslifecycle/templates/tests/a.yaml",
			"nslifecycle/values.yaml",
		},
	} {
		if got := list(t, filepath.Join(output, archive)); !slices.Equal(got, want) {
			t.Errorf("%s contains %q", archive, got)
		}
	}
	packed, err := zip.OpenReader(filepath.Join(output, "kubectl-nslifecycle_v1.2.3_windows_arm64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if len(packed.File) != 2 || packed.File[1].Name != "kubectl-nslifecycle.exe" || packed.File[1].Mode() != 0o755 {
		t.Errorf("the archive for Windows contains %v", packed.File)
	}

	if got := read(t, filepath.Join(output, manifestName)); got !=
		"a: b\n        image: ghcr.io/nslifecycle/nslifecycle:v1.2.3@"+imageDigest+
			"\nc: d\n        image: ghcr.io/nslifecycle/nslifecycle:v1.2.3@"+imageDigest+"\n" {
		t.Errorf("the manifest is %q", got)
	}
	krew := read(t, filepath.Join(output, krewName))
	sum, err := checksum(filepath.Join(output, "kubectl-nslifecycle_v1.2.3_windows_arm64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(krew, "/releases/download/v1.2.3/kubectl-nslifecycle_v1.2.3_windows_arm64.zip\n    sha256: "+sum+
		"\n    bin: kubectl-nslifecycle.exe\n") || strings.Count(krew, "- selector:") != 2 {
		t.Errorf("the manifest for Krew is %s", krew)
	}
}

func TestChartVersion(t *testing.T) {
	for name, test := range map[string]struct {
		chart, want string
		isError     bool
	}{
		"both are set": {
			chart: "name: x\nversion: 0.1.0\nappVersion: latest\n",
			want:  "name: x\nversion: 1.2.3\nappVersion: v1.2.3\n",
		},
		"a dependency has its own version": {
			chart: "version: 0.1.0\nappVersion: latest\ndependencies:\n- version: 2\n  version: 3\n",
			want:  "version: 1.2.3\nappVersion: v1.2.3\ndependencies:\n- version: 2\n  version: 3\n",
		},
		"no appVersion": {chart: "version: 0.1.0\n", isError: true},
		"two versions":  {chart: "version: 0.1.0\nversion: 0.1.0\nappVersion: latest\n", isError: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := setChartVersion([]byte(test.chart), "1.2.3", "v1.2.3")
			if string(got) != test.want || (err != nil) != test.isError {
				t.Errorf("got %q and error %v", got, err)
			}
		})
	}
}

func TestManifestWithoutImage(t *testing.T) {
	opts := options{root: t.TempDir(), output: t.TempDir(), version: "v1.2.3"}
	write(t, filepath.Join(opts.root, "dist", manifestName), []byte("image: ghcr.io/nslifecycle/nslifecycle:v0.0.1\n"))
	write(t, opts.imageArchive(), makeImage(t))
	if err := writeManifest(opts); err == nil {
		t.Error("the manifest was released")
	}
}

func TestInvalidArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"a version without v":    {"--version", "1.2.3"},
		"an incomplete version":  {"--version", "v1.2"},
		"build metadata":         {"--version", "v1.2.3+4"},
		"a linker flag":          {"--version", "v1.2.3 -X main.x=y"},
		"an incomplete platform": {"--version", "v1.2.3", "--platforms", "linux"},
		"no time":                {"--version", "v1.2.3", "--created", "-1"},
		"an extra argument":      {"--version", "v1.2.3", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(append([]string{"--output", "x", "--revision", "abc", "--created", "1"}, args...)); err == nil {
				t.Errorf("%v: no error", args)
			}
		})
	}
	if _, err := parse([]string{"--output", "x", "--revision", "abc", "--created", "1", "--version", "v0.2.0-rc.1"}); err != nil {
		t.Errorf("a release candidate was rejected: %v", err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// list returns the file names in a compressed tar file.
func list(t *testing.T, path string) []string {
	t.Helper()
	compressed, err := gzip.NewReader(strings.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	reader := tar.NewReader(compressed)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 1700000000 || header.Uid != 0 {
			t.Errorf("%s has modification time %s and owner %d", header.Name, header.ModTime, header.Uid)
		}
		names = append(names, header.Name)
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const created = "1700000000"

// makeModule writes a module with a program to a new directory.
func makeModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, content := range map[string]string{
		"go.mod": "module example.com/tiny\n\ngo 1.26.0\n",
		"cmd/main.go": `package main

import "example.com/tiny/words"

func main() { println(words.Where()) }
`,
		"words/words.go": `package words

import "runtime"

func Where() string { _, file, _, _ := runtime.Caller(0); return file }
`,
		"words/ignored.md": root,
	} {
		path := filepath.Join(root, file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// build builds an archive of a new copy of the module.
func build(t *testing.T, platforms string) string {
	t.Helper()
	output := filepath.Join(t.TempDir(), "image.tar")
	if err := run(t.Context(), []string{
		"--root", makeModule(t), "--name", "example.com/tiny:v1", "--output", output,
		"--platforms", platforms, "--version", "v1", "--revision", "abc", "--created", created,
	}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return output
}

func TestBuildIsReproducible(t *testing.T) {
	var archives [2][]byte
	for i := range archives {
		// Use an empty build cache. A cached package would contain the path of the directory in which it
		// was compiled, so the binaries would be identical even if they contained paths.
		t.Setenv("GOCACHE", t.TempDir())
		var err error
		if archives[i], err = os.ReadFile(build(t, "linux/amd64")); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(archives[0], archives[1]) {
		t.Errorf("two builds of the same sources in different directories resulted in different archives, of %d and %d bytes",
			len(archives[0]), len(archives[1]))
	}
}

func TestArchive(t *testing.T) {
	dir, archive := t.TempDir(), build(t, "linux/amd64,linux/arm64")
	if err := extract(archive, dir); err != nil {
		t.Fatal(err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(manifest.Manifests); got != 3 {
		t.Fatalf("the archive has %d entries instead of an index and two bills of materials", got)
	}
	named := manifest.Manifests[0]
	if named.Annotations[nameAnnotation] != "example.com/tiny:v1" || named.Annotations[tagAnnotation] != "v1" {
		t.Errorf("the index is named %v", named.Annotations)
	}
	index, err := top.ImageIndex(named.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}

	t.Run("contains an image for each platform", func(t *testing.T) {
		images, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, descriptor := range images.Manifests {
			platforms = append(platforms, descriptor.Platform.String())
			image, err := index.Image(descriptor.Digest)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, image, descriptor.Platform)
		}
		if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
			t.Errorf("the platforms are %v", platforms)
		}
	})

	t.Run("contains bills of materials that a registry lists as referrers", func(t *testing.T) {
		// Like ghcr.io, this registry does not serve the referrers API, so referrers are listed under
		// a tag.
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		defer server.Close()
		repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/tiny")
		if err != nil {
			t.Fatal(err)
		}
		// Push twice, since pushing existing content must not return an error.
		for range 2 {
			digest, err := push(t.Context(), archive, repository.Tag("v1"))
			if err != nil {
				t.Fatal(err)
			}
			if digest != named.Digest {
				t.Errorf("pushed %s instead of %s", digest, named.Digest)
			}
		}
		tagged, err := remote.Head(repository.Tag("v1"))
		if err != nil || tagged.Digest != named.Digest {
			t.Errorf("the tag refers to %v, error %v", tagged, err)
		}
		images, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, descriptor := range images.Manifests {
			checkReferrer(t, repository, descriptor)
		}
	})
}

// checkImage checks the image as a container runtime reads it.
func checkImage(t *testing.T, image v1.Image, platform *v1.Platform) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != platform.OS || config.Architecture != platform.Architecture {
		t.Errorf("the image for %s has platform %s/%s", platform, config.OS, config.Architecture)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/manager"}) || config.Config.User != "65532:65532" {
		t.Errorf("entrypoint %v, user %q", config.Config.Entrypoint, config.Config.User)
	}
	if got := config.Config.Labels["org.opencontainers.image.created"]; got != "2023-11-14T22:13:20Z" {
		t.Errorf("the label has creation time %q", got)
	}

	reader := mutate.Extract(image)
	defer reader.Close()
	modes := map[string]int64{}
	files := tar.NewReader(reader)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
		if header.ModTime.Unix() != 1700000000 {
			t.Errorf("%s has modification time %s", header.Name, header.ModTime)
		}
	}
	if len(modes) != 4 || modes["manager"] != 0o555 || modes["etc/passwd"] != 0o444 {
		t.Errorf("the files and their modes are %v", modes)
	}
}

// Push must not change a published tag.
func TestPushKeepsExistingTag(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/tiny:v1")
	if err != nil {
		t.Fatal(err)
	}
	first, err := push(t.Context(), build(t, "linux/amd64"), tag)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push(t.Context(), build(t, "linux/amd64,linux/arm64"), tag); err == nil {
		t.Error("push replaced the image of an existing tag")
	}
	tagged, err := remote.Head(tag)
	if err != nil || tagged.Digest != first {
		t.Errorf("the tag refers to %v, error %v, instead of %s", tagged, err, first)
	}
}

// checkReferrer reads the bill of materials of an image from a registry.
func checkReferrer(t *testing.T, repository name.Repository, image v1.Descriptor) {
	t.Helper()
	referrers, err := remote.Referrers(repository.Digest(image.Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the referrers of %s are %v", image.Platform, manifest.Manifests)
	}
	artifact, err := remote.Image(repository.Digest(manifest.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	// Read the type from the manifest: the list that this registry returns contains the type of the
	// configuration instead.
	own, err := artifact.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if own.ArtifactType != bomMediaType {
		t.Errorf("the referrer of %s is an artifact of type %q", image.Platform, own.ArtifactType)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the artifact has %d layers, error %v", len(layers), err)
	}
	document, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer document.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(document, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.PackageURL != "pkg:golang/example.com/tiny@v1" {
		t.Errorf("the bill of materials describes %s", bom.Metadata.Component.PackageURL)
	}
}

func TestInvalidArguments(t *testing.T) {
	for title, args := range map[string][]string{
		"no name":                {"--output", "x.tar"},
		"no output":              {"--name", "x"},
		"an extra argument":      {"--name", "x", "--output", "x.tar", "y"},
		"an incomplete platform": {"--name", "x", "--output", "x.tar", "--platforms", "linux"},
		"an invalid time": {"--name", "x", "--output", "x.tar", "--version", "v", "--revision", "r",
			"--created", "today"},
		"no repository": {"--name", "x", "--output", "x.tar", "--root", t.TempDir()},
	} {
		t.Run(title, func(t *testing.T) {
			if _, err := parse(t.Context(), args); err == nil {
				t.Errorf("%v: no error", args)
			}
		})
	}
}

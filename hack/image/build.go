// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/nslifecycle/nslifecycle/hack/image/internal/binary"
)

// nonroot is the user ID of the manager. It is the same as in the distroless images, so that the
// manager has the same user ID in both images of this project.
const nonroot = "65532"

const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:" + nonroot + ":" + nonroot + ":nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:" + nonroot + ":\n"
)

// platformImage is the image for one platform, and the bill of materials of its binary.
type platformImage struct {
	platform v1.Platform
	image    v1.Image
	// bom is a CycloneDX document in JSON.
	bom []byte
}

func buildImages(ctx context.Context, opts options) ([]platformImage, error) {
	scratch, err := os.MkdirTemp("", "nslifecycle-image-")
	if err != nil {
		return nil, fmt.Errorf("failed to create a temporary directory: %w", err)
	}
	defer os.RemoveAll(scratch)

	images := make([]platformImage, 0, len(opts.platforms))
	for _, platform := range opts.platforms {
		manager := filepath.Join(scratch, "manager")
		build := binary.Build{
			Root: opts.root, Package: opts.target, OS: platform.OS, Arch: platform.Architecture,
			Version: opts.version, Revision: opts.revision, Output: manager,
		}
		if err := build.Run(ctx); err != nil {
			return nil, err
		}
		bom, err := binary.Describe(manager, opts.version, opts.created)
		if err != nil {
			return nil, err
		}
		image, err := makeImage(opts, platform, manager)
		if err != nil {
			return nil, fmt.Errorf("failed to create the image for %s: %w", platform, err)
		}
		images = append(images, platformImage{platform: platform, image: image, bom: bom})
	}
	return images, nil
}

func makeImage(opts options, platform v1.Platform, manager string) (v1.Image, error) {
	files, err := makeFileSystem(manager, opts.created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("failed to create the layer: %w", err)
	}

	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: opts.created},
		RootFS:  v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/manager"},
			User:       nonroot + ":" + nonroot,
			WorkingDir: "/",
			Labels:     labels(opts),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create the configuration: %w", err)
	}
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: opts.created}, CreatedBy: "go build " + opts.target,
	}})
}

// labels returns the labels that OCI defines:
// https://specs.opencontainers.org/image-spec/annotations/.
func labels(opts options) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       "nslifecycle",
		prefix + "description": "Initializes and finalizes Kubernetes namespaces.",
		prefix + "url":         "https://github.com/nslifecycle/nslifecycle",
		prefix + "source":      "https://github.com/nslifecycle/nslifecycle",
		prefix + "licenses":    "Apache-2.0",
		prefix + "version":     opts.version,
		prefix + "revision":    opts.revision,
		prefix + "created":     opts.created.Format(time.RFC3339),
	}
}

// makeFileSystem returns a tar archive of the image's files, which are owned by root and read-only.
func makeFileSystem(path string, modified time.Time) ([]byte, error) {
	manager, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read the manager: %w", err)
	}
	var files bytes.Buffer
	writer := tar.NewWriter(&files)
	for _, file := range []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"etc/", 0o755, nil},
		{"etc/group", 0o444, []byte(group)},
		{"etc/passwd", 0o444, []byte(passwd)},
		{"manager", 0o555, manager},
	} {
		// The writer adds a directory if the name ends with a slash.
		header := &tar.Header{
			Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: modified, Format: tar.FormatPAX,
		}
		err := writer.WriteHeader(header)
		if err == nil {
			_, err = writer.Write(file.content)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to write %s to the layer: %w", file.name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("failed to write the layer: %w", err)
	}
	return files.Bytes(), nil
}

const (
	bomMediaType = "application/vnd.cyclonedx+json"
	// emptyMediaType is the media type of the configuration of an artifact that is not an image.
	emptyMediaType = "application/vnd.oci.empty.v1+json"

	// tagAnnotation is defined by OCI and contains the tag; containerd reads the full name from
	// nameAnnotation.
	tagAnnotation  = "org.opencontainers.image.ref.name"
	nameAnnotation = "io.containerd.image.name"
)

// writeArchive writes the images and their bills of materials to opts.output, and returns the
// digest of the image index.
func writeArchive(opts options, images []platformImage) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "nslifecycle-layout-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("failed to create a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)

	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("failed to create an image layout: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, built := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: built.image, Descriptor: v1.Descriptor{Platform: &built.platform},
		})
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		tagAnnotation: tagOf(opts.name), nameAnnotation: opts.name,
	})); err != nil {
		return v1.Hash{}, fmt.Errorf("failed to write the images: %w", err)
	}
	for _, built := range images {
		if err := attach(path, built); err != nil {
			return v1.Hash{}, fmt.Errorf("failed to write the bill of materials for %s: %w", built.platform, err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, fmt.Errorf("failed to read the digest of the image index: %w", err)
	}
	return digest, writeTar(dir, opts.output, opts.created)
}

func tagOf(name string) string {
	last := name[strings.LastIndex(name, "/")+1:]
	if _, tag, found := strings.Cut(last, ":"); found {
		return tag
	}
	return "latest"
}

// attach writes the bill of materials as an artifact whose subject is the image.
func attach(path layout.Path, built platformImage) error {
	subject, err := partial.Descriptor(built.image)
	if err != nil {
		return err
	}
	nothing, bom := []byte("{}"), built.bom
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  bomMediaType,
		Config:        describeBlob(emptyMediaType, nothing),
		Layers:        []v1.Descriptor{describeBlob(bomMediaType, bom)},
		Subject: &v1.Descriptor{
			MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest,
		},
	})
	if err != nil {
		return err
	}
	for _, blob := range [][]byte{nothing, bom, manifest} {
		digest := describeBlob("", blob).Digest
		if err := path.WriteBlob(digest, io.NopCloser(bytes.NewReader(blob))); err != nil {
			return err
		}
	}
	descriptor := describeBlob(types.OCIManifestSchema1, manifest)
	descriptor.ArtifactType = bomMediaType
	return path.AppendDescriptor(descriptor)
}

func describeBlob(mediaType types.MediaType, content []byte) v1.Descriptor {
	// Reading from memory cannot fail.
	digest, size, _ := v1.SHA256(bytes.NewReader(content))
	return v1.Descriptor{MediaType: mediaType, Size: size, Digest: digest}
}

// writeTar writes all files in dir to a tar archive, and atomically replaces output with it.
func writeTar(dir, output string, modified time.Time) error {
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return fmt.Errorf("failed to create the directory of %s: %w", output, err)
	}
	file, err := os.CreateTemp(filepath.Dir(output), ".image-")
	if err != nil {
		return fmt.Errorf("failed to write %s: %w", output, err)
	}
	defer os.Remove(file.Name())
	writer := tar.NewWriter(file)
	// WalkDir visits the files sorted by name.
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return addToTar(writer, filepath.Join(dir, name), name, entry.IsDir(), modified)
	})
	err = errors.Join(err, writer.Close(), file.Chmod(0o644), file.Close())
	if err != nil {
		return fmt.Errorf("failed to write %s: %w", output, err)
	}
	return os.Rename(file.Name(), output)
}

func addToTar(writer *tar.Writer, path, name string, isDir bool, modified time.Time) error {
	if isDir {
		return writer.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: modified, Format: tar.FormatPAX,
		})
	}
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if err := writer.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: modified, Format: tar.FormatPAX,
	}); err != nil {
		return err
	}
	_, err = io.Copy(writer, source)
	return err
}

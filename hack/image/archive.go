// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
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
	"github.com/google/go-containerregistry/pkg/v1/types"
)

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

// tagOf returns the tag in the name of an image.
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

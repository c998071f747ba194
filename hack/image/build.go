// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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

// buildImages builds the manager and its image for each platform.
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

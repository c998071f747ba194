// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// runPush pushes an archive and prints the digest of the image index.
func runPush(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: image push ARCHIVE NAME, such as dist/image.tar ghcr.io/nslifecycle/nslifecycle:v0.1.0")
	}
	tag, err := name.NewTag(args[1])
	if err != nil {
		return fmt.Errorf("failed to parse the name of the image: %w", err)
	}
	digest, err := push(ctx, args[0], tag)
	if err != nil {
		return fmt.Errorf("failed to push %s to %s: %w", args[0], tag, err)
	}
	fmt.Fprintf(out, "%s@%s\n", tag.Repository.Name(), digest)
	return nil
}

// push writes the images, then their bills of materials, and finally the tag, so that a client that
// pulls the tag finds all of this content. It uses the credentials of `docker login`. It returns an
// error if the tag already refers to another image.
func push(ctx context.Context, archive string, tag name.Tag) (v1.Hash, error) {
	dir, err := os.MkdirTemp("", "nslifecycle-layout-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("failed to create a temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := extract(archive, dir); err != nil {
		return v1.Hash{}, fmt.Errorf("failed to unpack the archive: %w", err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return v1.Hash{}, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	if len(manifest.Manifests) == 0 || !manifest.Manifests[0].MediaType.IsIndex() {
		return v1.Hash{}, errors.New("the archive does not start with an image index; create it with make image-archive")
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return v1.Hash{}, err
	}
	digest := manifest.Manifests[0].Digest

	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := checkTag(tag, digest, options); err != nil {
		return v1.Hash{}, err
	}
	if err := remote.WriteIndex(tag.Digest(digest.String()), index, options...); err != nil {
		return v1.Hash{}, err
	}
	for _, descriptor := range manifest.Manifests[1:] {
		artifact, err := top.Image(descriptor.Digest)
		if err != nil {
			return v1.Hash{}, err
		}
		if err := remote.Write(tag.Digest(descriptor.Digest.String()), artifact, options...); err != nil {
			return v1.Hash{}, err
		}
	}
	return digest, remote.Tag(tag, index, options...)
}

// checkTag returns an error if the tag refers to a different image.
func checkTag(tag name.Tag, digest v1.Hash, options []remote.Option) error {
	existing, err := remote.Head(tag, options...)
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to read the tag: %w", err)
	}
	if existing.Digest != digest {
		return fmt.Errorf("the tag already refers to %s, not %s: use another tag", existing.Digest, digest)
	}
	return nil
}

// extract unpacks an archive. os.Root confines all files to the directory.
func extract(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.FromSlash(header.Name)
		if header.Typeflag == tar.TypeDir {
			err = root.MkdirAll(path, 0o755)
		} else {
			err = extractFile(root, path, reader)
		}
		if err != nil {
			return fmt.Errorf("failed to write %s: %w", header.Name, err)
		}
	}
}

func extractFile(root *os.Root, path string, content io.Reader) error {
	file, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

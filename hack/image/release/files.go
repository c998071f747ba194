// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	manifestName  = "install.yaml"
	krewName      = "krew-nslifecycle.yaml"
	checksumsName = "SHA256SUMS"
)

// developmentImage is the image of each Deployment in the committed manifest.
const developmentImage = "image: ghcr.io/nslifecycle/nslifecycle:latest\n"

// writeManifest writes dist/install.yaml with the digest of the released image, so that moving the
// tag does not change which image is pulled.
func writeManifest(opts options) error {
	content, err := os.ReadFile(filepath.Join(opts.root, "dist", manifestName))
	if err != nil {
		return fmt.Errorf("failed to read the manifest: %w", err)
	}
	digest, err := readDigest(opts.imageArchive())
	if err != nil {
		return fmt.Errorf("failed to read the digest of the image from %s: %w", opts.imageArchive(), err)
	}
	image := fmt.Sprintf("image: %s:%s@%s\n", opts.image, opts.version, digest)
	if !bytes.Contains(content, []byte(developmentImage)) {
		return fmt.Errorf("failed to set the image in the manifest: it does not contain %q", developmentImage)
	}
	return writeFile(opts.path(manifestName), bytes.ReplaceAll(content, []byte(developmentImage), []byte(image)))
}

// readDigest returns the digest of the image index, which is the first entry of the archive.
func readDigest(archive string) (v1.Hash, error) {
	file, err := os.Open(archive)
	if err != nil {
		return v1.Hash{}, err
	}
	defer file.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if err != nil {
			return v1.Hash{}, fmt.Errorf("failed to find index.json: %w", err)
		}
		if header.Name != "index.json" {
			continue
		}
		var index v1.IndexManifest
		if err := json.NewDecoder(reader).Decode(&index); err != nil {
			return v1.Hash{}, err
		}
		if len(index.Manifests) == 0 || !index.Manifests[0].MediaType.IsIndex() {
			return v1.Hash{}, errors.New("the archive does not start with an image index")
		}
		return index.Manifests[0].Digest, nil
	}
}

// writeChart packs dist/chart like `helm package`, with the version of the release. It does not call
// helm, which writes the current time to the archive.
func writeChart(opts options) error {
	root := filepath.Join(opts.root, "dist", "chart")
	version := strings.TrimPrefix(opts.version, "v")
	var entries []entry
	// WalkDir visits the files sorted by name.
	err := filepath.WalkDir(root, func(path string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			if content, err = setChartVersion(content, version, opts.version); err != nil {
				return err
			}
		}
		entries = append(entries, entry{"nslifecycle/" + filepath.ToSlash(name), 0o644, content})
		return nil
	})
	if err != nil {
		return fmt.Errorf("failed to read the chart: %w", err)
	}
	name := "nslifecycle-" + version + ".tgz"
	packed, err := pack(name, opts.created, entries)
	if err != nil {
		return fmt.Errorf("failed to pack the chart: %w", err)
	}
	return writeFile(opts.path(name), packed)
}

// setChartVersion sets the chart version and the image version.
func setChartVersion(content []byte, version, appVersion string) ([]byte, error) {
	isSet := map[string]bool{}
	lines := strings.SplitAfter(string(content), "\n")
	for i, line := range lines {
		key, _, _ := strings.Cut(line, ":")
		switch key {
		case "version":
			lines[i] = "version: " + version + "\n"
		case "appVersion":
			lines[i] = "appVersion: " + appVersion + "\n"
		default:
			continue
		}
		if isSet[key] {
			return nil, fmt.Errorf("%s occurs twice in Chart.yaml", key)
		}
		isSet[key] = true
	}
	if len(isSet) != 2 {
		return nil, errors.New("version and appVersion are required in Chart.yaml")
	}
	return []byte(strings.Join(lines, "")), nil
}

// krewManifest follows https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
var krewManifest = template.Must(template.New(krewName).Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: nslifecycle
spec:
  version: {{ .Version }}
  homepage: https://github.com/nslifecycle/nslifecycle
  shortDescription: Create, inspect and delete namespaces, and explain why one is stuck
  description: |
    Shows the state of every namespace and what it waits for, explains why the
    initialization or deletion of a namespace makes no progress and how to fix it,
    follows a deletion, writes a namespace as YAML, and, as a last resort, removes
    finalizers safely.

    The plugin works in every cluster. If the nslifecycle operator is installed, it
    also shows the initializers of new namespaces.
  platforms:
{{- range .Platforms }}
  - selector:
      matchLabels:
        os: {{ .OS }}
        arch: {{ .Arch }}
    uri: https://github.com/nslifecycle/nslifecycle/releases/download/{{ $.Version }}/{{ .Archive }}
    sha256: {{ .Sum }}
    bin: {{ .Binary }}
{{- end }}
`))

// writeKrew writes the Krew manifest of the plugin, with the checksums of the archives.
func writeKrew(opts options) error {
	type entry struct{ OS, Arch, Archive, Sum, Binary string }
	var platforms []entry
	for _, on := range opts.platforms {
		archive := plugin.archive(opts.version, on)
		sum, err := checksum(opts.path(archive))
		if err != nil {
			return err
		}
		platforms = append(platforms, entry{on.os, on.arch, archive, sum, plugin.file(on)})
	}
	var manifest bytes.Buffer
	if err := krewManifest.Execute(&manifest, map[string]any{
		"Version": opts.version, "Platforms": platforms,
	}); err != nil {
		return fmt.Errorf("failed to write the manifest for Krew: %w", err)
	}
	return writeFile(opts.path(krewName), manifest.Bytes())
}

// writeChecksums writes the checksums of all files in the directory, for `sha256sum --check`.
func writeChecksums(opts options) error {
	files, err := os.ReadDir(opts.output)
	if err != nil {
		return fmt.Errorf("failed to read the release: %w", err)
	}
	var sums strings.Builder
	for _, file := range files {
		if file.Name() == checksumsName {
			continue
		}
		sum, err := checksum(opts.path(file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, file.Name())
	}
	return writeFile(opts.path(checksumsName), []byte(sums.String()))
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("failed to read a file of the release: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("failed to read a file of the release: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

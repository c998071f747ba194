// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the manager for each platform and writes its container image to an
// archive: a tar of an OCI image layout, without a container engine and without pulling
// images. It is a separate module, so that its requirements are not part of the manager's
// dependencies.
//
// # Content of the archive
//
//	index.json
//	├── image index, named by --name
//	│   ├── image linux/amd64: one layer with /manager, /etc/passwd and /etc/group
//	│   └── image linux/arm64
//	├── artifact application/vnd.cyclonedx+json, subject: image linux/amd64
//	└── artifact application/vnd.cyclonedx+json, subject: image linux/arm64
//
// The image has no base. The manager is linked statically; it trusts the certificate
// authority of its ServiceAccount and connects only to the API server, so
// there are no CA certificates; it prints times in UTC, so there is no time zone database.
//
// Each artifact is the software bill of materials of one image, CycloneDX in JSON: the Go
// modules that the linker has recorded in the binary. It refers to its image as
// defined by OCI 1.1, so that a registry lists it as a referrer of the image.
//
// `image push ARCHIVE NAME` pushes the archive to a registry. It needs no container engine, either.
//
// # Reproducibility
//
// The same sources, Go release and options result in an identical archive: the binary
// contains neither paths nor the state of version control, files are sorted, and
// all timestamps are that of --created.
package main

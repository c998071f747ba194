// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the manager for each platform and writes its container image to an
// archive: a tar of an OCI image layout, without a container engine and without pulling
// anything. It is a module of its own, so that what it needs is no part of the manager's
// dependencies.
//
// # What is in the archive
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
// modules that the linker has recorded in the binary. It refers to its image the way that
// OCI 1.1 has for it, so that a registry lists it under the image's referrers.
//
// `image push ARCHIVE NAME` writes all of that to a registry, without a container engine too.
//
// # Reproducible
//
// The same sources, Go release and options give the same archive, byte for byte: the binary
// holds neither paths nor the state of version control, files are written in one order, and
// every time is that of --created.
package main

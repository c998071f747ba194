// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the manager for each platform and writes its container image to an archive:
// a tar file of an OCI image layout. It needs no container engine and pulls no images. It is a
// separate module, so that its dependencies do not become dependencies of the manager.
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
// The image has no base image, since the manager is linked statically. It has no CA certificates:
// the manager connects only to the API server, and trusts the certificate authority of its
// ServiceAccount. It has no time zone database, since the manager prints times in UTC.
//
// Each artifact is the software bill of materials of one image, as CycloneDX in JSON. It lists the
// Go modules that the linker records in the binary. The artifact refers to its image as defined by
// OCI 1.1, so that a registry lists it as a referrer of the image.
//
// ko 0.19 does not replace this command: it reads base images only from a registry or its cache, names the binary after
// its package, and neither names the images in an archive nor adds bills of materials to it.
//
// `image push ARCHIVE NAME` pushes the archive to a registry, also without a container engine.
//
// # Reproducibility
//
// The same sources, Go release and options result in an identical archive: the binary contains
// neither paths nor version control information, files are sorted, and --created is the timestamp
// of all files.
package main

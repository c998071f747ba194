// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package binary

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// versionPackage contains the version variables of a program.
const versionPackage = "github.com/nslifecycle/nslifecycle/internal/version"

// Build describes a build.
type Build struct {
	// Root is the directory of the main module, and Package is the path of the package in that module.
	Root, Package string
	// OS and Arch are the values of GOOS and GOARCH.
	OS, Arch string
	// Version and Revision are the values that the program prints.
	Version, Revision string
	// Output is the path of the binary.
	Output string
}

// Run compiles and links the program without recording version control information: an untracked
// file would set it to "modified", and a source tarball has no such information.
func (b Build) Run(ctx context.Context) error {
	ldflags := fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.revision=%[3]s", versionPackage, b.Version, b.Revision)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+ldflags,
		"-o", b.Output, b.Package)
	build.Dir = b.Root
	// Reset GOWORK, GOFLAGS and other settings of this machine that affect the result. Go's default
	// architecture levels apply.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOOS="+b.OS, "GOARCH="+b.Arch)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to build %s for %s/%s: %w: %s", b.Package, b.OS, b.Arch, err, bytes.TrimSpace(output))
	}
	return nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version returns the version of the running program. The linker sets it for releases:
//
//	go build -ldflags "-X github.com/nslifecycle/nslifecycle/internal/version.version=v0.1.0
//	                   -X github.com/nslifecycle/nslifecycle/internal/version.revision=<commit>"
//
// In other builds, Go records the version: the state of the checkout, or the version of the
// installed module.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// The linker sets these variables.
var version, revision string

// unknown is the version of a build without version information.
const unknown = "(devel)"

// Info describes the version of a program and how it was built.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// IsModified reports whether the checkout had uncommitted changes.
	IsModified bool   `json:"modified,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// Read returns the version of the running program.
func Read() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return compute(version, revision, build)
}

// String implements fmt.Stringer.
func (i Info) String() string {
	return fmt.Sprintf("%s (%s, %s)", i.Version, i.Go, i.Platform)
}

// compute prefers the values set by the linker. For a release, it ignores the state of the
// checkout: otherwise, untracked files would mark the release as modified.
func compute(version, revision string, build *debug.BuildInfo) Info {
	info := Info{
		Version: cmp.Or(version, build.Main.Version, unknown), Revision: revision,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info.Revision != "" {
		return info
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.Revision = setting.Value
		case "vcs.modified":
			info.IsModified = setting.Value == "true"
		}
	}
	return info
}

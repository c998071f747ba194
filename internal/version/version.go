// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version knows which version of nslifecycle a program was built from.
//
// A release says so by the linker:
//
//	go build -ldflags "-X github.com/nslifecycle/nslifecycle/internal/version.version=v0.1.0
//	                   -X github.com/nslifecycle/nslifecycle/internal/version.revision=<commit>"
//
// In every other build, Go itself has recorded the state of the checkout, or the version of
// the module that was installed.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker.
var version, revision string

// unknown is the version of a build that neither the linker nor Go knows one of.
const unknown = "(devel)"

// Info is what a program says about itself.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// IsModified tells that the checkout had changes which are in no revision.
	IsModified bool   `json:"isModified,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

// Read returns what is known of the running program.
func Read() Info {
	build, isKnown := debug.ReadBuildInfo()
	if !isKnown {
		build = &debug.BuildInfo{}
	}
	return compute(version, revision, build)
}

// String is one line for people.
func (i Info) String() string {
	return fmt.Sprintf("%s (%s, %s)", i.Version, i.Go, i.Platform)
}

// compute lets the linker have the last word: a release is built without the state of version
// control, so that an untracked file does not make it another one.
func compute(version, revision string, build *debug.BuildInfo) Info {
	info := Info{
		Version: version, Revision: revision,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info.Version == "" {
		info.Version = build.Main.Version
	}
	if info.Version == "" {
		info.Version = unknown
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

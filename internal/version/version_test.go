// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompute(t *testing.T) {
	checkout := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.1.1-0.20261121224131-b28bed57a7c5+dirty"},
		Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "b28bed5"}, {Key: "vcs.modified", Value: "true"},
		},
	}
	for name, test := range map[string]struct {
		version, revision string
		build             *debug.BuildInfo
		want              Info
	}{
		"release": {
			version: "v0.1.0", revision: "abc", build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want: Info{Version: "v0.1.0", Revision: "abc"},
		},
		"release built from a modified checkout": {
			version: "v0.1.0", revision: "abc", build: checkout,
			want: Info{Version: "v0.1.0", Revision: "abc"},
		},
		"checkout": {
			build: checkout,
			want: Info{
				Version: "v0.1.1-0.20261121224131-b28bed57a7c5+dirty", Revision: "b28bed5", IsModified: true,
			},
		},
		"go install with a version": {
			build: &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}},
			want:  Info{Version: "v0.1.0"},
		},
		"no version information": {
			build: &debug.BuildInfo{},
			want:  Info{Version: "(devel)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Go, test.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
			if diff := cmp.Diff(test.want, compute(test.version, test.revision, test.build)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

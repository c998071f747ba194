// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package binary

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// bomVersion is a version that all scanners support.
const bomVersion = cyclonedx.SpecVersion1_5

// Describe returns the software bill of materials of a Go binary, as a CycloneDX document in JSON:
// the main module with the given version, the standard library and each linked module.
//
// It contains neither licenses nor dependencies between modules, since the linker does not record
// them.
func Describe(path, version string, created time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read the build information of %s: %w", path, err)
	}
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, version)
	std := component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))
	components := []cyclonedx.Component{std}
	references := []string{std.BOMRef}
	// The modules are already sorted by path.
	for _, module := range info.Deps {
		linked := component(cyclonedx.ComponentTypeLibrary, used(module).Path, used(module).Version)
		components = append(components, linked)
		references = append(references, linked.BOMRef)
	}

	bom := cyclonedx.NewBOM()
	// The serial number is omitted: it is optional, and would have to be unique.
	bom.Metadata = &cyclonedx.Metadata{Timestamp: created.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &references}}
	var document bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&document, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, bomVersion); err != nil {
		return nil, fmt.Errorf("failed to write the bill of materials: %w", err)
	}
	return document.Bytes(), nil
}

// used returns the module that was compiled: the replacement, if go.mod has one.
func used(module *debug.Module) *debug.Module {
	if module.Replace != nil {
		return module.Replace
	}
	return module
}

func component(kind cyclonedx.ComponentType, name, version string) cyclonedx.Component {
	url := "pkg:golang/" + name + "@" + version
	return cyclonedx.Component{BOMRef: url, Type: kind, Name: name, Version: version, PackageURL: url}
}

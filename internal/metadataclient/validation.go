// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metadataclient

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxQuoted is the maximum number of bytes of a value that an error quotes. It is the length of the
// longest valid name.
const maxQuoted = 253

// Quote quotes a value from an API server for use in an error, and truncates long values. The error
// can become part of a condition.
func Quote(value string) string {
	if len(value) > maxQuoted {
		return fmt.Sprintf("%q (%d bytes in total)", value[:maxQuoted], len(value))
	}
	return fmt.Sprintf("%q", value)
}

// ValidateSegment returns an error if a value cannot be a single segment of a URL path.
func ValidateSegment(field, value string) error {
	if value == "" {
		return fmt.Errorf("%s is empty", field)
	}
	if problems := content.IsPathSegmentName(value); len(problems) > 0 {
		return fmt.Errorf("%s %s is not valid: %s", field, Quote(value), strings.Join(problems, ", "))
	}
	return nil
}

// ValidateType returns an error if the group, version or resource cannot be a segment of a URL path. The
// group can be empty, because that is the core group.
func ValidateType(gvr schema.GroupVersionResource) error {
	if gvr.Group != "" {
		if err := ValidateSegment("group", gvr.Group); err != nil {
			return err
		}
	}
	if err := ValidateSegment("version", gvr.Version); err != nil {
		return err
	}
	return ValidateSegment("resource", gvr.Resource)
}

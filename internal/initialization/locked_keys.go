// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// The patterns match the keys that a template locks in the annotation v1alpha1.AnnotationAppliedTemplates. The policy
// complete contains them, because CEL cannot parse JSON. Keys contain no characters that JSON escapes.
const (
	LockedLabelsPattern      = `"lockedLabels":"[^"]+`
	LockedAnnotationsPattern = `"lockedAnnotations":"[^"]+`
)

var (
	lockedLabels      = regexp.MustCompile(LockedLabelsPattern)
	lockedAnnotations = regexp.MustCompile(LockedAnnotationsPattern)
)

// LockedKeys returns the keys of the labels and annotations that templates lock, as a Namespace records them.
func LockedKeys(namespace *corev1.Namespace) (labels, annotations []string) {
	record := namespace.Annotations[v1alpha1.AnnotationAppliedTemplates]
	return keysIn(lockedLabels.FindAllString(record, -1)), keysIn(lockedAnnotations.FindAllString(record, -1))
}

func keysIn(matches []string) []string {
	var keys []string
	for _, match := range matches {
		_, list, _ := strings.Cut(match, `":"`)
		keys = append(keys, strings.Split(list, ",")...)
	}
	return keys
}

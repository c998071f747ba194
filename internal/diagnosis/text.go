// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// FormatTime formats a time for evidence.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Ago formats how long ago a time was, like kubectl.
func (f *Facts) Ago(t time.Time) string { return duration.HumanDuration(f.Now.Sub(t)) }

// OneLine returns text from the API server on one line. If it is too long, it ends after a whole word.
func OneLine(text string) string {
	const maxLength = 400
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	if len(runes) <= maxLength {
		return text
	}
	shortened := string(runes[:maxLength])
	if end := strings.LastIndexByte(shortened, ' '); end > 0 {
		shortened = shortened[:end]
	}
	return shortened + " ..."
}

// JoinNames joins up to four names, and adds the number of further names.
func JoinNames(names []string) string {
	const maxNames = 4
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// Sorted iterates over a map in the order of its keys.
func Sorted[K cmp.Ordered, V any](of map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !yield(key, of[key]) {
				return
			}
		}
	}
}

// Labels and annotations of tools that install controllers.
const (
	annotationHelmRelease   = "meta.helm.sh/release-name"
	annotationHelmNamespace = "meta.helm.sh/release-namespace"
	labelInstance           = "app.kubernetes.io/instance"
	labelPartOf             = "app.kubernetes.io/part-of"
	labelPrefixOLM          = "operators.coreos.com/"
)

// ReleasesOf describes what installed an object, sorted: its Helm release, its package of the Operator
// Lifecycle Manager, and its application according to the recommended labels of Kubernetes. Two objects
// with the same description were installed together.
func ReleasesOf(object metav1.Object) []string {
	var releases []string
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	if name, namespace := annotations[annotationHelmRelease], annotations[annotationHelmNamespace]; name != "" {
		releases = append(releases, fmt.Sprintf("Helm release %s/%s", namespace, name))
	}
	if instance, partOf := labels[labelInstance], labels[labelPartOf]; instance != "" && partOf != "" {
		releases = append(releases, fmt.Sprintf("instance %q of %q", instance, partOf))
	}
	for label := range labels {
		if strings.HasPrefix(label, labelPrefixOLM) {
			releases = append(releases, "OLM package "+strings.TrimPrefix(label, labelPrefixOLM))
		}
	}
	slices.Sort(releases)
	return releases
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
